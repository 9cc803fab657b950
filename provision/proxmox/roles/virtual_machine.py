"""A node's VM: made with a first host key of ours, started, and kept as declared.

A new VM's first key travels in a vendor snippet on the hypervisor; the role `first_contact` replaces it and
takes the snippet away. The VM's marker names every key that the guest may show: what was cut off goes on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from provision.contracts import common_effects
from provision.contracts.effect import Effect
from provision.contracts.query import Unknown
from provision.contracts.resource import Resource
from provision.contracts.role import Context, Need, Role
from provision.hosts import names as host_names
from provision.hosts.facts import HostFacts
from provision.hosts.public_keys import login_keys
from provision.hosts.queries.file import FileState
from provision.hosts.resources.command import Command
from provision.hosts.resources.file import File
from provision.hosts.resources.pci import PciFunctions
from provision.inventory import Inventory, Subject
from provision.inventory.models.hypervisor import Hypervisor
from provision.inventory.models.node import Node
from provision.proxmox import formats, macs, names, pools, snippets, vm_disks
from provision.proxmox.host_drivers import companions
from provision.proxmox.host_facts import STORAGES
from provision.proxmox.marker import TAG, Marker, noted_tags
from provision.proxmox.pci_entries import PciEntries
from provision.proxmox.queries import Mappings, Permissions, VmConfig, VmEntry, VmList, VmState, vm_answer
from provision.proxmox.resources.guest import SnippetGone, vendor_data
from provision.proxmox.resources.vm import Vm
from provision.proxmox.resources.vm_lifecycle import VmAbsent, VmPower, owes_start, rebuilds
from provision.proxmox.resources.vm_owner import removal_of, taken
from provision.proxmox.resources.vm_parts import CloudInit, Drive, Efi, Nic, Passed, Plugged, Tpm
from provision.proxmox.roles import image as image_role
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")
"""A node's name in a marker, which anybody may have edited, before it is part of a path."""


def declared(inventory: Inventory, subject: Subject) -> bool:
    """Whether the node is a VM that we manage."""
    node = inventory.nodes.get(subject.name) if subject.kind == "node" else None
    return node is not None and node.is_virtual and node.manage


def questions(inventory: Inventory, subject: Subject) -> Mapping[str, tuple[Any, ...]]:
    """Ask for the VM, what else is on the hypervisor, and whether the snippet lies there."""
    node, hypervisor = pair(inventory, subject)
    cards = (Mappings(),) if node.cards else ()
    functions: tuple[Any, ...] = (PciFunctions(),) if node.cards else ()
    if node.pool:
        functions += (pools.membership(inventory, node),)
    return {
        names.api(hypervisor.name): (Permissions(), VmList(), VmConfig(names.vmid(inventory, node)), *cards),
        host_names.ssh(hypervisor.name): (*snippets.questions(inventory, hypervisor, node), *functions),
    }


def resources(context: Context) -> tuple[Resource, ...]:
    """Return the VM, with its snippet before it is made, and its power."""
    inventory = context.inventory
    node, hypervisor = pair(inventory, context.subject)
    answer = vm_answer(context.seen(names.api(hypervisor.name)), names.vmid(inventory, node))
    left = _left_by_creation(context, node, hypervisor, answer)
    state = answer if isinstance(answer, VmState) and not left else None
    anew = state is None or rebuilds(state)
    vm = replace(_vm(context, node, hypervisor, state), reclaims=bool(left))
    if isinstance(answer, Unknown) or vm.foreign(answer) is not None:
        return (vm,)  # it says what is wrong; nothing else may be done before that is mended
    desired: list[Resource] = list(left)
    if anew and vm.cloud_init is not None:
        first = context.generated.host_key(f"first:{node.name}")
        final = context.generated.host_key(f"final:{node.name}")
        keys = replace(vm.marker, host_key=final.fingerprint, first_key=first.fingerprint)
        vm = replace(vm, marker=keys)
        host = host_names.ssh(hypervisor.name)
        path = snippets.path(inventory, hypervisor, node, context.seen(host))
        desired.append(
            File(
                host,
                path,
                vendor_data(first, inventory.name, node.name, vm.vmid),
                mode="0600",
                secret=True,
                source=vm.source,
            )
        )
    desired.append(vm)
    if node.pool and not anew:  # a new VM is created in its pool
        desired.append(pools.pool_member(inventory, node, hypervisor))
    # A VM whose power is its owner's is started once: until its first boot has given it its own host key.
    unborn = (anew and vm.cloud_init is not None) or (state is not None and _first_key(state))
    # One that a power cycle of ours left off is started, too: nobody has switched it off by hand.
    if node.power_state != "unmanaged" or unborn or owes_start(state):
        power = "stopped" if node.power_state == "stopped" else "running"
        desired.append(replace(_power(context, node, hypervisor, power), reclaims=bool(left)))
    return tuple(desired)


