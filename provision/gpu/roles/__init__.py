"""What GPU roles want."""
