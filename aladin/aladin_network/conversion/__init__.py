"""Conversion of other projects' checkpoints, tensor by tensor, to checkpoints of this project."""