def _left_by_creation(
    context: Context, node: Node, hypervisor: Hypervisor, answer: object
) -> tuple[Command, ...]:
    """Return the removal of what a dead creation of ours left, or nothing.

    It is ours if our login began it, and if the snippet that this node's creation begins with is still there:
    another inventory may use the same token and number.
    """
    inventory = context.inventory
    if not (isinstance(answer, VmState) and answer.is_abandoned):
        return ()
    snapshot = context.seen(host_names.ssh(hypervisor.name))
    snippet = FileState(snippets.path(inventory, hypervisor, node, snapshot))
    if node.image is not None and not (snippet in snapshot and snapshot[snippet].exists):
        return ()
    risk = Effect(common_effects.REPLACE, node.name)
    return (_unfinished_removed(inventory, hypervisor, answer.vmid, risk, ("nodes", node.name)),)


def _unfinished_removed(
    inventory: Inventory, hypervisor: Hypervisor, vmid: int, risk: Effect, where: tuple[str, ...]
) -> Command:
    path = f"/etc/pve/nodes/{hypervisor.node_name}/qemu-server/{vmid}.conf"
    return Command(
        host_names.ssh(hypervisor.name),
        f"remove VM {vmid}, whose creation was interrupted",
        removal_of(vmid),
        unless=f"! [ -e {path} ] || [ \"$(grep -v '^[[:space:]]*$' {path})\" != 'lock: create' ]",
        risks=(risk,),
        source=inventory.source(where),
    )


def orphan_owners(inventory: Inventory) -> Mapping[Subject, Mapping[str, tuple[Any, ...]]]:
    """Ask every hypervisor for its VMs, whether or not a node is declared there, and where snippets lie."""
    return {
        each: {
            names.api(each.name): (Permissions(), VmList()),
            host_names.ssh(each.name): (STORAGES, snippets.marked(inventory)),
        }
        for each in names.orphan_owners(inventory)
    }


def orphans(context: Context) -> tuple[Resource, ...]:
    """Return VMs that carry this inventory's marker for a node that it has no more, as absent.

    A copy that somebody made by hand carries the marker of a node that is still declared: it is theirs. So is
    the number of a node that is not managed. Until a VM was looked at, whose it is stays open.

    Raises:
        Permanent: the VMs cannot be listed, or one of them does not tell whose it is.
    """
    inventory = context.inventory
    hypervisor = inventory.hypervisors[context.subject.name]
    system = names.api(hypervisor.name)
    if system not in context.snapshots:
        return ()  # the engine tells who is silent
    snapshot = context.seen(system)
    kept = {row.vmid for row in inventory.nodes.values() if not row.manage}
    left: list[tuple[VmEntry, Marker]] = []
    entries = _list_vms(context, hypervisor)
    for row in entries:
        if TAG not in row.tags or row.vmid in kept:
            continue
        if VmConfig(row.vmid) not in snapshot:
            left.append((row, Marker(inventory.name, row.name)))
            continue
        what = f"cannot determine the owner of VM {row.vmid} on {hypervisor.name}"
        state = context.require(system, VmConfig(row.vmid), what, may_be_absent=True)
        marker = state.marker if isinstance(state, VmState) else None
        if marker is not None and _left(inventory, row, marker):
            left.append((row, Marker(inventory.name, marker.node)))
    removed = [row for entry, marker in left for row in _removed(context, hypervisor, entry, marker, left)]
    known = {row.key for row in removed}
    return (*removed, *(row for row in _left_files(context, hypervisor, entries) if row.key not in known))


