"""A package of somebody else, which adds a domain by its entry point."""
