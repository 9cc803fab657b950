"""The rule about cards that another VM has: whatever spelling its configuration uses for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from provision.contracts.query import Unknown
from provision.contracts.rule import Evidence, Finding, Rule, UnknownYet
from provision.inventory.models.hypervisor import Hypervisor
from provision.inventory.models.node import Node
from provision.proxmox import formats, names
from provision.proxmox.api_facts import ApiFacts
from provision.proxmox.host_facts import VmDevice
from provision.proxmox.pci_entries import Functions, PciEntries, held_now
from provision.proxmox.preflight.site import api_facts, host_facts, managed_vms
from provision.proxmox.resources.vm import Vm
from provision.proxmox.roles.pci_mapping import used
from provision.values.diagnostics import Diagnostic


def pci_entries(evidence: Evidence, hypervisor: Hypervisor) -> PciEntries:
    """Return what the entries of a hypervisor's VMs mean, as far as it is known."""
    functions = host_facts(evidence, hypervisor).functions
    mappings = api_facts(evidence, hypervisor).mappings
    return PciEntries(
        hypervisor.node_name,
        frozenset() if isinstance(functions, Unknown) else frozenset(each.address for each in functions),
        () if isinstance(mappings, Unknown) else mappings,
    )


def claimed(evidence: Evidence) -> list[Finding]:
    """Refuse a card that another running VM has, or will have after its next start."""
    findings: list[Finding] = []
    for hypervisor, nodes in managed_vms(evidence):
        cards = used(evidence.inventory, hypervisor.name)
        devices = _devices(evidence, hypervisor)
        if not cards or not (devices or hypervisor.card_pools):
            continue
        vms = api_facts(evidence, hypervisor).vms
        if isinstance(vms, Unknown):
            reason = f"which VMs of {hypervisor.name} run with a card: {vms.reason}"
            findings.append(UnknownYet(reason, hypervisor.name))
            continue
        running = {each.vmid for each in vms if each.status not in {"", "stopped"}}
        entries = pci_entries(evidence, hypervisor)
        owners = {card: node for node in nodes for card in node.cards if card in cards}
        held: dict[int, Functions] = {}
        for vmid, theirs in devices.items():
            if vmid not in running:
                continue
            held[vmid] = _held(evidence, hypervisor, entries, vmid, theirs)
            for card, owner in owners.items():
                if owner.vmid != vmid and held[vmid] & _functions(hypervisor, entries, card):
                    findings.append(_claimed(evidence, hypervisor, entries, card, owner, theirs))
            findings += _unreadable(evidence, hypervisor, entries, nodes, theirs)
        off = {each.vmid for each in vms} - running
        for pool in hypervisor.card_pools:
            users = [node for node in nodes if pool in node.cards]
            findings += _exhausted(evidence, hypervisor, entries, pool, users, off, held)
    return findings


def _exhausted(
    evidence: Evidence,
    hypervisor: Hypervisor,
    entries: PciEntries,
    pool: str,
    users: Sequence[Node],
    off: AbstractSet[int],
    held: Mapping[int, Functions],
) -> Iterator[Diagnostic]:
    """Yield a problem if more VMs run, or shall run, with a card of a pool than it has free ones."""
    own = {node.vmid for node in users}
    cards = hypervisor.cards_of(pool)
    # A VM of another pool or of nobody's counts with all that it may hold.
    others = {
        card: vmid
        for vmid, functions in held.items()
        for card in cards
        if vmid not in own and functions & _functions(hypervisor, entries, card)
    }
    runs = [node for node in users if _runs(node, off)]
    if len(runs) <= len(cards) - len(others):
        return
    rows = [f"{node.name} (VM {node.vmid}) takes a card of it" for node in runs]
    yield Diagnostic(
        "GPU_POOL_EXHAUSTED",
        f"the pool {pool} of {hypervisor.name} has too few free cards: {len(cards) - len(others)} for"
        f" {len(runs)} VMs",
        hypervisor.name,
        evidence=(*rows, *(f"card {card} is in use by VM {vmid}" for card, vmid in others.items())),
        source=evidence.inventory.source(("hypervisors", hypervisor.name, "card_pools", pool)),
        untouched="Nothing was changed.",
        remedy="Add cards to the pool, or stop a VM that has one: `power: stopped`, or `qm stop VMID`.",
    )


