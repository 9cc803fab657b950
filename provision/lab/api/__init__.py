"""The Proxmox-compatible API of the lab."""
