"""Kubernetes objects, releases and readiness."""
