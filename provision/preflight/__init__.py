"""Rules that refuse a plan before anything is touched."""
