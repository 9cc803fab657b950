"""Bring a GPU lab up from one YAML inventory, and prove it."""
