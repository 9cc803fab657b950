"""Faults of a hypervisor, played by fakepve: the next run ends in one VM, neither lost nor doubled.

Other faults: a changed digest in `test_proxmox_fakepve.py`, tickets in `test_root_ticket.py`, warnings of
tasks in `tests/unit/proxmox/test_driver.py`, a controller killed before every write in
`tests/model/test_vm_kills.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from provision.contracts.driver import Action, Result, Verdict
from provision.contracts.remedy import ApiCall
from provision.proxmox import driver
from provision.proxmox.queries import VmConfig, vm_state
from provision.proxmox.resources.vm import Vm
from provision.proxmox.resources.vm_lifecycle import VmPower
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, Transient, UnknownOutcome
from tests.contract import test_proxmox_fakepve
from tests.contract.test_proxmox_fakepve import MARK, TOKEN, Loop

loop, vm = test_proxmox_fakepve.loop, test_proxmox_fakepve.vm


def power(vm: Vm) -> VmPower:
    return VmPower("pve/api", vm.node, vm.vmid, vm.name, "running")


def failed(loop: Loop, vm: Vm) -> Result:
    (result,) = loop.act(vm)
    assert result.diagnostic is not None
    return result


def require_converged(loop: Loop, fakepve: Any, vm: Vm) -> None:
    """Apply to the end: there is one VM, it is ours, it runs, and it has the disks of one VM."""
    loop.settle(vm, power(vm))
    state = vm_state(loop.see(vm), vm.vmid)
    assert state is not None
    assert (state.marker, state.running, state.lock) == (MARK, True, "")
    assert [guest.vmid for guest in fakepve.vms if guest.name == vm.name] == [vm.vmid]
    storage = vm.drives[0].storage
    content = loop.driver._connection.request("GET", f"/nodes/{vm.node}/storage/{storage}/content")
    assert isinstance(content, list)
    assert len([volume for volume in content if str(volume.get("vmid")) == str(vm.vmid)]) == 2


def test_without_quorum_nothing_is_made_and_the_reason_is_said(loop: Loop, fakepve: Any, vm: Vm) -> None:
    fakepve.lose_quorum()
    result = failed(loop, vm)
    assert result.verdict is Verdict.FAILED
    assert result.diagnostic is not None
    assert (result.diagnostic.code, "pvecm status" in result.diagnostic.remedy) == ("NO_QUORUM", True)
    assert loop.see(vm)[VmConfig(vm.vmid)] is None
    fakepve.regain_quorum()
    require_converged(loop, fakepve, vm)


def test_a_node_that_is_offline_is_no_node_without_vms(loop: Loop, fakepve: Any, vm: Vm) -> None:
    loop.settle(vm)
    fakepve.set_node_offline(vm.node)
    with pytest.raises(Transient, match="API_UNREACHABLE"):
        loop.see(vm)
    fakepve.set_node_offline(vm.node, offline=False)
    require_converged(loop, fakepve, vm)


@pytest.mark.parametrize(
    ("status", "verdict"), [(595, Verdict.FAILED), (596, Verdict.INDETERMINATE), (599, Verdict.INDETERMINATE)]
)
def test_a_creation_that_never_reached_its_node_is_sent_again(
    loop: Loop, fakepve: Any, vm: Vm, status: int, verdict: Verdict
) -> None:
    fakepve.fail("POST", f"/nodes/{vm.node}/qemu", status, "Broken pipe", times=1)
    assert failed(loop, vm).verdict is verdict
    assert loop.see(vm)[VmConfig(vm.vmid)] is None
    require_converged(loop, fakepve, vm)


@pytest.mark.parametrize("write", [1, 2])
def test_a_write_whose_answer_is_lost_is_not_done_twice(
    loop: Loop, fakepve: Any, vm: Vm, monkeypatch: pytest.MonkeyPatch, write: int
) -> None:
    connection = loop.driver._connection
    send, writes = connection.request, [0]

    def losing(method: str, path: str, data: Mapping[str, object] | None = None) -> object:
        answer = send(method, path, data)
        writes[0] += method != "GET"
        if method != "GET" and writes[0] == write:
            raise UnknownOutcome(Diagnostic("API_ANSWER_LOST", f"the answer to {path} is lost"))
        return answer

    monkeypatch.setattr(connection, "request", losing)
    results = loop.act(vm, power(vm))
    assert results[write - 1].verdict is Verdict.INDETERMINATE
    require_converged(loop, fakepve, vm)


def test_a_token_that_expired_is_named_and_a_new_one_goes_on(loop: Loop, fakepve: Any, vm: Vm) -> None:
    loop.settle(vm)
    secret = fakepve.apitokens.pop(TOKEN)
    with pytest.raises(Permanent, match="API_AUTH_FAILED"):
        loop.see(vm)
    fakepve.apitokens[TOKEN] = secret
    require_converged(loop, fakepve, vm)


def test_a_full_storage_leaves_neither_a_vm_nor_a_disk(loop: Loop, fakepve: Any, vm: Vm) -> None:
    store = fakepve.storages[vm.drives[0].storage]
    store["avail"] = 1 << 30  # enough for the disk of OVMF's variables, which is made first
    result = failed(loop, vm)
    assert result.diagnostic is not None
    assert (result.verdict, result.diagnostic.code) == (Verdict.FAILED, "STORAGE_FULL")
    assert loop.see(vm)[VmConfig(vm.vmid)] is None
    store["avail"] = 100 << 30
    require_converged(loop, fakepve, vm)


def test_a_lock_that_stays_is_said_and_waits_for_the_next_run(
    loop: Loop, fakepve: Any, vm: Vm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "LOCK_PATIENCE", 0.0)
    loop.settle(vm)
    guest = fakepve.guest(vm.vmid)
    guest.lock_holder = "backup"
    (result,) = loop.act(power(vm))
    assert result.diagnostic is not None
    assert (result.verdict, result.diagnostic.code) == (Verdict.FAILED, "VM_LOCKED")
    guest.lock_holder = None
    require_converged(loop, fakepve, vm)


def test_a_task_that_hangs_is_unknown_and_the_next_run_finds_its_end(
    loop: Loop, fakepve: Any, vm: Vm
) -> None:
    loop.settle(vm)
    guest = fakepve.guest(vm.vmid)
    guest.lock_holder, fakepve.time_scale = "hung", 1000.0  # its task waits for the lock for hours
    remedy = power(vm).fix(loop.see(vm))
    assert isinstance(remedy, ApiCall)
    short = replace(remedy, requests=tuple(replace(request, task=1.0) for request in remedy.requests))
    action = Action(power(vm).key, "start", short)
    (result,) = loop.driver.act("run", [action], (), lambda _: None, Cancel())
    assert (result.verdict, "qmstart" in result.handle) == (Verdict.INDETERMINATE, True)
    fakepve.time_scale, guest.lock_holder = 0, None
    require_converged(loop, fakepve, vm)