def _runs(node: Node, off: AbstractSet[int]) -> bool:
    """Whether a VM has a card after this run: one that is not there yet is made, and started once."""
    return node.vmid not in off if node.power_state == "unmanaged" else node.power_state == "running"


def _devices(evidence: Evidence, hypervisor: Hypervisor) -> dict[int, list[VmDevice]]:
    """Return the PCI devices of the VMs of a hypervisor, by VM."""
    devices: dict[int, list[VmDevice]] = {}
    for device in host_facts(evidence, hypervisor).vm_devices:
        if device.node == hypervisor.node_name and device.key.startswith("hostpci"):
            devices.setdefault(device.vmid, []).append(device)
    return devices


def _held(
    evidence: Evidence,
    hypervisor: Hypervisor,
    entries: PciEntries,
    vmid: int,
    devices: Sequence[VmDevice],
) -> Functions:
    """Return the functions that a running VM has, and those that its pending values will take."""
    active = [device.value for device in devices if not device.pending]
    reserved = host_facts(evidence, hypervisor).reservations
    coming = (entries.may_take(device.value) for device in devices if device.pending)
    return held_now(entries, active, vmid, reserved).union(*coming)


def _functions(hypervisor: Hypervisor, entries: PciEntries, card: str) -> Functions:
    return entries.path(names.path(hypervisor.cards[card]))


def _claimed(
    evidence: Evidence,
    hypervisor: Hypervisor,
    entries: PciEntries,
    card: str,
    owner: Node,
    devices: Sequence[VmDevice],
) -> Diagnostic:
    functions = _functions(hypervisor, entries, card)
    rows = [device for device in devices if entries.may_take(device.value) & functions]
    vmid = rows[0].vmid
    keys = ",".join(dict.fromkeys(device.key for device in rows))
    if all(device.leaving for device in rows):
        remedy = f"Stop VM {vmid}: it keeps the card until then."
    else:
        remedy = f"Stop VM {vmid}, or take the card from it: `qm set {vmid} --delete {keys}`, then stop it"
    return Diagnostic(
        "GPU_CLAIMED_BY_OTHER_VM",
        f"card {card} is in use by VM {vmid}, which runs",
        owner.name,
        evidence=tuple(_row(entries, device) for device in rows),
        source=evidence.inventory.source(("nodes", owner.name, "gpus" if card in owner.gpus else "pci")),
        untouched="Nothing was changed.",
        remedy=remedy,
    )


def _row(entries: PciEntries, device: VmDevice) -> str:
    """Return an entry with what it means, where it does not say that itself."""
    choices = entries.choices(device.value)
    meaning = " or ".join(" and ".join(sorted(functions)) for functions in choices)
    state = " (after its next start)" if device.pending else ""
    names = f": {meaning}" if "mapping=" in device.value else ""
    return f"{device.vmid}.conf: {device.key}: {device.value}{names}{state}"


def _unreadable(
    evidence: Evidence,
    hypervisor: Hypervisor,
    entries: PciEntries,
    nodes: Sequence[Node],
    devices: Sequence[VmDevice],
) -> Iterator[UnknownYet]:
    """Yield the mappings of strangers whose cards are unknown because the mappings could not be listed."""
    mappings = api_facts(evidence, hypervisor).mappings
    own = {node.vmid for node in nodes}
    for device in devices:
        if isinstance(mappings, Unknown) and device.vmid not in own and not entries.choices(device.value):
            reason = f"which card VM {device.vmid} has by {device.value}: {mappings.reason}"
            yield UnknownYet(reason, hypervisor.name)


