"""Proxmox VE: hypervisors and their VMs."""
