"""Proofs of an address: the guest uses it, the router leased it to the guest's own MAC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from provision.contracts.change import Change, Key, Op, Settles
from provision.contracts.remedy import Impossible
from provision.contracts.resource import KeyedResource
from provision.contracts.snapshot import Snapshot
from provision.dhcp.contract import Lease, Router, fold_mac, router_table
from provision.hosts.queries.shell import Shell, ShellResult
from provision.values.diagnostics import Diagnostic, Source

LEASE_SECONDS = 60.0
_LINKS = Shell("ip -o link show")
_ADDRESSES = Shell("ip -o -4 address show scope global")


@dataclass(frozen=True, slots=True)
class AddressUsed(KeyedResource):
    """A guest has its declared address on the network device with its MAC.

    Args:
        name: the node.
        mac: of the VM's first network device.
        address: declared address.
    """

    kind: ClassVar[str] = "address-used"
    QUERIES: ClassVar[tuple[Shell, ...]] = (_LINKS, _ADDRESSES)

    name: str
    mac: str
    address: str

    def _key_name(self) -> str:
        return self.name

    def queries(self) -> tuple[Shell, ...]:
        """Ask for links and addresses."""
        return self.QUERIES

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Compare the addresses of the device with this MAC."""
        held = addresses_of(snapshot[_LINKS], snapshot[_ADDRESSES], self.mac)
        if self.address in held:
            return ()
        return (Change(Op.ATTENTION, "address", ", ".join(held) or None, self.address),)

    def fix(self, snapshot: Snapshot, /) -> Impossible:
        """Say which address it got instead."""
        old = self.changes(snapshot)[0].old
        return self._refused(
            "LEASE_NOT_RESERVED_IP",
            f"{self.name} ({self.mac}) has {old or 'no address'} instead of {self.address}",
            subject=self.name,
            remedy="See whether the router gives the reserved address to this MAC; a guest takes another"
            " address at its next renewal or reboot.",
        )


def addresses_of(links: ShellResult, addresses: ShellResult, mac: str) -> tuple[str, ...]:
    """Return the IPv4 addresses of the device with a MAC, from two one-line listings of ip(8)."""
    devices = {
        _device(line)
        for line in links.stdout.decode(errors="replace").splitlines()
        if f"link/ether {mac}" in line.lower()
    }
    held: list[str] = []
    for line in addresses.stdout.decode(errors="replace").splitlines():
        words = line.split()
        if _device(line) in devices and "inet" in words[:-1]:
            held.append(words[words.index("inet") + 1].partition("/")[0])
    return tuple(held)


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
        return self.router.queries()

    def _holder(self, snapshot: Snapshot) -> str | None:
        macs = [lease.mac for lease in router_table(self.router, snapshot).leases_of(self.address)]
        return self.mac if fold_mac(self.mac) in macs else next(iter(macs), None)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Compare the lease; a guest may take a moment until it asks for one."""
        holder = self._holder(snapshot)
        if holder == self.mac:
            return ()
        return (Change(Op.ATTENTION, "lease", holder, self.mac, Settles.WITHIN, LEASE_SECONDS),)

    def fix(self, snapshot: Snapshot, /) -> Impossible:
        """Say who has the lease, and which other address the MAC has instead."""
        holder = self._holder(snapshot)
        old = old_lease(self.router, snapshot, self.mac, self.address)
        remedy = "See whether the guest takes its address by DHCP from this router."
        if old is not None:
            remedy = (
                f"Renew the lease on {self.name} (`networkctl renew`, or a reboot), or wait until the old one"
                " ends; then run the command again."
            )
        return Impossible(
            Diagnostic(
                "LEASE_NOT_RESERVED_IP",
                f"the router has leased {self.address} to {holder or 'nobody'} instead of {self.mac}",
                self.name,
                source=self.source,
                evidence=(f"the router leased {old.address} to this MAC {old.until}",)
                if old is not None
                else (),
                remedy=remedy,
            )
        )


def old_lease(router: Router, snapshot: Snapshot, mac: str, address: str) -> Lease | None:
    """Return the lease of another address that a MAC still has, where it has none of the right one."""
    leases = router_table(router, snapshot).held_by(fold_mac(mac))
    current = [lease for lease in leases if not lease.is_over(snapshot.clock)]
    if any(lease.address == address for lease in current):
        return None
    return next(iter(current), None)
