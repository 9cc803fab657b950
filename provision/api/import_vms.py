"""A VM that nobody manages, adopted: tag and marker, and nothing else."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from provision.api.masking import changes_masked
from provision.api.run_identity import new_run_id, who
from provision.api.site import Site
from provision.api.vm_marker import file_of, present_vm, vm_node, vm_now, write_config
from provision.connections.contracts import SshEndpoint
from provision.contracts.change import Change
from provision.contracts.resource import changes_of
from provision.contracts.role import Context
from provision.engine.observe import observe
from provision.engine.run_lock import run_lock
from provision.hosts import names as host_names
from provision.inventory import Subject
from provision.inventory.models.hypervisor import Hypervisor
from provision.inventory.models.node import Node
from provision.proxmox import names
from provision.proxmox.adoption import marked_config, own_marker
from provision.proxmox.answers import tags as split_tags
from provision.proxmox.marker import TAG, Marker
from provision.proxmox.queries import VmConfig, VmState, vm_answer
from provision.proxmox.resources.vm import Vm
from provision.proxmox.resources.vm_lifecycle import VmPower
from provision.proxmox.roles import virtual_machine
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, ProvisionError


@dataclass(frozen=True, slots=True)
class Adoption:
    """A VM that nobody manages yet, as it would be adopted.

    Args:
        node: the node that it becomes.
        vmid: its number.
        name: its name in Proxmox VE.
        running: whether it runs.
        changes: what differs from the inventory and the next apply would mend.
        host_keys: fingerprints that its marker names already.
        ours: whether it carries this node's marker already.
    """

    node: str
    vmid: int
    name: str
    running: bool
    changes: tuple[Change, ...]
    host_keys: tuple[str, ...] = ()
    ours: bool = False


def adoption(site: Site, name: str, cancel: Cancel) -> Adoption:
    """Look at the VM that has a node's number, and tell, without secrets, what adopting it would mean.

    Writes nothing.

    Raises:
        UsageError: there is no such VM in the inventory.
        Permanent: nothing has this number; or another inventory's VM, another node's, or a container has it;
            or first contact with it is not finished under a former name.
        ProvisionError: the hypervisor does not answer.
    """
    node, hypervisor = vm_node(site, name)
    return _adoption(site, node, hypervisor, vm_now(site, node, hypervisor, cancel))


def adoptions(site: Site, cancel: Cancel) -> tuple[tuple[Adoption, ...], tuple[Diagnostic, ...]]:
    """Look at the VMs of all nodes, with one request a VM, and return what adopting each would mean.

    Writes nothing.

    Returns:
        Those that can be adopted, or are ours already, and why the others cannot.

    Raises:
        ProvisionError: a hypervisor does not answer.
    """
    candidates: list[Adoption] = []
    problems: list[Diagnostic] = []
    for name, answer in _vms_now(site, cancel).items():
        node, hypervisor = vm_node(site, name)
        try:
            state = present_vm(site, node, answer)
            candidates.append(_adoption(site, node, hypervisor, state))
        except Permanent as error:
            problems += error.diagnostics
    return tuple(candidates), tuple(problems)


def adopt_all(site: Site, cancel: Cancel) -> tuple[str, ...]:
    """Write tag and marker to the VMs of all nodes that can be adopted, and return their names.

    Their host keys are not noted: SSH to them accepts what known_hosts has.

    Raises:
        Permanent, ProvisionError: what a hypervisor says; the VMs before it are adopted.
    """
    run, adopted = new_run_id(), list[str]()
    with run_lock(site.folder / "lock", run, who()):
        for name, answer in _vms_now(site, cancel).items():
            node, hypervisor = vm_node(site, name)
            with suppress(Permanent):
                state = present_vm(site, node, answer)
                if state is None:
                    continue
                data = _marking(state, _with_kept_keys(state, own_marker(site.inventory, node, state)))
                if not data:
                    continue
                adopted.append(name)
                write_config(site, node, hypervisor, {**data, "digest": state.digest}, cancel, run)
    return tuple(adopted)


def _vms_now(site: Site, cancel: Cancel) -> dict[str, object]:
    """Return the answers about the VMs of all managed nodes, each hypervisor asked once."""
    answers: dict[str, object] = {}
    for hypervisor in site.inventory.hypervisors.values():
        nodes = [node for node in names.nodes_of(site.inventory, hypervisor.name) if node.manage]
        if not nodes:
            continue
        vmids = {node.name: names.vmid(site.inventory, node) for node in nodes}
        queries = {VmConfig(vmid) for vmid in vmids.values()}
        snapshot = site.session.ask(names.api(hypervisor.name), queries, cancel, fresh=True)
        answers |= {name: vm_answer(snapshot, vmid) for name, vmid in vmids.items()}
    return answers


def _adoption(site: Site, node: Node, hypervisor: Hypervisor, state: VmState | None) -> Adoption:
    name = node.name
    if state is None:
        summary = f"no VM has the VMID {node.vmid} of {name}"
        raise Permanent(
            Diagnostic("VM_ABSENT", summary, name, remedy=f"create it: `provision apply {file_of(site)}`")
        )
    own = own_marker(site.inventory, node, state)
    mask = site.redactor.text
    return Adoption(
        node=name,
        vmid=state.vmid,
        name=mask(state.name),
        running=state.running,
        changes=changes_masked(_differences(site, node, hypervisor, state), mask),
        host_keys=own.fingerprints,
        ours=own == state.marker,
    )


def shown_host_key(site: Site, name: str) -> str:
    """Return the fingerprint of the SSH host key that a node shows now, or empty if it shows none.

    Whether it is the node's own key is for a person to say.
    """
    from provision.connections.ssh_open import shown_fingerprint  # noqa: PLC0415 - slow
    from provision.connections.ssh_target import resolve  # noqa: PLC0415 - slow

    login = site.inventory.login(name)
    endpoint = SshEndpoint(
        login.address, login.user, login.port, login.key, login.jump, known_hosts=login.known_hosts
    )
    with suppress(ProvisionError):
        return shown_fingerprint(resolve(endpoint), host_names.ssh(name))
    return ""


def adopt(site: Site, name: str, host_key: str, cancel: Cancel) -> bool:
    """Write tag and marker to the VM that has a node's number, and nothing else.

    Args:
        site: whose node.
        name: the node.
        host_key: fingerprint of the guest's SSH host key, which is accepted from then on.
        cancel: ends it early.

    Returns:
        Whether anything was written.

    Raises:
        UsageError, Permanent, ProvisionError: as `adoption`, and what the hypervisor says.
    """
    run = new_run_id()
    with run_lock(site.folder / "lock", run, who()):
        adoption(site, name, cancel)
        node, hypervisor = vm_node(site, name)
        state = vm_now(site, node, hypervisor, cancel)
        if state is None:
            return False
        old = own_marker(site.inventory, node, state)
        new = old if host_key in old.fingerprints else replace(old, host_key=host_key, first_key="")
        data = _marking(state, new)
        if not data:
            return False
        write_config(site, node, hypervisor, {**data, "digest": state.digest}, cancel, run)
    return True


def _marking(state: VmState, marker: Marker) -> dict[str, object]:
    """Return what is written to a VM, so that it carries a marker."""
    marked = marked_config(state, marker)
    data: dict[str, object] = {}
    if marked["description"] != state.next_value("description"):
        data["description"] = marked["description"]
    if TAG not in split_tags(state.next_value("tags")):
        data["tags"] = marked["tags"]
    return data


def _with_kept_keys(state: VmState, marker: Marker) -> Marker:
    """Return a marker with the host keys that its second home on the VM has kept, if it names none itself."""
    marked = replace(state, config={**state.config, **marked_config(state, marker)})
    return marked.marker or marker


def _differences(site: Site, node: Node, hypervisor: Hypervisor, state: VmState) -> tuple[Change, ...]:
    """Return what the role would change if the VM were ours already."""
    api, subject = names.api(hypervisor.name), Subject("node", node.name)
    observe(site.session, virtual_machine.questions(site.inventory, subject), {}, Cancel())
    snapshots = dict(site.session.snapshots())
    marked = marked_config(state, _with_kept_keys(state, own_marker(site.inventory, node, state)))
    adopted = replace(state, config={**state.config, **marked})
    held = snapshots[api]
    snapshots[api] = replace(held, answers={**held.answers, VmConfig(state.vmid): adopted})
    context = Context(site.inventory, subject, snapshots, site.environment.generated())
    # Its power, too: a VM that is off, and that the inventory wants to run, is started by the next apply.
    resources = virtual_machine.resources(context)
    own = (resource for resource in resources if isinstance(resource, Vm | VmPower))
    return tuple(change for resource in own for change in changes_of(resource, snapshots[api]))
