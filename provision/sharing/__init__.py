"""GPU sharing."""
