"""Questions that a host answers."""
