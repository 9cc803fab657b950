"""The checks: pytest files; each docstring is the claim that a reader sees."""
