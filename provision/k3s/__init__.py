"""k3s: servers and agents of the cluster."""
