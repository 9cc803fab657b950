"""Checks of the cluster: plain GETs, read by code of their own."""
