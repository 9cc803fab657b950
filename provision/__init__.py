"""Bring a GPU lab up from one YAML inventory, and prove it."""

__version__ = "0.1.0"
