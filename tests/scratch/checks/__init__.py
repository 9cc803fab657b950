"""Its checks."""
