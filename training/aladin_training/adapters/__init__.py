"""Fine-tuning of encoders: the weights that a stage trains, their learning rates, adapters."""
