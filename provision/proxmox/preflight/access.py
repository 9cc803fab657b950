"""Rules about rights: what this plan needs of the token, no more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from provision.contracts.change import Change, Op
from provision.contracts.query import Unknown
from provision.contracts.rule import Evidence, Finding, Rule, UnknownYet
from provision.inventory.models.hypervisor import Hypervisor
from provision.inventory.models.node import Node
from provision.inventory.placeholders import bootstrap_command
from provision.proxmox import names
from provision.proxmox.preflight.site import api_facts, managed_vms_or_changed
from provision.proxmox.privileges import CONFIG, USER
from provision.proxmox.queries import Rights
from provision.proxmox.resources.image import ImageFile
from provision.proxmox.resources.mapping import PciMapping
from provision.proxmox.resources.vm import Vm
from provision.proxmox.resources.vm_lifecycle import VmAbsent, VmMarker, VmPower
from provision.proxmox.roles.pci_mapping import used
from provision.values.diagnostics import Diagnostic

KEYS = {
    "cores": "CPU",
    "sockets": "CPU",
    "cpu": "CPU",
    "numa": "CPU",
    "memory": "Memory",
    "balloon": "Memory",
    "machine": "HWType",
    "hostpci": "HWType",
    "net": "Network",
    "scsi": "Disk",
    "efidisk": "Disk",
    "tpmstate": "Disk",
}
"""Privilege `VM.Config.*` by key; all others are options (qemu-server, check_vm_modify_config_perm)."""
Need = tuple[str, ...]
"""A path and privileges of which one is enough."""


def missing(evidence: Evidence) -> list[Finding]:
    """Refuse a token that lacks what this plan needs: its lists are empty instead of refused."""
    found: list[Finding] = []
    for hypervisor, nodes in managed_vms_or_changed(evidence):
        rights = api_facts(evidence, hypervisor).rights
        if isinstance(rights, Unknown):
            if nodes:
                found.append(UnknownYet(f"rights on {hypervisor.name}: {rights.reason}", hypervisor.name))
            continue
        needs = dict.fromkeys((*_to_see(evidence, hypervisor, nodes), *_to_change(evidence, hypervisor)))
        lacking = [(path, any_of[0]) for path, *any_of in needs if not _may_any(rights, path, any_of)]
        if downloads(evidence, hypervisor) and not _may_download(rights, hypervisor):
            lacking.append((f"/nodes/{hypervisor.node_name}", "Sys.AccessNetwork"))
        if lacking:
            found.append(_diagnostic(evidence, hypervisor, lacking))
    return found


def _may_any(rights: Rights, path: str, privileges: Sequence[str]) -> bool:
    return any(rights.may(path, each) for each in privileges)


def _to_see(evidence: Evidence, hypervisor: Hypervisor, nodes: tuple[Node, ...]) -> Iterator[Need]:
    """Yield what it takes to see what is there: without it, lists are empty."""
    for node in nodes:
        if node.vmid is not None:
            yield f"/vms/{node.vmid}", "VM.Audit"
    if any(node.image for node in nodes):
        storage = f"/storage/{hypervisor.storage.images}"
        yield storage, "Datastore.Audit", "Datastore.AllocateTemplate", "Datastore.AllocateSpace"
    if used(evidence.inventory, hypervisor.name):
        yield "/mapping/pci", "Mapping.Audit", "Mapping.Use", "Mapping.Modify"


def _to_change(evidence: Evidence, hypervisor: Hypervisor) -> Iterator[Need]:
    """Yield what the plan's changes take."""
    for each in evidence.of_system(names.api(hypervisor.name)):
        if not evidence.changes(each):
            continue
        if isinstance(each, Vm):
            yield from _vm_needs(each, evidence.changes(each))
        elif isinstance(each, VmPower):
            yield f"/vms/{each.vmid}", "VM.PowerMgmt"
        elif isinstance(each, VmAbsent):
            yield f"/vms/{each.vmid}", "VM.Allocate"
            yield f"/vms/{each.vmid}", "VM.PowerMgmt"
        elif isinstance(each, VmMarker):
            yield f"/vms/{each.vmid}", "VM.Config.Options"
            yield f"/vms/{each.vmid}", "VM.Config.Cloudinit", "VM.Config.Network"
        elif isinstance(each, PciMapping):
            yield "/mapping/pci", "Mapping.Modify"
        elif isinstance(each, ImageFile) and not each.absent:
            yield f"/storage/{each.storage}", "Datastore.AllocateTemplate"


