"""Create, change, start, stop and delete against fakepve: a second opinion on configs, digests and tasks.

What fakepve 0.5.0 gets wrong or lacks, compared with Proxmox VE 9.2.11; nothing of this is asked of it:

- It takes `onboot=True`; Proxmox VE refuses that with 400.
- `hostpci` is not validated: a missing device, a card in use and pcie on i440fx are taken.
- `hardware/pci`, mappings, `cloudinit`, roles, users, tokens and ACLs answer filler; writes change nothing.
- Everybody may do everything until its Python API grants something.
- Downloads never fail, whatever the checksum, the address or the name of the file; every file has 1 MiB.
- A start never fails because of a missing bridge or card, or too many cores.
- `lock=backup` in a configuration stops nothing.
- No task ends in `WARNINGS: n` or `unexpected status`.
- With `time_scale` 0, tasks end before their identifiers are sent: `lock: create` is never seen.
- After a change `cores` is text; an unknown node has an empty list; an unknown path answers 404.

The lab's API answers these, and `tests/contract/test_any_pve.py` asks a real Proxmox VE.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from provision.connections.contracts import HttpsEndpoint
from provision.connections.https import PveConnection
from provision.contracts.driver import Action, Result, Verdict
from provision.contracts.effect import Effect
from provision.contracts.remedy import ApiCall
from provision.contracts.resource import Resource, ask
from provision.contracts.snapshot import Snapshot
from provision.proxmox import vm_effects
from provision.proxmox.driver import ProxmoxDriver
from provision.proxmox.marker import Marker
from provision.proxmox.queries import VmConfig, VmState, vm_state
from provision.proxmox.resources.vm import Vm
from provision.proxmox.resources.vm_lifecycle import VmAbsent, VmMarker, VmPower
from provision.proxmox.resources.vm_parts import Drive, Efi, Nic
from provision.values.cancel import Cancel

MARK = Marker("lab", "vm-1", f"SHA256:{'b' * 43}", f"SHA256:{'a' * 43}")
TOKEN = "root@pam!prov"


class Loop:
    """The engine in small: ask, act, ask again."""

    def __init__(self, driver: ProxmoxDriver) -> None:
        self.driver = driver

    def see(self, *resources: Resource) -> Snapshot:
        return self.driver.answer(ask(resources), Cancel())

    def act(self, *resources: Resource, effects: Sequence[Effect] = ()) -> list[Result]:
        snapshot = self.see(*resources)
        actions = []
        for each in resources:
            if each.changes(snapshot):
                remedy = each.fix(snapshot)
                assert isinstance(remedy, ApiCall), remedy
                actions.append(Action(each.key, str(each.key), remedy, remedy.effects))
        return self.driver.act("run", actions, effects, lambda _: None, Cancel())

    def settle(self, *resources: Resource) -> None:
        results = self.act(*resources)
        assert {each.verdict for each in results} <= {Verdict.DONE}, results
        snapshot = self.see(*resources)
        assert [each.changes(snapshot) for each in resources] == [()] * len(resources)


@pytest.fixture
def loop(fakepve: Any, fakepve_cafile: str) -> Loop:
    fakepve.apitokens[TOKEN] = "secret"
    der = ssl.PEM_cert_to_DER_cert(Path(fakepve_cafile).read_text())
    digest = hashlib.sha256(der).hexdigest()
    endpoint = HttpsEndpoint(fakepve.url, TOKEN, SecretStr("secret"), digest)
    node = next(iter(fakepve.nodes))
    return Loop(ProxmoxDriver("pve/api", PveConnection(endpoint), node))


@pytest.fixture
def vm(loop: Loop, fakepve: Any) -> Vm:
    storages = list(fakepve.storages)
    disks = next(each for each in storages if "images" in str(fakepve.storages[each].get("content", "")))
    return Vm(
        "pve/api",
        loop.driver._node,
        101,
        "vm-1",
        MARK,
        settings=(
            ("cores", "2"),
            ("memory", "1024"),
            ("onboot", "0"),
            ("machine", "q35"),
            ("bios", "ovmf"),
            ("agent", "enabled=1"),
        ),
        nics=(Nic("BC:24:11:00:00:01", "vmbr0"),),
        drives=(Drive("scsi0", disks, 4 * 1024),),
        efi=Efi(disks),
    )


def test_a_vm_is_made_as_declared_and_then_nothing_differs(loop: Loop, vm: Vm) -> None:
    power = VmPower("pve/api", vm.node, 101, "vm-1", "running")
    loop.settle(vm, power)
    state = vm_state(loop.see(vm), 101)
    assert state is not None
    assert (state.running, state.marker) == (True, MARK)


def test_drift_is_mended_and_what_needs_a_power_cycle_waits_for_it(loop: Loop, vm: Vm) -> None:
    loop.settle(vm, VmPower("pve/api", vm.node, 101, "vm-1", "running"))
    other = replace(vm, settings=(("cores", "1"), ("memory", "1024"), ("onboot", "1")))
    loop.act(other)
    assert {each.path for each in vm.changes(loop.see(vm))} >= {"cores", "onboot"}
    results = loop.act(vm, effects=(Effect(vm_effects.POWER_CYCLE, "vm-1"),))
    assert {each.verdict for each in results} == {Verdict.DONE}
    assert vm.changes(loop.see(vm)) == ()


def test_a_write_against_an_old_digest_is_refused(loop: Loop, vm: Vm) -> None:
    loop.settle(vm)
    snapshot = loop.see(vm)
    state = snapshot[VmConfig(101)]
    assert isinstance(state, VmState)
    stale = Snapshot(
        "pve/api",
        answers={VmConfig(101): replace(state, digest="0" * 40, config={**state.config, "cores": "9"})},
    )
    remedy = vm.fix(stale)
    assert isinstance(remedy, ApiCall)
    (result,) = loop.driver.act("run", [Action(vm.key, "vm", remedy)], (), lambda _: None, Cancel())
    assert result.diagnostic is not None
    assert result.diagnostic.code == "CONFIG_CHANGED_MEANWHILE"


def test_the_marker_is_rewritten_beside_what_the_user_wrote(loop: Loop, vm: Vm) -> None:
    loop.settle(vm)
    marker = VmMarker("pve/api", vm.node, 101, MARK.settled())
    loop.settle(marker)
    state = vm_state(loop.see(marker), 101)
    assert state is not None
    assert state.marker == MARK.settled()


def test_a_running_vm_is_removed_with_its_disks_and_only_if_it_is_ours(loop: Loop, vm: Vm) -> None:
    loop.settle(vm, VmPower("pve/api", vm.node, 101, "vm-1", "running"))
    loop.settle(VmAbsent("pve/api", vm.node, 101, replace(MARK, inventory="theirs")))
    assert vm_state(loop.see(vm), 101) is not None
    loop.settle(VmAbsent("pve/api", vm.node, 101, MARK))
    assert loop.see(vm)[VmConfig(101)] is None


def test_a_second_maker_of_one_number_is_told(loop: Loop, vm: Vm) -> None:
    absent = Snapshot("pve/api", answers={VmConfig(101): None})
    remedy = vm.fix(absent)
    assert isinstance(remedy, ApiCall)
    first, second = (
        loop.driver.act("run", [Action(vm.key, "vm", remedy)], (), lambda _: None, Cancel())[0]
        for _ in range(2)
    )
    assert first.verdict is Verdict.DONE
    assert second.diagnostic is not None
    assert "already exists" in second.diagnostic.summary
