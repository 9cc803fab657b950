"""What is said to hosts: scripts, frames, deadlines, output."""
