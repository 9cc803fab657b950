"""Which machine answered: what tells one from its clones, its names, and its addresses."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar

from provision.hosts.resources.base import HostFactKind, Rows

DUMMY_UUIDS = frozenset(
    {
        "03000200-0400-0500-0006-000700080009",
        "00020003-0004-0005-0006-000700080009",
        "12345678-1234-5678-90ab-cddeefaabbcc",
        "12345678-1234-1234-1234-123456789abc",
    }
)
"""What boards carry whose maker wrote no number of their own."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Which machine this is."""

    kind: ClassVar[str] = "identity"


@dataclass(frozen=True, slots=True)
class MachineIdentity:
    """What a machine says of itself; empty is not known.

    Args:
        machine_id: of machine-id(5).
        product_uuid: the board's or VM's UUID in lower case; empty in a container, which shows its machine's.
        hostname: the running name.
        host_key: the ED25519 host key, `TYPE BASE64`.
        macs: MAC addresses of its own network devices, without bridges and other virtual ones.
        node_name: the name by which k3s has joined a cluster; empty where it has not.
        addresses: its IPv4 addresses beyond the link; they come and go with pods.
    """

    machine_id: str = ""
    product_uuid: str = ""
    hostname: str = ""
    host_key: str = ""
    macs: tuple[str, ...] = ()
    node_name: str = ""
    addresses: tuple[str, ...] = field(default=(), compare=False)


# Only root may read the UUID. k3s takes the name of its Node from its configuration, else from the host.
# A name among the flags of its unit stays unknown here.
_SCRIPT = r"""m= u= k= n=
if [ -r /etc/machine-id ]; then read -r m </etc/machine-id || :; fi
if [ ! -e /run/systemd/container ] && [ -r /sys/class/dmi/id/product_uuid ]; then
  read -r u </sys/class/dmi/id/product_uuid || :
fi
if [ -r /etc/ssh/ssh_host_ed25519_key.pub ]; then read -r k </etc/ssh/ssh_host_ed25519_key.pub || :; fi
h=$(uname -n)
if [ -d /var/lib/rancher/k3s/agent ]; then
  c=/etc/rancher/k3s/config.yaml
  n=$(sed -n 's/^node-name: *//p' $c $c.d/*.yaml 2>/dev/null | tail -n 1) || n=
  if [ -z "$n" ] && ! grep -qs -e --node-name /etc/systemd/system/k3s*.service; then n=$h; fi
fi
printf 'me|%s|%s|%s|%s|%s\n' "$m" "$u" "$h" "$k" "$n"
# The management controller's port on USB has one address on all boards of a maker.
for d in /sys/class/net/*; do
  case $(readlink "$d/device/subsystem" 2>/dev/null) in */usb) continue;; esac
  if [ -e "$d/device" ] && [ -r "$d/address" ]; then read -r a <"$d/address" || :; echo "mac|$a"; fi
done
if command -v ip >/dev/null 2>&1; then
  ip -o -4 addr show scope global 2>/dev/null | sed -n 's/^.* inet \([0-9.]*\).*/address|\1/p' || :
fi
echo 'done|'"""


def _read(rows: Rows) -> MachineIdentity:
    machine, uuid, hostname, key, node = rows["me"][0]
    return MachineIdentity(
        machine_id=machine if re.fullmatch(r"[0-9a-f]{32}", machine) else "",
        product_uuid=_own_uuid(uuid.lower()),
        hostname=hostname,
        host_key=" ".join(key.split()[:2]),
        macs=tuple(sorted({row[0].lower() for row in rows.get("mac", ()) if row[0].strip("0:")})),
        node_name=node.strip("\"' ").lower(),
        addresses=tuple(sorted({row[0] for row in rows.get("address", ())})),
    )


def _own_uuid(uuid: str) -> str:
    """Return a UUID that tells machines apart; dummies are none."""
    digits = set(uuid.replace("-", ""))
    is_uuid = re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid) is not None
    is_pattern = len(digits) <= 2  # noqa: PLR2004 - 0s, Fs and FEFE... have at most two digits
    return uuid if is_uuid and uuid not in DUMMY_UUIDS and not is_pattern else ""


IDENTITY_KIND = HostFactKind(Identity, "the machine's identity", _SCRIPT, _read)
