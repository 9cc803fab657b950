"""Resources of a host reached by a shell, and the script protocol."""
