"""What k3s is made of on servers and on agents."""
