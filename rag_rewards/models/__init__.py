"""Backends: real models that implement the protocols. Each is imported on first use."""