def _left_files(context: Context, hypervisor: Hypervisor, vms: Sequence[VmEntry]) -> Iterator[Resource]:
    """Yield the snippets, each with a private key, of nodes that left before their VM was finished.

    An unfinished VM has nothing but its lock. Its snippet has its number.
    """
    inventory, host = context.inventory, host_names.ssh(hypervisor.name)
    if host not in context.snapshots:
        return  # the engine tells who is silent
    what = f"cannot list the snippets of {hypervisor.name}"
    files = context.require(host, snippets.marked(inventory), what)
    untagged = {row.vmid for row in vms if TAG not in row.tags} - {n.vmid for n in inventory.nodes.values()}
    api, source = names.api(hypervisor.name), inventory.source(("nodes",))
    for snippet in snippets.left(inventory, files):
        vmid, marker = snippet.vmid, Marker(inventory.name, snippet.node)
        if vmid in untagged and VmConfig(vmid) not in context.seen(api):  # asks for it
            yield VmAbsent(api, hypervisor.node_name, vmid, marker, source=source)
        state = vm_answer(context.seen(api), vmid) if vmid in untagged else None
        if isinstance(state, VmState) and state.is_abandoned:
            risk = Effect(common_effects.DELETE, snippet.node)
            yield _unfinished_removed(inventory, hypervisor, vmid, risk, ("nodes",))
        elif isinstance(state, VmState) and state.is_unfinished:
            raise Permanent(taken(vmid, marker, state, source))
        yield SnippetGone(host, snippet.path, source=source)


def _list_vms(context: Context, hypervisor: Hypervisor) -> tuple[VmEntry, ...]:
    """Return all VMs; an empty list says nothing where the token may not see them."""
    system, what = names.api(hypervisor.name), f"cannot list the VMs of {hypervisor.name}"
    entries: tuple[VmEntry, ...] = context.require(system, VmList(), what)
    if not entries and not context.require(system, Permissions(), what).may("/vms", "VM.Audit"):
        reason = "the token lacks VM.Audit on /vms, and a list without rights is empty"
        raise Permanent(Diagnostic("UNKNOWN", f"{what}: {reason}", hypervisor.name))
    return entries


def _left(inventory: Inventory, entry: VmEntry, marker: Marker) -> bool:
    """Whether a VM was made for a node that is declared no more, or has another number now."""
    if marker.inventory != inventory.name:
        return False
    node = inventory.nodes.get(marker.node)
    return node is None or (node.vmid != entry.vmid and entry.name == marker.node)


def _removed(
    context: Context,
    hypervisor: Hypervisor,
    entry: VmEntry,
    marker: Marker,
    left: Sequence[tuple[VmEntry, Marker]],
) -> Iterator[Resource]:
    """Yield a VM as absent, and with it the snippet that a run that died may have left."""
    inventory = context.inventory
    source = inventory.source(("nodes",))
    alone = entry.name == marker.node and sum(each.node == marker.node for _, each in left) == 1
    label = "" if alone else f"{entry.name} (VM {entry.vmid})"
    yield VmAbsent(
        names.api(hypervisor.name), hypervisor.node_name, entry.vmid, marker, source=source, label=label
    )
    host = context.seen(host_names.ssh(hypervisor.name))
    if marker.node not in inventory.nodes and STORAGES in host and _NAME.fullmatch(marker.node):
        path = snippets.path_of(inventory, hypervisor, marker.node, host)
        yield SnippetGone(host_names.ssh(hypervisor.name), path, source=source)


