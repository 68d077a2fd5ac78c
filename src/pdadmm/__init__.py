"""Train deep fully connected networks without backpropagation, every layer in parallel."""

__version__ = "0.1.0"
