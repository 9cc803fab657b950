"""Transport only: bytes to a system and back."""
