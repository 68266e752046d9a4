"""Other people's checkpoints, tensor by tensor, as networks of this project."""