def _first_key(state: VmState) -> bool:
    return state.marker is not None and bool(state.marker.first_key)


def retired(context: Context) -> tuple[Resource, ...]:
    """Return the VM as absent, with what a run that died may have left on the hypervisor."""
    inventory = context.inventory
    node, hypervisor = pair(inventory, context.subject)
    path = snippets.path(inventory, hypervisor, node, context.seen(host_names.ssh(hypervisor.name)))
    source = inventory.source(("nodes", node.name))
    answer = vm_answer(context.seen(names.api(hypervisor.name)), names.vmid(inventory, node))
    return (
        *_left_by_creation(context, node, hypervisor, answer),
        VmAbsent(
            names.api(hypervisor.name),
            hypervisor.node_name,
            names.vmid(inventory, node),
            Marker(inventory.name, node.name),
            source=source,
        ),
        SnippetGone(host_names.ssh(hypervisor.name), path, source=source),
    )


def _power(context: Context, node: Node, hypervisor: Hypervisor, state: str) -> VmPower:
    inventory = context.inventory
    cards = [hypervisor.cards[card] for alias in node.cards for card in hypervisor.cards_of(alias)]
    functions = HostFacts(context.seen(host_names.ssh(hypervisor.name))).functions if cards else ()
    known = () if isinstance(functions, Unknown) else functions
    return VmPower(
        names.api(hypervisor.name),
        hypervisor.node_name,
        names.vmid(inventory, node),
        node.name,
        state,
        memory=node.memory or 0,
        passthrough=bool(node.cards),
        console=any(card.drives_console for card in cards),
        companions=tuple(function for card in cards for function in companions(card, known)),
        source=inventory.source(("nodes", node.name, "power")),
    )


# ---------------------------------------------------------------- the VM's parts


def pair(inventory: Inventory, subject: Subject) -> tuple[Node, Hypervisor]:
    """Return a VM's node and hypervisor."""
    node = inventory.nodes[subject.name]
    hypervisor = inventory.hypervisor_of(node)
    if hypervisor is None:
        raise ValueError(f"{node.name} is not a VM")
    return node, hypervisor


def _vm(context: Context, node: Node, hypervisor: Hypervisor, state: VmState | None) -> Vm:
    inventory = context.inventory
    own = state.marker_of(inventory.name, node.name) if state is not None else None
    drives = _drives(inventory, node, hypervisor, state)
    nics = _nics(inventory, node, hypervisor, state)
    fresh = Marker(inventory.name, node.name)
    efi = node.efi_disk
    disks = hypervisor.storage.disks
    pci = _pci_entries(context, hypervisor) if node.cards else PciEntries(hypervisor.node_name)
    return Vm(
        system=names.api(hypervisor.name),
        node=hypervisor.node_name,
        vmid=names.vmid(inventory, node),
        name=node.name,
        marker=replace(own if own is not None and not own.replace else fresh, tags=noted_tags(node.tags)),
        settings=_settings(node),
        nics=nics,
        drives=drives,
        passed=tuple(card for alias in node.cards for card in _passed(inventory, hypervisor, alias, pci)),
        pci=pci,
        plugged=tuple(
            Plugged("" if device.raw else names.mapping(inventory, alias), device.port or device.id)
            for alias in node.usb
            if (device := hypervisor.usb.get(alias)) is not None
        ),
        efi=Efi(efi.storage or disks, efi.pre_enrolled_keys) if efi is not None else None,
        tpm=Tpm(node.tpm.storage or disks, node.tpm.version) if node.tpm is not None else None,
        tags=tuple(each.lower() for each in node.tags),
        cloud_init=_cloud_init(inventory, node, hypervisor, state),
        medium=names.image_volume(inventory, hypervisor, node.iso) if node.iso is not None else "",
        images=tuple(
            image_role.file_of(inventory, hypervisor, image).download
            for image in (node.image, node.iso)
            if image is not None and (state is None or rebuilds(state))
        ),
        pool=node.pool or "",
        mapping_prefix=names.mapping_prefix(inventory),
        vm_name=node.managed_vm_name,
        makes_disks=_makes_disks(node, state, drives),
        connects=_connects(state, nics),
        source=inventory.source(("nodes", node.name)),
    )


