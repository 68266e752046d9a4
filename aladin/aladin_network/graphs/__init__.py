"""Networks as ONNX graphs: their export, and encoding with them instead of torch's modules."""
