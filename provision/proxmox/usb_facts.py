"""USB devices of a host, and what the host uses them for: sysfs, /proc/mounts, /proc/swaps, zpool-list(8).

ZFS holds its disks without an entry in `holders`.
"""

from __future__ import annotations

from dataclasses import dataclass

from provision.hosts.queries.shell import Shell

USB_DEVICES = Shell(
    r"""z=
if [ -d /sys/module/zfs ]; then z=$(timeout 20 zpool list -vHLP 2>/dev/null) || exit 1; fi
for d in /sys/bus/usb/devices/*; do
  [ -r "$d/idVendor" ] || continue
  v= p= c=
  read -r v <"$d/idVendor" || :; read -r p <"$d/idProduct" || :; read -r c <"$d/bDeviceClass" || :
  echo "device ${d##*/} $v:$p ${c:-00}"
  for n in "$d"/*:*/net/*; do [ ! -e "$n" ] || echo "use ${d##*/} network interface ${n##*/}"; done
  for b in "$d"/*:*/host*/target*/*/block/*; do
    [ -e "$b" ] || continue
    ! grep -q "^/dev/${b##*/}" /proc/mounts /proc/swaps || echo "use ${d##*/} mounted disk ${b##*/}"
    case $z in *"/dev/${b##*/}"*) echo "use ${d##*/} disk ${b##*/} of a ZFS pool" ;; esac
    for h in "$b"/holders/* "$b"/*/holders/*; do
      [ ! -e "$h" ] || echo "use ${d##*/} disk ${b##*/} of ${h##*/}"
    done
  done
done
echo end"""
)
"""One fact a line; the last one says that all were read."""
_HUB = "09"
"""Device class of hubs."""


@dataclass(frozen=True, slots=True)
class UsbPlugged:
    """A device that is plugged in.

    Args:
        port: `1-2.4`.
        id: `0403:6001`.
        uses: what the host uses it for.
    """

    port: str
    id: str
    uses: tuple[str, ...] = ()


def usb_devices(text: str) -> tuple[UsbPlugged, ...] | None:
    """Return the devices that an answer to USB_DEVICES names, None where it is not whole."""
    lines = text.splitlines()
    if lines[-1:] != ["end"]:
        return None
    uses: dict[str, list[str]] = {}
    found: dict[str, str] = {}
    for line in lines:
        kind, _, rest = line.partition(" ")
        port, _, words = rest.partition(" ")
        if kind == "use" and words:
            uses.setdefault(port, []).append(words)
        elif kind == "device" and "-" in port and words:
            identity, _, cls = words.partition(" ")
            found[port] = identity.lower()
            if cls == _HUB:
                uses.setdefault(port, []).append(
                    "a hub: the devices that are plugged into it would be passed, too"
                )
    return tuple(UsbPlugged(port, identity, tuple(uses.get(port, ()))) for port, identity in found.items())
