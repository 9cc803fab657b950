"""Resources of a Kubernetes cluster."""
