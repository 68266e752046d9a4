"""A first stage that is fitted to the alignment: a vector per photo, and a query's own vector."""