def _vm_needs(vm: Vm, changes: Sequence[Change]) -> Iterator[Need]:
    """Yield what a creation takes, or what the changed keys take."""
    path = f"/vms/{vm.vmid}"
    created = any(each.path == "vm" for each in changes)
    keys = {each.path.partition(".")[0].rstrip("0123456789") for each in changes}
    if created:
        yield path, "VM.Allocate"
    if any(each.op is Op.REPLACE for each in changes):
        yield path, "VM.PowerMgmt"
    for privilege in CONFIG if created else sorted({KEYS.get(key, "Options") for key in keys}):
        yield path, f"VM.Config.{privilege}"
    if created or keys & {"scsi", "efidisk", "tpmstate"}:
        for storage in dict.fromkeys(each.storage for each in vm.drives):
            yield f"/storage/{storage}", "Datastore.AllocateSpace"
    if created or "net" in keys:
        for nic in vm.nics:
            yield f"/sdn/zones/localnetwork/{nic.bridge}", "SDN.Use"
    if created or "hostpci" in keys:
        for card in vm.passed:
            yield f"/mapping/pci/{card.mapping}", "Mapping.Use"


def downloads(evidence: Evidence, hypervisor: Hypervisor) -> bool:
    """Whether an image would be downloaded to a hypervisor."""
    return any(
        isinstance(resource, ImageFile) and not resource.absent and bool(evidence.changes(resource))
        for resource in evidence.of_system(names.api(hypervisor.name))
    )


def _may_download(rights: Rights, hypervisor: Hypervisor) -> bool:
    both = rights.may("/", "Sys.Audit") and rights.may("/", "Sys.Modify")
    return both or rights.may(f"/nodes/{hypervisor.node_name}", "Sys.AccessNetwork")


def _diagnostic(evidence: Evidence, hypervisor: Hypervisor, lacking: list[tuple[str, str]]) -> Diagnostic:
    by_path: dict[str, list[str]] = {}
    for path, privilege in lacking:
        by_path.setdefault(path, []).append(privilege)
    token = hypervisor.api.token_id or "the token"
    return Diagnostic(
        "PVE_PRIV_MISSING",
        f"{token} lacks {len(lacking)} privileges on {hypervisor.name} that this plan needs",
        hypervisor.name,
        evidence=tuple(f"{path}: {', '.join(privileges)}" for path, privileges in by_path.items()),
        source=evidence.inventory.source(("hypervisors", hypervisor.name, "api")),
        untouched="Nothing was changed.",
        remedy=_remedy(hypervisor),
    )


def _remedy(hypervisor: Hypervisor) -> str:
    user, _, token = (hypervisor.api.token_id or "").partition("!")
    if user == USER:
        command, _ = bootstrap_command(hypervisor.name, hypervisor, token)
        return f"{command} gives the token and its user their role again"
    return (
        f"on the host: pveum acl modify PATH --roles ROLE --tokens '{user}!{token}', for each path;"
        f" a privilege-separated token needs the same for its user: --users {user}"
    )


RULES = (
    Rule(
        ("PVE_PRIV_MISSING",),
        "the API token lacks a privilege that this plan needs",
        "`provision bootstrap root@HOST --name TOKEN --out FILE`, or"
        " `pveum acl modify PATH --tokens TOKEN --roles ROLE`",
        missing,
        removal=True,
        of_resources=True,
    ),
)
