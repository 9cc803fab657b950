"""The VM parameters that the lab knows, with their privileges.

Facts: the API's documented parameters of Proxmox VE 9 for `qemu` create and config, reduced to what a GPU
site uses; forms and texts as measured on 9.2.11.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from provision.lab.api.schema import Field, FormatError, Params

BOOL = Field("boolean")
TEXT = Field(pattern=r"[^\n]*")


def _dns_name(text: str) -> None:
    label = r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
    if not re.fullmatch(rf"{label}(\.{label})*", text):
        raise FormatError("value does not look like a valid DNS name")


def _vmid(text: str) -> None:
    if not re.fullmatch(r"[1-9]\d{2,8}", text):
        raise FormatError("value does not look like a valid VM ID")


def _mac(text: str) -> None:
    if not re.fullmatch(r"[0-9a-fA-F][02468aceACE](:[0-9a-fA-F]{2}){5}", text):
        raise FormatError("value does not look like a valid unicast MAC address")


def _tags(text: str) -> None:
    for tag in re.split(r"[;, ]+", text.strip("; ,")):
        if tag and not re.fullmatch(r"[a-zA-Z0-9_][a-zA-Z0-9_\-+.]*", tag):
            raise FormatError("invalid characters in tag")


def _urlencoded(text: str) -> None:
    if not re.fullmatch(r"[-%a-zA-Z0-9_.!~*'()]*", text):
        raise FormatError("invalid urlencoded string")


VMID = Field("integer", required=True, check=_vmid)

_NET_MODELS = (
    *("e1000", "e1000-82540em", "e1000-82544gc", "e1000-82545em", "e1000e", "i82551", "i82557b", "i82559er"),
    *("ne2k_isa", "ne2k_pci", "pcnet", "rtl8139", "virtio", "vmxnet3"),
)
NET = Field(
    parts={
        "model": Field(required=True, choices=_NET_MODELS),
        "macaddr": Field(check=_mac),
        "bridge": Field(pattern=r"[-_.\w]+"),
        "firewall": BOOL,
        "link_down": BOOL,
        "mtu": Field("integer", minimum=1, maximum=65520),
        "queues": Field("integer", minimum=0, maximum=64),
        "rate": Field("number", minimum=0),
        "tag": Field("integer", minimum=1, maximum=4094),
        "trunks": TEXT,
        "host-tunnel": BOOL,
    },
    default_part="model",
    aliases=dict.fromkeys(_NET_MODELS, ("model", "macaddr")),
)

_ON = Field(choices=("on", "off"))
_SIZE = Field(pattern=r"\d+(\.\d+)?[KMGT]?")
_DRIVE_PARTS = {
    "file": Field(required=True),
    "media": Field(choices=("cdrom", "disk")),
    "size": _SIZE,
    "import-from": Field(pattern=r"\S+"),
    "format": Field(choices=("raw", "qcow2", "vmdk")),
    "aio": Field(choices=("native", "threads", "io_uring")),
    "backup": BOOL,
    "cache": Field(choices=("none", "writethrough", "writeback", "unsafe", "directsync")),
    "detect_zeroes": BOOL,
    "discard": Field(choices=("ignore", "on")),
    "replicate": BOOL,
    "serial": TEXT,
}
_MORE_PARTS = {"ssd": BOOL, "iothread": BOOL, "ro": BOOL, "queues": Field("integer", minimum=2)}


def _drive(*more: str) -> Field:
    parts = _DRIVE_PARTS | {name: _MORE_PARTS[name] for name in more}
    return Field(parts=parts, default_part="file")


DISKS = {
    "ide": _drive("ssd"),
    "sata": _drive("ssd"),
    "scsi": _drive("ssd", "iothread", "ro", "queues"),
    "virtio": _drive("iothread", "ro"),
}
EFI_DISK = Field(
    parts={
        "file": Field(required=True),
        "size": _SIZE,
        "import-from": Field(pattern=r"\S+"),
        "format": Field(choices=("raw", "qcow2", "vmdk")),
        "efitype": Field(choices=("2m", "4m")),
        "pre-enrolled-keys": BOOL,
        "ms-cert": Field(choices=("2011", "2023", "2023w", "2023k")),
    },
    default_part="file",
)

TPM_STATE = Field(
    parts={
        "file": Field(required=True),
        "size": _SIZE,
        "import-from": Field(pattern=r"\S+"),
        "format": Field(choices=("raw", "qcow2", "vmdk")),
        "version": Field(choices=("v1.2", "v2.0")),
    },
    default_part="file",
)

_PCI = r"(?:[0-9a-fA-F]{4,}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?"
_ID = Field(pattern=r"0x[0-9a-fA-F]{4}")
HOSTPCI = Field(
    parts={
        "host": Field(pattern=rf"{_PCI}(;{_PCI})*"),
        "mapping": Field(pattern=r"[a-zA-Z][\w-]+"),
        "pcie": BOOL,
        "rombar": BOOL,
        "romfile": Field(pattern=r"[^,;]+"),
        "x-vga": BOOL,
        "legacy-igd": BOOL,
        "mdev": Field(pattern=r"[^/.:]+"),
        "vendor-id": _ID,
        "device-id": _ID,
        "sub-vendor-id": _ID,
        "sub-device-id": _ID,
        "driver": Field(choices=("vfio", "keep")),
    },
    default_part="host",
)

_MACHINE_TYPE = r"(pc|pc(-i440fx)?-\d+(\.\d+)+(\+pve\d+)?|q35|pc-q35-\d+(\.\d+)+(\+pve\d+)?)"
_CIDR = r"(dhcp|\d+(\.\d+){3}/\d{1,2})"
_SNIPPET = Field(pattern=r"[\w.-]+:snippets/[^/,\s]+")

CLOUD_INIT = frozenset(
    ["cicustom", "citype", "ciupgrade", "ciuser", "ipconfig", "nameserver", "searchdomain", "sshkeys"]
)

_BY_PRIVILEGE: Mapping[str, Mapping[str, Field]] = {
    "VM.Config.CPU": {
        "cores": Field("integer", minimum=1),
        "sockets": Field("integer", minimum=1),
        "vcpus": Field("integer", minimum=1),
        "cpulimit": Field("number", minimum=0, maximum=128),
        "cpuunits": Field("integer", minimum=1, maximum=262144),
        "numa": BOOL,
        "cpu": Field(
            parts={
                "cputype": Field(pattern=r"[\w-]+"),
                "flags": Field(pattern=r"[+-][\w.-]+(;[+-][\w.-]+)*"),
                "hidden": BOOL,
                "hv-vendor-id": Field(pattern=r"[a-zA-Z0-9]{1,12}"),
                "phys-bits": Field(pattern=r"\d{1,2}|host"),
                "reported-model": Field(pattern=r"[\w-]+"),
                "level": Field("integer", minimum=0),
            },
            default_part="cputype",
        ),
    },
    "VM.Config.Memory": {
        "memory": Field(parts={"current": Field("integer", minimum=16)}, default_part="current"),
        "balloon": Field("integer", minimum=0),
        "shares": Field("integer", minimum=0, maximum=50000),
    },
    "VM.Config.HWType": {
        "acpi": BOOL,
        "kvm": BOOL,
        "tablet": BOOL,
        "hotplug": TEXT,
        "machine": Field(
            parts={
                "type": Field(pattern=_MACHINE_TYPE),
                "viommu": Field(choices=("intel", "virtio")),
                "aw-bits": Field("number", minimum=32, maximum=64),
                "enable-s3": BOOL,
                "enable-s4": BOOL,
            },
            default_part="type",
        ),
        "scsihw": Field(
            choices=("lsi", "lsi53c810", "virtio-scsi-pci", "virtio-scsi-single", "megasas", "pvscsi")
        ),
        "smbios1": Field(pattern=r"[\w=+/,. -]*"),
        "vga": Field(
            parts={
                "type": Field(
                    choices=(
                        "cirrus",
                        "qxl",
                        "qxl2",
                        "qxl3",
                        "qxl4",
                        "none",
                        "serial0",
                        "serial1",
                        "serial2",
                        "serial3",
                        "std",
                        "virtio",
                        "virtio-gl",
                        "vmware",
                    )
                ),
                "memory": Field("integer", minimum=4, maximum=512),
                "clipboard": Field(choices=("vnc",)),
            },
            default_part="type",
        ),
        "watchdog": TEXT,
        "rng0": TEXT,
    },
    "VM.Config.Options": {
        "agent": Field(
            parts={
                "enabled": Field("boolean", required=True),
                "fstrim_cloned_disks": BOOL,
                "freeze-fs": BOOL,
                "freeze-fs-on-backup": BOOL,
                "guest-fsfreeze": BOOL,
                "type": Field(choices=("virtio", "isa")),
            },
            default_part="enabled",
        ),
        "allow-ksm": BOOL,
        "autostart": BOOL,
        "bios": Field(choices=("seabios", "ovmf")),
        "boot": Field(pattern=r"\s*|[acdn]{1,4}|(legacy=[acdn]{1,4}|order=([a-z0-9]+(;[a-z0-9]+)*)?)"),
        "description": Field(max_length=8192),
        "freeze": BOOL,
        "localtime": BOOL,
        "name": Field(check=_dns_name),
        "onboot": BOOL,
        "ostype": Field(
            choices=(
                "other",
                "wxp",
                "w2k",
                "w2k3",
                "w2k8",
                "wvista",
                "win7",
                "win8",
                "win10",
                "win11",
                "l24",
                "l26",
                "solaris",
            )
        ),
        "protection": BOOL,
        "reboot": BOOL,
        "startdate": TEXT,
        "startup": Field(pattern=r"(order=)?\d*(,?(up|down)=\d+)*"),
        "tags": Field(check=_tags),
        "template": BOOL,
    },
    "VM.Config.Cloudinit": {
        "cicustom": Field(parts=dict.fromkeys(("meta", "network", "user", "vendor"), _SNIPPET)),
        "citype": Field(choices=("configdrive2", "nocloud", "opennebula")),
        "ciupgrade": BOOL,
        "ciuser": TEXT,
        "nameserver": TEXT,
        "searchdomain": TEXT,
        "sshkeys": Field(check=_urlencoded),
    },
    "root": {
        "affinity": TEXT,
        "args": TEXT,
        "hookscript": TEXT,
        "hugepages": Field(choices=("any", "2", "1024")),
        "keephugepages": BOOL,
        "lock": Field(
            choices=(
                "backup",
                "clone",
                "create",
                "migrate",
                "rollback",
                "snapshot",
                "snapshot-delete",
                "suspending",
                "suspended",
            )
        ),
        "vmgenid": Field(pattern=r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[01]"),
    },
    "VM.Config.Disk": {"efidisk0": EFI_DISK, "tpmstate0": TPM_STATE, "vmstatestorage": TEXT},
}

_NUMBERED: Mapping[str, tuple[str, int, Field]] = {
    "hostpci": ("VM.Config.HWType", 16, HOSTPCI),
    "ide": ("VM.Config.Disk", 4, DISKS["ide"]),
    "ipconfig": (
        "VM.Config.Cloudinit",
        32,
        Field(
            parts={
                "ip": Field(pattern=_CIDR),
                "gw": Field(pattern=r"\d+(\.\d+){3}"),
                "ip6": Field(pattern=r"dhcp|auto|[0-9a-fA-F:]+/\d{1,3}"),
                "gw6": Field(pattern=r"[0-9a-fA-F:]+"),
            }
        ),
    ),
    "net": ("VM.Config.Network", 32, NET),
    "numa": ("VM.Config.CPU", 8, TEXT),
    "sata": ("VM.Config.Disk", 6, DISKS["sata"]),
    "scsi": ("VM.Config.Disk", 31, DISKS["scsi"]),
    "serial": ("VM.Config.HWType", 4, Field(pattern=r"/dev/.+|socket")),
    "unused": ("VM.Config.Disk", 256, Field(pattern=r"[\w.-]+:vm-\d+-[\w.-]+")),
    "usb": ("VM.Config.HWType", 14, TEXT),
    "virtio": ("VM.Config.Disk", 16, DISKS["virtio"]),
    "virtiofs": ("VM.Config.Options", 10, TEXT),
}

VM = Params(
    fields={name: spec for group in _BY_PRIVILEGE.values() for name, spec in group.items()},
    numbered={name: (count, spec) for name, (_, count, spec) in _NUMBERED.items()},
)
_NODE = {"node": Field(required=True)}
CREATE = Params(
    fields={
        **VM.fields,
        **_NODE,
        "vmid": VMID,
        "storage": TEXT,
        "start": BOOL,
        "force": BOOL,
        "unique": BOOL,
        "pool": TEXT,
        "bwlimit": Field("integer", minimum=0),
    },
    numbered=VM.numbered,
)
UPDATE = Params(
    fields={
        **VM.fields,
        **_NODE,
        "vmid": VMID,
        "delete": TEXT,
        "revert": TEXT,
        "digest": Field(max_length=64),
        "force": BOOL,
        "skiplock": BOOL,
    },
    numbered=VM.numbered,
)
UPDATE_TASK = Params(
    fields={**UPDATE.fields, "background_delay": Field("integer", minimum=1, maximum=30)},
    numbered=VM.numbered,
)

_NAME = re.compile(r"([a-z]+)\d+")
_PRIVILEGE_OF = {name: priv for priv, group in _BY_PRIVILEGE.items() for name in group}


def base_name(key: str) -> str:
    """Return a key without its number (`net0` -> `net`)."""
    if key in VM.fields:
        return key
    match = _NAME.fullmatch(key)
    return match[1] if match else key


def privilege_of(key: str) -> str:
    """Return the privilege that a key needs, or `root`."""
    base = base_name(key)
    if base in _NUMBERED:
        return _NUMBERED[base][0]
    return _PRIVILEGE_OF.get(base, "root")


def is_disk(key: str) -> bool:
    """Say whether a key names a drive."""
    return key in {"efidisk0", "tpmstate0"} or base_name(key) in {"ide", "sata", "scsi", "virtio"}


def typed(key: str, value: str) -> str | int:
    """Return a configuration value as the API types it: integers and booleans are numbers."""
    spec = VM.find(key)
    return int(value) if spec is not None and spec.kind in {"integer", "boolean"} else value