def _passed(inventory: Inventory, hypervisor: Hypervisor, alias: str, pci: PciEntries) -> Iterator[Passed]:
    cards = hypervisor.cards_of(alias)
    if not cards:
        return
    card = hypervisor.cards[cards[0]]  # those of a pool are passed alike
    if card.raw:
        host = names.path(card)
        yield Passed("", pci.path(host), card.rom, host)
    for mapping, paths in names.mappings(inventory, hypervisor, alias).items():
        yield Passed(mapping, pci.path(";".join(paths)), card.rom)


def _nics(inventory: Inventory, node: Node, hypervisor: Hypervisor, state: VmState | None) -> tuple[Nic, ...]:
    return tuple(
        Nic(
            macs.of_node(inventory, node, index, state),
            nic.bridge or hypervisor.bridge,
            nic.model,
            nic.vlan,
            nic.mtu,
            nic.firewall,
        )
        for index, nic in enumerate(node.nics)
    )


def _makes_disks(node: Node, state: VmState | None, drives: Sequence[Drive]) -> bool:
    """Whether a disk is to be made."""
    if state is None or rebuilds(state):
        return True
    slots = [drive.slot for drive in drives]
    slots += ["efidisk0"] if node.efi_disk is not None else []
    slots += ["tpmstate0"] if node.tpm is not None else []
    return not all(map(state.next_value, slots))


def _connects(state: VmState | None, nics: Sequence[Nic]) -> bool:
    """Whether a network device is to be made, or to be connected to another bridge."""
    if state is None or rebuilds(state):
        return True
    present = (formats.normal(state.next_value(f"net{at}"), formats.NET) for at in range(len(nics)))
    return any(parts.get("bridge") != nic.bridge for parts, nic in zip(present, nics, strict=True))


def _pci_entries(context: Context, hypervisor: Hypervisor) -> PciEntries:
    """Return what `hostpciN` entries mean on a hypervisor, as far as it is known."""
    from provision.proxmox.api_facts import ApiFacts  # noqa: PLC0415 - slow, see the table of domains

    functions = HostFacts(context.seen(host_names.ssh(hypervisor.name))).functions
    mappings = ApiFacts(context.seen(names.api(hypervisor.name))).mappings
    return PciEntries(
        hypervisor.node_name,
        frozenset() if isinstance(functions, Unknown) else frozenset(each.address for each in functions),
        () if isinstance(mappings, Unknown) else mappings,
        not isinstance(mappings, Unknown),
    )


def _settings(node: Node) -> tuple[tuple[str, str], ...]:
    """Return the managed keys and values as PVE takes them."""
    settings: dict[str, str | None] = {
        "machine": node.machine_version or {"q35": "q35", "i440fx": ""}.get(node.machine_type or ""),
        "bios": node.firmware,
        "cpu": _cpu(node),
        "cores": _text(node.cores),
        "sockets": _text(node.sockets),
        "memory": _text(node.memory),
        "balloon": _text(node.balloon_memory),
        "numa": _flag(node.numa),
        "onboot": _flag(node.starts_at_boot),
        "protection": _flag(node.protection),
        "agent": None if node.agent is None else f"enabled={int(node.agent)}",
        "startup": _startup(node),
        "serial0": None if node.serial_console is None else "socket" if node.serial_console else "",
    }
    return tuple((key, value) for key, value in settings.items() if value is not None)


def _cpu(node: Node) -> str | None:
    parts = [f"cputype={node.cpu_type}"] if node.cpu_type else []
    if node.cpu_flags:
        parts.append(f"flags={';'.join(node.cpu_flags)}")
    return ",".join(parts) or None


