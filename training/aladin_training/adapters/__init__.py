"""Fine-tuning of encoders: which of their weights a stage trains, and how fast each learns."""
