"""What domains and engine agree on."""
