"""Property strings of Proxmox VE: parsed with defaults filled in, so that drift is judged by meaning.

PVE stores most property strings as they were sent (qemu-server, `PVE/JSONSchema.pm` parse_property_string),
so `1` and `enabled=1`, or `pcie=1` and `pcie=1,rombar=1`, mean the same and must compare equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import get_args

from provision.inventory.models.node import NicModel

NIC_MODELS: tuple[str, ...] = get_args(NicModel)


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of property string.

    Args:
        default_key: which key a value without a name belongs to.
        defaults: values of keys that are left out.
        flags: boolean keys; PVE reads 1, on, yes and true (and their opposites).
        aliases: other names of keys.
        models: keys that carry two values at once: `virtio=MAC` is model and macaddr.
        ignored: keys that do not belong to the desired state.
        lists: keys whose values are lists joined by semicolons, in any order.
    """

    default_key: str = ""
    defaults: Mapping[str, str] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict)
    models: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()
    lists: frozenset[str] = frozenset()


DRIVE = Format(
    default_key="file",
    defaults={"media": "disk", "replicate": "1", "shared": "0", "backup": "1", "scsiblock": "0"},
    flags=frozenset(
        {"iothread", "ssd", "backup", "replicate", "shared", "ro", "scsiblock", "snapshot", "detect_zeroes"}
    ),
    aliases={
        "volume": "file",
        "bps_rd_length": "bps_rd_max_length",
        "bps_wr_length": "bps_wr_max_length",
        "iops_rd_length": "iops_rd_max_length",
        "iops_wr_length": "iops_wr_max_length",
    },
    ignored=frozenset({"format", "import-from"}),
)
EFIDISK = Format(
    default_key="file",
    defaults={"efitype": "2m", "pre-enrolled-keys": "0"},
    flags=frozenset({"pre-enrolled-keys"}),
    aliases={"volume": "file"},
    ignored=frozenset({"format", "size", "import-from", "ms-cert"}),
)
TPMSTATE = Format(
    default_key="file",
    defaults={"version": "v1.2"},
    aliases={"volume": "file"},
    ignored=frozenset({"format", "size", "import-from"}),
)
NET = Format(
    default_key="model",
    defaults={"firewall": "0", "link_down": "0"},
    flags=frozenset({"firewall", "link_down", "host-tunnel"}),
    models=frozenset(NIC_MODELS),
)
HOSTPCI = Format(
    default_key="host",
    defaults={"pcie": "0", "rombar": "1", "x-vga": "0", "legacy-igd": "0", "driver": "vfio"},
    flags=frozenset({"pcie", "rombar", "x-vga", "legacy-igd"}),
)
USB = Format(default_key="host", defaults={"usb3": "0"}, flags=frozenset({"usb3"}))
CPU = Format(
    default_key="cputype",
    defaults={"cputype": "kvm64", "hidden": "0", "reported-model": "kvm64"},
    flags=frozenset({"hidden"}),
    lists=frozenset({"flags"}),
)
MEMORY = Format(default_key="current", defaults={"current": "512"})
AGENT = Format(
    default_key="enabled",
    defaults={"enabled": "0", "freeze-fs": "1", "fstrim_cloned_disks": "0", "type": "virtio"},
    flags=frozenset({"enabled", "freeze-fs", "fstrim_cloned_disks"}),
    aliases={"freeze-fs-on-backup": "freeze-fs", "guest-fsfreeze": "freeze-fs"},
)
MACHINE = Format(default_key="type", defaults={"type": "pc"}, flags=frozenset({"enable-s3", "enable-s4"}))
BOOT = Format(default_key="legacy")
STARTUP = Format(default_key="order")
MAPPING_ENTRY = Format(ignored=frozenset({"description"}))

_TRUE = frozenset({"1", "on", "yes", "true"})
_FALSE = frozenset({"0", "off", "no", "false"})


def parse(text: str) -> dict[str, str]:
    """Return the parts of a property string as they stand; a part without `=` has the key ``."""
    parts: dict[str, str] = {}
    for part in text.split(","):
        if not part:
            continue
        key, equals, value = part.partition("=")
        if equals:
            parts[key] = value
        else:
            parts.setdefault("", part)
    return parts


def join(parts: Mapping[str, str]) -> str:
    """Return a property string; the part with the key `` comes first, without a name."""
    first = [parts[""]] if "" in parts else []
    return ",".join([*first, *(f"{key}={value}" for key, value in parts.items() if key)])


def normal(text: str, form: Format) -> Mapping[str, str]:
    """Return what a property string means: names instead of positions, aliases resolved, defaults filled in.

    MAC addresses become upper-case, booleans 1 and 0; total: garbage stays as it is under its own key.
    """
    return MappingProxyType({**form.defaults, **explicit(text, form)})


def explicit(text: str, form: Format) -> dict[str, str]:
    """Return the parts that a property string names, under their normal names, without defaults."""
    parts: dict[str, str] = {}
    for name, value in parse(text).items():
        key = name or form.default_key or ""
        key = form.aliases.get(key, key)
        if key in form.models:
            parts["model"] = key
            key = "macaddr"
        if key in form.ignored:
            continue
        parts[key] = _value(key, value, form)
    return parts


def _value(key: str, value: str, form: Format) -> str:
    if key in form.flags:
        low = value.lower()
        return "1" if low in _TRUE else "0" if low in _FALSE else value
    if key == "macaddr":
        return value.upper()
    if key in form.lists:
        return ";".join(sorted(set(value.split(";")) - {""}))
    return value


def size_gib(text: str) -> float:
    """Return GiB of a size as PVE writes it in a drive (`60G`, `528K`, `2252M`); 0.0 for garbage.

    Source: qemu-server, `parse_size` of PVE::JSONSchema.
    """
    units = {"K": 1 / 1024 / 1024, "M": 1 / 1024, "G": 1.0, "T": 1024.0}
    number, unit = (text[:-1], text[-1:]) if text[-1:] in units else (text, "")
    try:
        value = float(number)
    except ValueError:
        return 0.0
    return value * units.get(unit, 1 / 1024**3)
