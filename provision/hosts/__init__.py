"""Any machine with SSH and a POSIX shell."""
