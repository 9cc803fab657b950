"""A small Kubernetes API: objects, server-side apply, conflicts, watches; no scheduler, no kubelet."""