def raw_entries(evidence: Evidence) -> list[Finding]:
    """Refuse to change an entry that root made without a mapping: a token may neither set nor remove it."""
    findings: list[Finding] = []
    for vm in evidence.of_kind(Vm):
        if evidence.inventory.hypervisors[vm.system.removesuffix("/api")].api.root_password is not None:
            continue  # root's own ticket changes it
        state = ApiFacts(evidence.snapshot(vm.system)).vm(vm.vmid)
        for change in evidence.changes(vm):
            if state is None or not change.path.startswith("hostpci"):
                continue
            # By the entries themselves: a change may show words, such as that a removal is pending.
            entries = (state.config.get(change.path, ""), state.next_value(change.path))
            old = next((each for each in entries if each and not formats.parse(each).get("mapping")), "")
            if not old:
                continue
            findings.append(
                Diagnostic(
                    "PVE_AUTH_TOKEN_RAW_PCI",
                    f"{change.path} of {vm.name} passes a card without a mapping, and an API token may not"
                    " change that",
                    vm.name,
                    evidence=(f"{change.path}: {old}", f"wanted: {change.new or 'nothing'}"),
                    source=vm.source,
                    untouched="The VM was not changed.",
                    remedy=f"remove the entry on the host: `qm set {vm.vmid} --delete {change.path}`,"
                    " then run the command again; or declare `api.root_password`",
                )
            )
    return findings


def invalid_mappings(evidence: Evidence) -> list[Finding]:
    """Refuse a mapping of somebody else's that is gone, or that Proxmox VE finds wrong: no start would do."""
    findings: list[Finding] = []
    for vm in evidence.of_kind(Vm):
        state = ApiFacts(evidence.snapshot(vm.system)).vm(vm.vmid) if vm.passed else None
        problems = {mapping.name: mapping.problems for mapping in vm.pci.mappings if mapping.problems}
        known = {mapping.name for mapping in vm.pci.mappings}
        for key in state.config if state is not None else ():
            parts = formats.parse(state.next_value(key)) if key.startswith("hostpci") and state else {}
            name = parts.get("mapping", "")
            is_ours = bool(vm.mapping_prefix) and name.startswith(vm.mapping_prefix)
            if name and name not in known and not is_ours and _may_see(evidence, vm, name):
                findings.append(
                    Diagnostic(
                        "MAPPING_MISSING",
                        f"{vm.name} has a card by the mapping {name}, which is not there",
                        vm.name,
                        evidence=(f"{key}: {state.next_value(key) if state else ''}",),
                        source=vm.source,
                        untouched="The VM was not changed.",
                        remedy=f"make the mapping again, or take the entry away: `qm set {vm.vmid} --delete"
                        f" {key}` on the host",
                    )
                )
            if name in problems and not is_ours:  # ours are written anew
                findings.append(
                    Diagnostic(
                        "MAPPING_INVALID",
                        f"{vm.name} has a card by the mapping {name}, which no longer fits the host",
                        vm.name,
                        evidence=problems[name],
                        source=vm.source,
                        untouched="The VM was not changed.",
                        remedy=f"correct the mapping, or give the card to ours: `qm set {vm.vmid} --delete"
                        f" {key}` on the host",
                    )
                )
    return findings


def _may_see(evidence: Evidence, vm: Vm, mapping: str) -> bool:
    """Whether a mapping would be listed if it were there: a token sees only those that it has rights on."""
    rights = ApiFacts(evidence.snapshot(vm.system)).rights
    privileges = ("Mapping.Use", "Mapping.Modify", "Mapping.Audit")
    if isinstance(rights, Unknown) or not vm.pci.has_mappings:
        return False
    return any(rights.may(f"/mapping/pci/{mapping}", each) for each in privileges)


RULES = (
    Rule(
        ("PVE_AUTH_TOKEN_RAW_PCI",),
        "a VM names its card without a mapping, and an API token may not change such an entry",
        "`qm set VMID --delete hostpciN` on the host",
        raw_entries,
        of_resources=True,
    ),
    Rule(
        ("MAPPING_INVALID", "MAPPING_MISSING"),
        "a VM uses a mapping that provision did not make, and that no longer fits the hardware or is gone",
        "correct or make the mapping, or `qm set VMID --delete hostpciN` on the host",
        invalid_mappings,
        of_resources=True,
    ),
    Rule(
        ("GPU_CLAIMED_BY_OTHER_VM", "GPU_POOL_EXHAUSTED"),
        "another running VM has the card, or gets it at its next start; or a pool has too few free cards",
        "stop that VM, or take the card from it: `qm set VMID --delete hostpciN`; add cards to the pool",
        claimed,
    ),
)