def _startup(node: Node) -> str | None:
    if node.startup is None:
        return None
    values = {"order": node.startup.order, "up": node.startup.up, "down": node.startup.down}
    return ",".join(f"{key}={value:g}" for key, value in values.items() if value is not None) or None


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)


def _flag(value: bool | None) -> str | None:
    return None if value is None else str(int(value))


def _drives(
    inventory: Inventory, node: Node, hypervisor: Hypervisor, state: VmState | None
) -> tuple[Drive, ...]:
    storage = hypervisor.storage.disks
    has_first = node.disk is not None or node.image is not None
    slots = _slots(node, has_first, state)
    drives: list[Drive] = []
    if has_first:
        image = names.image_volume(inventory, hypervisor, node.image) if node.image is not None else ""
        options = (("discard", "on"), ("iothread", "1"))
        drives.append(Drive(slots[0], storage, node.disk or 0, image, options))
    for index, disk in enumerate(node.disks, start=len(drives)):
        flags = {
            "ssd": None if disk.ssd is None else str(int(disk.ssd)),
            "discard": None if disk.discard is None else "on" if disk.discard else "ignore",
        }
        kept = tuple((key, value) for key, value in flags.items() if value is not None)
        drives.append(Drive(slots[index], disk.storage or storage, disk.size, declared=kept))
    return tuple(drives)


def _slots(node: Node, has_first: bool, state: VmState | None) -> tuple[str, ...]:
    """Return where the disks are, or will be; a VM that is made again gets the slots of a new one."""
    declared = [disk.slot for disk in node.disks]
    count = int(has_first) + declared.count(None)
    fixed = frozenset(slot for slot in declared if slot is not None)
    if state is None or rebuilds(state):
        free = vm_disks.slots_of(count, (), lambda _slot: "", fixed)
    else:
        free = vm_disks.slots_of(count, tuple({**state.config, **state.pending}), state.next_value, fixed)
    rest = iter(free)
    first = (next(rest),) if has_first else ()
    return (*first, *(slot or next(rest) for slot in declared))


def _cloud_init(
    inventory: Inventory, node: Node, hypervisor: Hypervisor, state: VmState | None
) -> CloudInit | None:
    """Return what the guest is born with; nothing is read for a VM that is there."""
    if node.image is None or (state is not None and not rebuilds(state)):
        return None
    return CloudInit(
        hypervisor.storage.disks,
        inventory.login(node.name).user,
        "\n".join(login_keys(inventory, node)),
        names.snippet_volume(inventory, hypervisor, node),
        *_static_address(inventory, node),
    )


def _static_address(inventory: Inventory, node: Node) -> tuple[str, str]:
    """Return `ipconfig0` and `nameserver` of a VM that gets its address without a DHCP server."""
    backend, network = inventory.dhcp_backend, inventory.network
    if backend is None or backend.reached != "nowhere" or network is None:
        return "ip=dhcp", ""
    length = str(network.cidr).partition("/")[2]
    gateway = f",gw={network.gateway}" if network.gateway else ""
    servers = [str(server) for server in network.dns] or ([str(network.gateway)] if network.gateway else [])
    return f"ip={node.address}/{length}{gateway}", " ".join(servers)


def needs_of(inventory: Inventory, subject: Subject) -> tuple[str | Need, ...]:
    """Return what a VM needs: one without a card does not wait for the drivers and mappings of cards."""
    image, reservation = Need("image"), Need("dhcp_reservation", scope="own")
    node = inventory.nodes[subject.name]
    return NEEDS if node.cards or node.usb else (image, reservation)


NEEDS: tuple[str | Need, ...] = ("hypervisor_host", "image", "pci_mapping", "dhcp_reservation")
ROLE = Role(
    name="virtual_machine",
    needs=NEEDS,
    needs_of=needs_of,
    declared=declared,
    questions=questions,
    resources=resources,
    retired=retired,
    orphan_owners=orphan_owners,
    orphans=orphans,
)
