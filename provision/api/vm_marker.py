"""The marker of one VM: read as it is now, marked for a rebuild, and written."""

from __future__ import annotations

from dataclasses import replace

from provision.api.run_identity import new_run_id, who
from provision.api.site import Site
from provision.contracts.change import Key
from provision.contracts.driver import Action, Verdict
from provision.contracts.query import Unknown
from provision.contracts.remedy import ApiCall, Request
from provision.engine.run_lock import run_lock
from provision.inventory.models.hypervisor import Hypervisor
from provision.inventory.models.node import Node
from provision.proxmox import marker as markers
from provision.proxmox import names
from provision.proxmox.adoption import foreign
from provision.proxmox.queries import Elsewhere, VmConfig, VmState, vm_answer
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, UsageError


def mark_for_rebuild(site: Site, name: str, cancel: Cancel, *, undo: bool = False) -> tuple[str, bool]:
    """Write the replace token into the marker of a node's VM, or take it out again.

    The token is all there is: the next apply that finds it makes the VM again, and the new one has none.

    Args:
        site: whose node.
        name: the node.
        cancel: ends it early.
        undo: take the token out.

    Returns:
        The token (empty without one), and whether anything was written.

    Raises:
        UsageError: there is no such VM in the inventory.
        Permanent: there is none on the hypervisor, or it is not ours.
        ProvisionError: a run goes on (exit 6), or the hypervisor does not answer.
    """
    node, hypervisor = vm_node(site, name)
    run = new_run_id()
    with run_lock(site.folder / "lock", run, who()):
        state = vm_now(site, node, hypervisor, cancel)
        if state is None:
            raise Permanent(
                Diagnostic(
                    "VM_ABSENT",
                    f"{name} does not exist, so it cannot be created again",
                    name,
                    remedy=f"create it: `provision apply {file_of(site)}`",
                )
            )
        marker = state.marker_of(site.inventory.name, name)
        if marker is None:
            raise Permanent(foreign(site.inventory, node, state))
        if bool(marker.replace) is not undo:
            return marker.replace, False
        token = "" if undo else run
        description = markers.write(state.next_value("description"), replace(marker, replace=token))
        data: dict[str, object] = {"description": description, "digest": state.digest}
        write_config(site, node, hypervisor, data, cancel, run)
    return token, True


# ---------------------------------------------------------------- parts


def vm_node(site: Site, name: str) -> tuple[Node, Hypervisor]:
    """Return a VM of the inventory and its hypervisor.

    Raises:
        UsageError: there is no such VM, or it is not managed.
    """
    node = site.inventory.nodes.get(name)
    hypervisor = site.inventory.hypervisor_of(node) if node is not None else None
    if node is None or hypervisor is None or not node.manage:
        vms = [vm.name for vm in site.inventory.nodes.values() if vm.is_virtual and vm.manage]
        remedy = f"there are {', '.join(vms)}" if vms else ""
        raise UsageError(
            Diagnostic("NODE_UNKNOWN", f"{file_of(site)} has no VM {name} that it manages", remedy=remedy)
        )
    return node, hypervisor


def file_of(site: Site) -> str:
    """Return the inventory's file, as remedies name it."""
    return site.inventory.file or "INVENTORY"


def vm_now(site: Site, node: Node, hypervisor: Hypervisor, cancel: Cancel) -> VmState | None:
    """Return the VM as it is now, on this node of Proxmox VE, or None if nothing has its number."""
    vmid = names.vmid(site.inventory, node)
    answer = vm_answer(
        site.session.ask(names.api(hypervisor.name), {VmConfig(vmid)}, cancel, fresh=True), vmid
    )
    return present_vm(site, node, answer)


def present_vm(site: Site, node: Node, answer: object) -> VmState | None:
    """Return the VM that an answer is about, or None if nothing has its number.

    Raises:
        Permanent: the answer is Unknown, or something else has the number.
    """
    if isinstance(answer, Unknown):
        raise Permanent(Diagnostic("UNKNOWN", answer.reason, node.name))
    if isinstance(answer, Elsewhere):
        raise Permanent(foreign(site.inventory, node, answer))
    return answer if isinstance(answer, VmState) else None


def write_config(
    site: Site, node: Node, hypervisor: Hypervisor, data: dict[str, object], cancel: Cancel, run: str
) -> None:
    """Write to a VM's configuration.

    Raises:
        Permanent: the hypervisor did not take it.
    """
    system = names.api(hypervisor.name)
    path = f"/nodes/{hypervisor.node_name}/qemu/{names.vmid(site.inventory, node)}/config"
    key = Key(system, "vm-marker", node.name)
    action = Action(key, str(key), ApiCall((Request("PUT", path, data),)))
    with site.session.systems[system].lock.held(cancel):
        driver = site.session.driver(system, cancel)
        (result,) = driver.act(run, [action], (), lambda _line: None, cancel)
    site.session.forget(system, [VmConfig(names.vmid(site.inventory, node))], cancel)
    if result.verdict is not Verdict.DONE:
        summary = f"the marker of {node.name} was not written"
        raise Permanent(result.diagnostic or Diagnostic("FIX_FAILED", summary, node.name))
