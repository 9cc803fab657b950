"""testinfra checks over the session's answers."""
