"""The first stage: FAISS, exact search, and the choice between them."""
