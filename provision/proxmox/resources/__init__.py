"""Desired states of Proxmox VE."""
