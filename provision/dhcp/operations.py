"""What fixes of reservations do on a router, as data; the shell is made from them, ModelHost reads them."""

from __future__ import annotations

from dataclasses import dataclass

from provision.dhcp.kea_program import TEXT
from provision.hosts.operations.basic import quote


def kea_shell(task: str, socket: str, **values: str) -> str:
    """Return how the program for Kea runs on its host.

    Args:
        task: `state` or `edit`.
        socket: the control socket.
        values: what an edit is about.
    """
    named = {"task": task, "socket": socket, **values}
    words = " ".join(f"PROVISION_{name.upper()}={quote(value)}" for name, value in named.items())
    return (
        "command -v python3 >/dev/null 2>&1 || {\n"
        "  echo 'install python3 on the router: Kea is asked by it' >&2; exit 1\n"
        f"}}\nenv {words} python3 - <<'PROVISION_KEA'{TEXT}PROVISION_KEA\n"
    )


@dataclass(frozen=True, slots=True)
class KeaEdit:
    """Make or remove our reservation in Kea, and keep it over restarts.

    Args:
        socket: the control socket.
        own: the name of our entry (`provision-lab-vm-1`).
        mac: empty removes the entry.
        address: IPv4 address.
        name: host name.
    """

    socket: str
    own: str
    mac: str
    address: str
    name: str

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        values = {"own": self.own, "mac": self.mac, "address": self.address, "name": self.name}
        return kea_shell("edit", self.socket, **values)


@dataclass(frozen=True, slots=True)
class UciEdit:
    """Make or remove our section of OpenWrt's /etc/config/dhcp, and reload who serves DHCP.

    Args:
        section: its name.
        mac: empty removes it.
        address: IPv4 address.
        name: host name.
    """

    section: str
    mac: str
    address: str
    name: str

    def shell(self) -> str:
        """Return it as a POSIX fragment; what somebody else has staged is not committed along with it."""
        path = quote(f"dhcp.{self.section}")
        lines = [
            'if [ -n "$(uci -q changes dhcp)" ]; then',
            "  echo 'dhcp has uncommitted changes: `uci commit dhcp` or `uci revert dhcp` on the router' >&2",
            "  exit 1",
            "fi",
            f"uci -q delete {path} || :",
        ]
        if self.mac:
            values = {"": "host", ".name": self.name, ".mac": self.mac, ".ip": self.address}
            lines += [
                f"uci set {quote(f'dhcp.{self.section}{key}={value}')}" for key, value in values.items()
            ]
        odhcpd = "if uci show dhcp | grep -q \"\\.maindhcp='1'\"; then /etc/init.d/odhcpd reload; fi"
        return "\n".join((*lines, "uci commit dhcp", "/etc/init.d/dnsmasq reload", odhcpd))
