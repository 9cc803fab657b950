"""Rules about storages and pools that this plan needs: they exist, are enabled here, and take the content.

The node's own list says it (`enabled` is 0 for a storage that is disabled or bound to other nodes). A token
sees only storages that it may use, so one that is not in the list is looked up in the host's storage.cfg.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from provision.contracts.query import Unknown
from provision.contracts.rule import Evidence, Finding, Rule, UnknownYet
from provision.hosts import names as host_names
from provision.inventory.models.hypervisor import Hypervisor
from provision.inventory.models.node import Node
from provision.proxmox import names
from provision.proxmox.preflight.site import (
    api_facts,
    host_facts,
    managed_vms,
    managed_vms_or_changed,
    own_vm,
)
from provision.proxmox.resources.image import ImageFile, SentImage
from provision.proxmox.resources.vm import Vm
from provision.values.diagnostics import Diagnostic, Severity, Source
from provision.values.sizes import format_size

CODES = {
    "snippets": "STORAGE_NO_SNIPPETS",
    "import": "STORAGE_NO_IMPORT",
    "iso": "STORAGE_NO_ISO",
    "images": "STORAGE_NO_IMAGES",
}
"""Code of a storage that does not take a content type."""


@dataclass(frozen=True, slots=True)
class StorageState:
    """What is known of a storage: what it takes, and why it cannot be used on this node, if so.

    Args:
        content: types of content that it takes.
        kind: its type; empty where that is unknown.
        hindrance: why it cannot be used.
        remedy: what helps against that.
    """

    content: frozenset[str]
    kind: str = ""
    hindrance: str = ""
    remedy: str = ""


_DISKS_ONLY = frozenset({"images"})
_FILES = frozenset({"import", "iso", "snippets"})
_TAKES = {
    **dict.fromkeys(("lvm", "lvmthin", "zfspool", "zfs", "rbd"), _DISKS_ONLY),
    "cephfs": _FILES,
    "pbs": frozenset[str](),
}
"""Content that a type of storage can be set to take; other types take any (pve-storage, `plugindata`)."""
_OTHER = "write another storage; list them on the host: `pvesm status`"
_HINDRANCES = {
    "esxi": "shows the VMs of an ESXi host and takes no files",
    **dict.fromkeys(("iscsi", "iscsidirect"), "has the volumes of its target, and none can be made in it"),
}
"""Types whose content (`import`, `images`) is there already: nothing new can be put into them."""


def storages(evidence: Evidence) -> list[Finding]:
    """Refuse storages that are not there, not enabled on the node, or lack the content that is needed now."""
    findings: list[Finding] = []
    for hypervisor, nodes in managed_vms_or_changed(evidence):
        for (storage, content), source in dict(_needs(evidence, hypervisor, nodes)).items():
            state = storage_state(evidence, hypervisor, storage)
            if isinstance(state, Unknown):
                reason = f"storage {storage} of {hypervisor.name}: {state.reason}"
                findings.append(UnknownYet(reason, hypervisor.name))
            else:
                findings += _problems(hypervisor, storage, content, state, source)
    return findings


Needed = tuple[tuple[str, str], Source | None]
"""Storage and content type, and where the inventory asks for it."""


def _needs(evidence: Evidence, hypervisor: Hypervisor, nodes: tuple[Node, ...]) -> Iterator[Needed]:
    inventory = evidence.inventory
    place = inventory.source(("hypervisors", hypervisor.name, "storage"))
    by_name = {node.name: node for node in nodes}
    for resource in evidence.of_system(names.api(hypervisor.name)):
        if isinstance(resource, Vm) and resource.makes_disks and resource.name in by_name:
            node = by_name[resource.name]
            if node.image is not None and own_vm(evidence, hypervisor, node) is None:
                yield (hypervisor.storage.snippets, "snippets"), place
            for storage in resource.storages:
                own = storage != hypervisor.storage.disks
                yield (storage, "images"), inventory.source(("nodes", node.name)) if own else place
        elif isinstance(resource, ImageFile) and resource.downloads and not resource.absent:
            yield (resource.storage, resource.content), place
    for resource in evidence.of_system(host_names.ssh(hypervisor.name)):
        if isinstance(resource, SentImage):
            yield (resource.storage, resource.content), place


def storage_state(evidence: Evidence, hypervisor: Hypervisor, storage: str) -> StorageState | Unknown | None:
    """Return what is known of a storage; None for one that does not exist."""
    listed = api_facts(evidence, hypervisor).storages
    entries = {} if isinstance(listed, Unknown) else {entry.name: entry for entry in listed}
    configured = host_facts(evidence, hypervisor).storages
    section = None if isinstance(configured, Unknown) else configured.get(storage)
    entry = entries.get(storage)
    if entry is None:
        if isinstance(configured, Unknown) or not configured:
            return _unlisted(evidence, hypervisor, storage, listed)
        return None if section is None else _of_section(hypervisor, storage, section)
    if not entry.enabled:
        reason = _of_section(hypervisor, storage, section or {})
        hindrance = reason.hindrance or f"is not enabled on {hypervisor.node_name}"
        return StorageState(entry.content, entry.kind, hindrance, reason.remedy or _enable(storage))
    if entry.kind in _HINDRANCES:
        return StorageState(entry.content, entry.kind, _HINDRANCES[entry.kind], _OTHER)
    if not entry.active:
        return StorageState(
            entry.content,
            entry.kind,
            f"is not active on {hypervisor.node_name}: it cannot be reached",
            f"see why on the host: `pvesm status --storage {storage}`",
        )
    return StorageState(entry.content, entry.kind)


def _unlisted(evidence: Evidence, hypervisor: Hypervisor, storage: str, listed: object) -> Unknown | None:
    """Return None for a storage that a token would see if it were there."""
    rights = api_facts(evidence, hypervisor).rights
    if isinstance(listed, Unknown):
        return listed
    path = f"/storage/{storage}"
    if not isinstance(rights, Unknown) and (
        rights.may(path, "Datastore.Audit") or rights.may(path, "Datastore.AllocateSpace")
    ):
        return None
    return Unknown("the token may not see it, and /etc/pve/storage.cfg was not read")


def _of_section(hypervisor: Hypervisor, storage: str, section: Mapping[str, str]) -> StorageState:
    """Read a section of storage.cfg: `disable` stands alone, `nodes` is a list."""
    content = frozenset(word.strip() for word in section.get("content", "").split(",")) - {""}
    kind = section.get("type", "")
    if "disable" in section and section["disable"] not in {"0", "no", "off", "false"}:
        return StorageState(content, kind, "is disabled", _enable(storage))
    nodes = [word.strip() for word in section.get("nodes", "").split(",") if word.strip()]
    if kind in _HINDRANCES:
        return StorageState(content, kind, _HINDRANCES[kind], _OTHER)
    if nodes and hypervisor.node_name not in nodes:
        return StorageState(
            content,
            kind,
            f"is only on {', '.join(nodes)}, not on {hypervisor.node_name}",
            f"write another storage, or extend it: `pvesm set {storage} --nodes"
            f" {','.join((*nodes, hypervisor.node_name))}`",
        )
    return StorageState(content, kind)


def _enable(storage: str) -> str:
    return f"write another storage, or enable it on the host: `pvesm set {storage} --disable 0`"


def _problems(
    hypervisor: Hypervisor, storage: str, content: str, state: StorageState | None, source: Source | None
) -> Iterator[Diagnostic]:
    name = hypervisor.name
    untouched = "Nothing was changed."
    if state is None:
        yield Diagnostic(
            "STORAGE_MISSING",
            f"{name} has no storage {storage}",
            name,
            source=source,
            untouched=untouched,
            remedy="write one of its storages; list them on the host: `pvesm status`",
        )
        return
    if state.hindrance:
        yield Diagnostic(
            "STORAGE_UNAVAILABLE",
            f"storage {storage} of {name} {state.hindrance}",
            name,
            source=source,
            untouched=untouched,
            remedy=state.remedy,
        )
    if content not in state.content:
        have = ",".join(sorted(state.content))
        joined = f"{have},{content}" if have else content
        can = content in _TAKES.get(state.kind, CODES) and state.kind not in _HINDRANCES
        allow = f"allow it on the host: `pvesm set {storage} --content {joined}`, or write another one"
        yield Diagnostic(
            CODES[content],
            f"storage {storage} of {name} {'does not' if can else 'cannot'} take content of type {content}",
            name,
            evidence=(
                *((f"type: {state.kind}",) if not can else ()),
                *((f"content: {have}",) if have else ()),
            ),
            source=source,
            untouched=untouched,
            remedy=allow if can else _OTHER,
        )


def full(evidence: Evidence) -> list[Finding]:
    """Warn about a storage with less free space than the new disks may come to hold."""
    findings: list[Finding] = []
    for hypervisor, nodes in managed_vms_or_changed(evidence):
        listed = api_facts(evidence, hypervisor).storages
        sizes: dict[str, dict[str, int]] = {}
        born = {node.name for node in nodes if own_vm(evidence, hypervisor, node) is None}
        for resource in evidence.of_system(names.api(hypervisor.name)):
            if isinstance(resource, Vm) and resource.makes_disks and resource.name in born:
                for drive in resource.drives:
                    by_vm = sizes.setdefault(drive.storage, {})
                    by_vm[resource.name] = by_vm.get(resource.name, 0) + drive.size
        for entry in () if isinstance(listed, Unknown) else listed:
            needed = sizes.get(entry.name, {})
            need = sum(needed.values())
            if entry.available is None or not entry.active or need <= entry.available:
                continue
            findings.append(
                Diagnostic(
                    "STORAGE_FULL",
                    f"storage {entry.name} of {hypervisor.name} has {format_size(entry.available)} free,"
                    f" but new disks can grow to {format_size(need)}",
                    hypervisor.name,
                    evidence=tuple(f"{name}: {format_size(size)}" for name, size in needed.items()),
                    source=evidence.inventory.source(("hypervisors", hypervisor.name, "storage")),
                    severity=Severity.WARNING,
                    remedy="Write another storage or smaller disks, or free space: `pvesm status`",
                )
            )
    return findings


def pools(evidence: Evidence) -> list[Finding]:
    """Refuse a pool that does not exist: PVE would refuse the VM's creation."""
    findings: list[Finding] = []
    for hypervisor, nodes in managed_vms(evidence):
        born = [node for node in nodes if node.pool and own_vm(evidence, hypervisor, node) is None]
        known = host_facts(evidence, hypervisor).pools
        for node in born:
            if isinstance(known, Unknown):
                findings.append(UnknownYet(f"pool {node.pool} of {node.name}: {known.reason}", node.name))
            elif node.pool not in known:
                findings.append(
                    Diagnostic(
                        "POOL_MISSING",
                        f"{node.name} belongs to pool {node.pool}, which {hypervisor.name} does not have",
                        node.name,
                        evidence=(f"pools: {', '.join(known)}",) if known else (),
                        source=evidence.inventory.source(("nodes", node.name, "pool")),
                        untouched="Nothing was changed.",
                        remedy=f"create it on the host: `pveum pool add {node.pool}`, or write another pool",
                    )
                )
    return findings


RULES = (
    Rule(
        (
            "STORAGE_NO_SNIPPETS",
            "STORAGE_NO_IMPORT",
            "STORAGE_NO_ISO",
            "STORAGE_NO_IMAGES",
            "STORAGE_MISSING",
            "STORAGE_UNAVAILABLE",
        ),
        "a storage that this plan uses does not exist, is disabled or bound to other nodes, or lacks the"
        " content type for vendor snippets, cloud images, installation media or disks",
        "`pvesm status` lists the storages; `pvesm set STORAGE --content ...` or `--disable 0`",
        storages,
        of_resources=True,
    ),
    Rule(
        ("STORAGE_FULL",),
        "a storage has less free space than the disks of new VMs can grow to",
        "name another storage, or free space: `pvesm status`",
        full,
        Severity.WARNING,
        of_resources=True,
    ),
    Rule(
        ("POOL_MISSING",),
        "a new VM belongs to a pool that does not exist",
        "`pveum pool add POOL`",
        pools,
        of_resources=True,
    ),
)
