"""Checks before anything is touched: rules with stable codes over inventory, answers and desired states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from provision.inventory import Inventory
from provision.preflight import access, cards, hosts, network, vms
from provision.preflight.model import CannotTellYet, Rule, Site
from provision.resources.contracts import Resource, Snapshot
from provision.resources.host.pci import IommuState, PciFunctions
from provision.resources.host.query_system import Bridges
from provision.resources.proxmox.queries import Mappings, Permissions, VmConfig, VmList
from provision.resources.proxmox.storage_cfg import STORAGES
from provision.roles import names
from provision.roles.pci_mapping import used
from provision.values.diagnostics import Diagnostic, Severity

RULES: tuple[Rule, ...] = (*access.RULES, *vms.RULES, *hosts.RULES, *cards.RULES, *network.RULES)
"""All rules, in the order of the reference."""


def check(
    inventory: Inventory, snapshots: Mapping[str, Snapshot], resources: Sequence[Resource]
) -> list[Diagnostic]:
    """Run all rules and return what they found; a rule that lacks evidence answers a note.

    Args:
        inventory: what was declared.
        snapshots: answers by system; those of silent systems are missing.
        resources: desired states of the run, or of a step that was reached.
    """
    site = Site(inventory, snapshots, resources)
    found: list[Diagnostic] = []
    for rule in RULES:
        for each in rule.check(site):
            if isinstance(each, CannotTellYet):
                summary = f"cannot tell yet: {each.reason}"
                found.append(Diagnostic(rule.codes[0], summary, each.subject, Severity.NOTE))
            elif rule.severity is not Severity.ERROR and each.severity is Severity.ERROR:
                found.append(replace(each, severity=rule.severity))
            else:
                found.append(each)
    return list(dict.fromkeys(found))


def evidence(inventory: Inventory) -> dict[str, tuple[Any, ...]]:
    """Return the questions that rules look at beyond those of roles, by system."""
    found: dict[str, tuple[Any, ...]] = {}
    for hypervisor in inventory.hypervisors.values():
        nodes = names.nodes_of(inventory, hypervisor.name)
        host: list[Any] = [hosts.MACHINE]
        if nodes:
            host += [hosts.MEMINFO, hosts.ONLINE, STORAGES, Bridges(), cards.VM_FILES]
            vms_asked = tuple(VmConfig(node.vmid) for node in nodes if node.vmid is not None)
            found[names.api(hypervisor.name)] = (Permissions(), VmList(), *vms_asked)
        if used(inventory, hypervisor.name):
            host += [PciFunctions(), IommuState(), cards.CMDLINE]
            found[names.api(hypervisor.name)] += (Mappings(),)
        found[names.ssh(hypervisor.name)] = tuple(host)
    for node in inventory.nodes.values():
        found[names.ssh(node.name)] = (hosts.MACHINE,)
    return found


__all__ = ["RULES", "CannotTellYet", "Rule", "Site", "check", "evidence"]
