"""Our keys for what other tools and their users call by another word."""

from __future__ import annotations

from provision.inventory.tree import KeyPath

TOP = {
    **dict.fromkeys(("guests", "instances", "machines", "node", "servers", "virtual_machines"), "nodes"),
    **dict.fromkeys(("vm", "vms", "workers"), "nodes"),
    **dict.fromkeys(("all", "hosts", "inventory"), "nodes (hosts of Proxmox VE: hypervisors)"),
    **dict.fromkeys(("hypervisor", "provider", "providers", "proxmox", "pve"), "hypervisors"),
    **dict.fromkeys(("cards", "gpus", "hostpci", "pci"), "hypervisors.NAME.cards and nodes.NAME.gpus"),
    **dict.fromkeys(("defaults", "flavors", "group_vars", "groups", "roles"), "profiles"),
    **dict.fromkeys(("authorized_keys", "ssh", "ssh_key", "ssh_keys", "user", "users"), "access"),
    **dict.fromkeys(("bridge", "bridges"), "hypervisors.NAME.bridge"),
    **dict.fromkeys(("cidr", "dhcp", "dns", "domain", "gateway"), "network.{}"),
    **dict.fromkeys(("image", "iso", "template", "templates"), "images"),
    **dict.fromkeys(("k3s_server", "k8s", "kubernetes"), "k3s"),
    **dict.fromkeys(("hami", "kai", "mig", "mps", "time_slicing"), "sharing"),
    **dict.fromkeys(("files", "packages", "resources", "services"), "host_resources of a node or profile"),
    **dict.fromkeys(("driver", "drivers"), "nodes.NAME.driver"),
    "variables": "vars",
}
NODE = {
    **dict.fromkeys(("ide", "sata", "scsi", "virtio"), "disks"),
    **dict.fromkeys(("bridge", "interface", "net", "network", "networks", "nic"), "nics"),
    **dict.fromkeys(("cpus", "vcpu", "vcpus"), "cores"),
    **dict.fromkeys(("mem", "ram"), "memory"),
    **dict.fromkeys(("ansible_host", "ip", "ip_address", "ipaddr", "ipv4"), "address"),
    **dict.fromkeys(("host", "proxmox", "proxmox_node", "pve", "target_node"), "hypervisor"),
    **dict.fromkeys(("clone", "os", "template"), "image"),
    **dict.fromkeys(("disk_size", "rootfs", "size"), "disk"),
    **dict.fromkeys(("cards", "gpu", "hostpci"), "gpus"),
    **dict.fromkeys(("id", "vm_id"), "vmid"),
    **dict.fromkeys(
        ("ansible_user", "ssh_key", "sshkeys", "ciuser", "user"), "access, at the top of the file"
    ),
    **dict.fromkeys(("autostart", "onboot", "start_on_boot"), "start_at_boot"),
    **dict.fromkeys(("role", "roles"), "`k3s: server` or `k3s: agent`"),
    "efidisk": "efi",
    "files": "host_resources",
    "tpmstate": "tpm",
}
"""Also the keys of qm.conf(5), without their number."""
HYPERVISOR = {
    **dict.fromkeys(("endpoint", "host", "hostname", "ip", "url"), "address"),
    **dict.fromkeys(("api_token", "fingerprint", "password", "token", "token_id"), "api"),
    **dict.fromkeys(("devices", "gpu", "gpus", "hostpci", "pci"), "cards"),
    **dict.fromkeys(("datastore", "datastores", "storages"), "storage"),
    **dict.fromkeys(("bridges", "network"), "bridge"),
    **dict.fromkeys(("user", "username"), "ssh"),
}
_OF_SECTION = {"nodes": NODE, "profiles": NODE, "hypervisors": HYPERVISOR}


def our_word(key: str, section: KeyPath) -> str:
    """Return what an inventory has for a key of another tool, or an empty string.

    Args:
        key: the unknown key.
        section: where it is written.
    """
    if not section:
        return TOP.get(key, "").format(key)
    words = {} if section[2:] else _OF_SECTION.get(str(section[0]), {})
    return words.get(key.rstrip("0123456789"), "")
