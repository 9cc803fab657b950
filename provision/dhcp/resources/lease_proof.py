"""Proofs of an address: the guest uses it, the router leased it to the guest's own MAC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from provision.contracts.change import Change, Key, Op, Settles
from provision.contracts.query import Unknown
from provision.contracts.remedy import Impossible
from provision.contracts.snapshot import Snapshot
from provision.dhcp.contract import Router, fold_mac
from provision.hosts.queries.shell import Shell, ShellResult
from provision.values.diagnostics import Diagnostic, Source

LEASE_SECONDS = 60.0
_LINKS = Shell("ip -o link show")
_ADDRESSES = Shell("ip -o -4 address show scope global")


@dataclass(frozen=True, slots=True)
class AddressUsed:
    """A guest has its declared address on the network device with its MAC.

    Args:
        system: `vm-1/ssh`.
        name: the node.
        mac: of the VM's first network device.
        address: declared address.
        source: inventory line.
    """

    QUESTIONS: ClassVar[tuple[Shell, ...]] = (_LINKS, _ADDRESSES)

    system: str
    name: str
    mac: str
    address: str
    source: Source | None = None

    @property
    def key(self) -> Key:
        """Identity: the node's name."""
        return Key(self.system, "address-used", self.name)

    def queries(self) -> tuple[Shell, ...]:
        """Ask for links and addresses."""
        return self.QUESTIONS

    def changes(self, seen: Snapshot) -> tuple[Change, ...]:
        """Compare the addresses of the device with this MAC."""
        links, addresses = seen[_LINKS], seen[_ADDRESSES]
        for answer in (links, addresses):
            if not isinstance(answer, ShellResult):
                reason = answer.reason if isinstance(answer, Unknown) else "no answer"
                return (Change(Op.ATTENTION, "address", f"unknown: {reason}", self.address),)
        held = addresses_of(links, addresses, self.mac)
        if self.address in held:
            return ()
        return (Change(Op.ATTENTION, "address", ", ".join(held) or None, self.address),)

    def fix(self, seen: Snapshot) -> Impossible:
        """Say which address it got instead."""
        old = self.changes(seen)[0].old
        return Impossible(
            Diagnostic(
                "LEASE_NOT_RESERVED_IP",
                f"{self.name} ({self.mac}) has {old or 'no address'} instead of {self.address}",
                self.name,
                source=self.source,
                remedy="See whether the router gives the reserved address to this MAC; a guest takes another"
                " address at its next renewal or reboot.",
            )
        )


def addresses_of(links: object, addresses: object, mac: str) -> tuple[str, ...]:
    """Return the IPv4 addresses of the device with a MAC, from two one-line listings of ip(8)."""
    if not isinstance(links, ShellResult) or not isinstance(addresses, ShellResult):
        return ()
    devices = {
        _device(line)
        for line in links.stdout.decode(errors="replace").splitlines()
        if f"link/ether {mac}" in line.lower()
    }
    found: list[str] = []
    for line in addresses.stdout.decode(errors="replace").splitlines():
        words = line.split()
        if _device(line) in devices and "inet" in words[:-1]:
            found.append(words[words.index("inet") + 1].partition("/")[0])
    return tuple(found)


def _device(line: str) -> str:
    words = line.split()
    return words[1].rstrip(":").partition("@")[0] if len(words) > 1 else ""


@dataclass(frozen=True, slots=True)
class LeaseHeld:
    """The router's lease for an address belongs to the VM's MAC.

    Args:
        router: who hands out addresses.
        name: the node.
        mac: of the VM's first network device.
        address: declared address.
        source: inventory line.
    """

    router: Router
    name: str
    mac: str
    address: str
    source: Source | None = None

    @property
    def key(self) -> Key:
        """Identity: the node's name."""
        return Key(self.router.system, "dhcp-lease", self.name)

    def queries(self) -> tuple[Any, ...]:
        """Ask the router."""
        return self.router.questions()

    def changes(self, seen: Snapshot) -> tuple[Change, ...]:
        """Compare the lease."""
        leases = self.router.leases(seen)
        if isinstance(leases, Unknown):
            return (Change(Op.ATTENTION, "lease", f"unknown: {leases.reason}", self.address),)
        holders = [lease.mac for lease in leases if lease.address == self.address]
        if fold_mac(self.mac) in holders:
            return ()
        return (
            Change(
                Op.ATTENTION,
                "lease",
                holders[0] if holders else None,
                self.mac,
                settles=Settles.WITHIN,
                deadline=LEASE_SECONDS,
            ),
        )

    def fix(self, seen: Snapshot) -> Impossible:
        """Say who has the lease instead."""
        holder = self.changes(seen)[0].old
        return Impossible(
            Diagnostic(
                "LEASE_NOT_RESERVED_IP",
                f"the router has leased {self.address} to {holder or 'nobody'} instead of {self.mac}",
                self.name,
                source=self.source,
                remedy="See whether the guest takes its address by DHCP from this router.",
            )
        )
