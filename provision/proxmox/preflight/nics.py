"""Rules about network cards that VMs take: never the host's own way out, nor its cluster's or ours to it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from provision.contracts.query import Unknown
from provision.contracts.rule import Evidence, Finding, Rule, UnknownYet
from provision.hosts.queries.shell import ShellResult
from provision.inventory.models.hypervisor import Hypervisor
from provision.proxmox import names
from provision.proxmox.host_drivers import passed_functions
from provision.proxmox.preflight.site import host_facts, managed_vms
from provision.proxmox.reboot_facts import REBOOT_FACTS, RebootFacts, reboot_facts
from provision.values.diagnostics import Diagnostic

_COUNTED = re.compile(r"eth\d+")
"""Names that the kernel counts: one card less at boot gives the next one another name."""


def nic_of_host(evidence: Evidence) -> list[Finding]:
    """Refuse a network card that the host uses: it would lose its address, a bridge or its cluster."""
    findings: list[Finding] = []
    for hypervisor, _ in managed_vms(evidence):
        facts = host_facts(evidence, hypervisor)
        aliases = names.taken_nics(evidence.inventory, hypervisor)
        if not aliases:
            continue
        functions, nics = facts.functions, facts.nics
        if isinstance(facts.snapshot, Unknown) or isinstance(functions, Unknown):
            findings.append(UnknownYet(f"what {hypervisor.name} uses its network cards for", hypervisor.name))
            continue
        boot = _next_boot(facts.answer_as(REBOOT_FACTS, ShellResult))
        for alias in aliases:
            passed = [each.address for each in passed_functions(hypervisor.cards[alias], functions)]
            if isinstance(nics, Unknown) or boot is None:
                rows: tuple[str, ...] = ("its network was not read",)
            else:
                rows = nics.uses(passed, boot.ports)
            if rows:
                findings.append(_of_host(evidence, hypervisor, alias, rows))
            elif not isinstance(nics, Unknown) and boot is not None:
                findings += _renamed(evidence, hypervisor, alias, nics.interfaces(passed), boot)
    return findings


def _next_boot(answer: ShellResult | Unknown) -> RebootFacts | None:
    return None if isinstance(answer, Unknown) else reboot_facts(answer.stdout.decode(errors="replace"))


def _of_host(evidence: Evidence, hypervisor: Hypervisor, alias: str, rows: Sequence[str]) -> Diagnostic:
    return Diagnostic(
        "NIC_OF_HOST",
        f"{hypervisor.name} itself uses the network card {alias}, which a VM would take",
        hypervisor.name,
        evidence=tuple(rows),
        source=evidence.inventory.source(("hypervisors", hypervisor.name, "cards", alias)),
        untouched="Nothing was changed.",
        remedy="Pass another port (`functions`) or a virtual function of the card, or take it out of"
        " /etc/network/interfaces of the host first: `ifreload -a`",
    )


def _renamed(
    evidence: Evidence, hypervisor: Hypervisor, alias: str, taken: Sequence[str], boot: RebootFacts
) -> list[Finding]:
    ports = _counted_ports(boot.ports, boot.renamed)
    if not ports or not any(map(_COUNTED.fullmatch, taken)):
        return []
    return [
        Diagnostic(
            "NIC_SHIFTS_NAMES",
            f"without {', '.join(taken)} the kernel numbers the other network cards of {hypervisor.name}"
            " differently at its next boot",
            hypervisor.name,
            evidence=ports,
            source=evidence.inventory.source(("hypervisors", hypervisor.name, "cards", alias)),
            untouched="Nothing was changed.",
            remedy="Pin the names first: `pve-network-interface-pinning generate` (Proxmox VE 9), or a file"
            " /etc/systemd/network/10-NAME.link with the MAC address of each port.",
        )
    ]


def _counted_ports(ports: Mapping[str, Sequence[str]], pinned: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        f"{port} is a port of {bridge}, and no .link file keeps its name"
        for bridge, of_bridge in ports.items()
        for port in of_bridge
        if _COUNTED.fullmatch(port.partition(".")[0]) and port.partition(".")[0] not in pinned
    )


RULES = (
    Rule(
        ("NIC_OF_HOST", "NIC_SHIFTS_NAMES"),
        "a network card that a VM takes carries addresses, routes, bridges, bonds or corosync links of the"
        " host, or has virtual functions, which it would take along; or names like `eth1` would change",
        "pass another port or a virtual function; pin names with `pve-network-interface-pinning generate`",
        nic_of_host,
    ),
)
