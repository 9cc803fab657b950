"""What a fix does on a host, as data with its shell text."""
