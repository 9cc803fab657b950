"""The client against the lab's API, which shares no code with it: image, mapping, VM, power, marker, end."""

from __future__ import annotations

import hashlib
import ssl
import threading
from dataclasses import replace

import pytest
from pydantic import SecretStr

from provision.connections.contracts import HttpsEndpoint
from provision.connections.https import PveConnection
from provision.contracts.driver import Action, Result, Verdict
from provision.contracts.effect import Effect
from provision.contracts.remedy import ApiCall
from provision.contracts.resource import ask
from provision.proxmox import vm_effects
from provision.proxmox.driver import ProxmoxDriver
from provision.proxmox.marker import Marker
from provision.proxmox.queries import Creation, Permissions, Rights, VmConfig, VmState
from provision.proxmox.resources.image import ImageFile
from provision.proxmox.resources.mapping import PciMapping
from provision.proxmox.resources.vm import Vm
from provision.proxmox.resources.vm_lifecycle import VmAbsent, VmMarker, VmPower
from provision.proxmox.resources.vm_parts import CloudInit, Drive, Efi, Nic, Passed
from provision.values.cancel import Cancel
from tests.contract import test_lab_api_proxmoxer
from tests.contract.test_lab_api_proxmoxer import KEY, Site
from tests.contract.test_proxmox_fakepve import Loop

site = test_lab_api_proxmoxer.site
MARK = Marker("lab", "vm-gpu", "SHA256:b", "SHA256:a")
CARD = PciMapping(
    "pve/api",
    "pve",
    "provision-lab-one",
    ((("path", "0000:01:00"), ("id", "1234:1111"), ("subsystem-id", "1af4:1100"), ("iommugroup", "7")),),
)


@pytest.fixture
def loop(site: Site) -> Loop:
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(site.ca.read_text())).hexdigest()
    endpoint = HttpsEndpoint(
        f"https://127.0.0.1:{site.port}", "provision@pve!lab", SecretStr(site.token), digest
    )
    return Loop(ProxmoxDriver("pve/api", PveConnection(endpoint), "pve", login=endpoint.token_id))


def image(site: Site, sha256: str = "") -> ImageFile:
    return ImageFile(
        "pve/api", "pve", "local", "debian-1a2b3c4d.qcow2", site.image_url, sha256 or site.image_sum
    )


DISKS = "local-disks"
"""The lab's storage for VM disks."""


def machine(disks: str) -> Vm:
    return Vm(
        "pve/api",
        "pve",
        203,
        "vm-gpu",
        MARK,
        settings=(
            ("machine", "q35"),
            ("bios", "ovmf"),
            ("cpu", "cputype=host"),
            ("cores", "1"),
            ("memory", "768"),
            ("balloon", "0"),
            ("onboot", "0"),
        ),
        nics=(Nic("BC:24:11:00:00:01", "vmbr0"),),
        drives=(
            Drive(
                "scsi0",
                disks,
                4 * 1024,
                "local:import/debian-1a2b3c4d.qcow2",
                (("discard", "on"), ("iothread", "1")),
            ),
        ),
        passed=(Passed("provision-lab-one", frozenset({"0000:01:00.0"})),),
        efi=Efi(disks),
        cloud_init=CloudInit(disks, "debian", KEY, "local:snippets/provision-lab-vm-gpu.yaml"),
        mapping_prefix="provision-lab-",
    )


def test_a_wrong_checksum_is_a_failure_that_leaves_no_file(loop: Loop, site: Site) -> None:
    wrong = image(site, "0" * 64)
    (result,) = loop.act(wrong)
    assert result.verdict is Verdict.FAILED
    assert result.diagnostic is not None
    assert result.diagnostic.code == "IMAGE_CHECKSUM"
    assert wrong.changes(loop.see(wrong))
    loop.settle(image(site))


def test_an_image_that_was_cut_on_the_storage_makes_no_vm(loop: Loop, site: Site) -> None:
    loop.settle(image(site))
    vm = replace(machine(DISKS), images=(image(site).download,))
    file = next(site.lab.folder.glob("storage/local/import/*.qcow2"))
    file.write_bytes(file.read_bytes()[:-1])
    (result,) = loop.act(vm)
    assert result.verdict is Verdict.FAILED
    assert result.diagnostic is not None
    assert result.diagnostic.code == "IMAGE_CHANGED"
    assert site.by_token().nodes("pve").qemu.get() == []
    file.unlink()
    assert loop.act(vm)[0].verdict is Verdict.DONE


def test_a_creation_whose_worker_died_is_known_as_ours(loop: Loop, site: Site) -> None:
    loop.settle(image(site))
    gate = site.guests.import_gate = threading.Event()
    config = {
        "vmid": 203,
        "name": "vm-gpu",
        "scsi0": f"{DISKS}:0,import-from=local:import/debian-1a2b3c4d.qcow2",
    }
    upid = str(site.by_token().nodes("pve").qemu.post(**config))
    reclaiming = replace(machine(DISKS), reclaims=True)

    def state() -> VmState:
        answer = loop.see(reclaiming)[VmConfig(203)]
        assert isinstance(answer, VmState)
        return answer

    assert state().creation == Creation(upid, own=True, running=True)
    assert reclaiming.foreign(state()) is not None, "its worker may still finish it"
    worker = site.lab.tasks._running.pop(upid)  # killed on the host
    assert state().creation == Creation(upid, own=True, running=False)
    assert reclaiming.foreign(state()) is None
    assert machine(DISKS).foreign(state()) is not None, "without a removal before it, it is refused"
    assert loop.act(VmAbsent("pve/api", "pve", 203, MARK)) == [], "only the host can pass by the lock"
    site.lab.tasks._running[upid] = worker
    gate.set()
    site.lab.tasks.wait(upid, 20)


def test_the_next_run_finishes_a_creation_that_outlives_its_controller(loop: Loop, site: Site) -> None:
    loop.settle(image(site))
    vm = replace(machine(DISKS), passed=(), cloud_init=None)
    gate = site.guests.import_gate = threading.Event()
    remedy = vm.fix(loop.see(vm))
    assert isinstance(remedy, ApiCall)
    creation = remedy.requests[0]
    upid = str(loop.driver._connection.request(creation.method, creation.path, creation.data))
    # The controller is killed here, before it has read the task.
    state = loop.see(vm)[VmConfig(203)]
    assert isinstance(state, VmState)
    assert state.creation == Creation(upid, own=True, running=True)
    assert vm.foreign(state) is not None, "what its worker still makes is left alone"
    gate.set()
    site.lab.tasks.wait(upid, 20)
    loop.settle(vm)
    node = site.by_token().nodes("pve")
    assert [guest["vmid"] for guest in node.qemu.get()] == [203]
    disks = [str(volume["volid"]) for volume in node.storage(DISKS).content.get()]
    config = loop.see(vm)[VmConfig(203)].config
    assert sorted(disks) == sorted(config[slot].partition(",")[0] for slot in ("scsi0", "efidisk0"))


def test_the_lab_s_token_may_do_all_that_we_need(loop: Loop) -> None:
    rights = loop.driver.answer(frozenset({Permissions()}), Cancel())[Permissions()]
    assert isinstance(rights, Rights)
    for path, privilege in (
        ("/vms/203", "VM.Audit"),
        ("/storage/local", "Datastore.AllocateTemplate"),
        ("/mapping/pci", "Mapping.Modify"),
        ("/sdn/zones/localnetwork/vmbr0", "SDN.Use"),
    ):
        assert rights.may(path, privilege), (path, privilege)


def test_a_vm_with_a_card_lives_and_dies(loop: Loop, site: Site) -> None:
    vm = machine(DISKS)
    power = VmPower("pve/api", "pve", 203, "vm-gpu", "running", 768, passthrough=True, console=True)
    site.lab.hypervisor.snippets["provision-lab-vm-gpu.yaml"] = "#cloud-config\n{}\n"  # type: ignore[attr-defined]  # the fake hypervisor has them
    loop.settle(image(site), CARD)
    loop.settle(vm, power)
    (started,) = site.guests.started
    assert (started.machine, started.firmware, started.cards, started.balloon) == ("q35", "ovmf", 1, False)
    assert started.cloud_init is not None
    assert started.cloud_init.user == "debian"

    before = loop.driver.round_trips
    loop.driver.answer(ask([image(site), CARD, vm, power]), Cancel())
    assert loop.driver.round_trips - before == 5

    settled = VmMarker(
        "pve/api", "pve", 203, MARK.settled(), snippet="local:snippets/provision-lab-vm-gpu.yaml"
    )
    loop.settle(settled)
    assert "cicustom" not in loop.see(vm)[vm.queries()[0]].config

    spoiled = {"name": "renamed", "description": "my own notes", "cores": 3}  # cores only wait
    loop.driver._connection.request("PUT", f"{vm.path}/config", spoiled)
    assert {each.path for each in vm.changes(loop.see(vm))} == {"name", "description", "cores"}
    loop.settle(vm)
    state = loop.see(vm)[vm.queries()[0]]
    assert (state.name, dict(state.pending), len(site.guests.started)) == ("vm-gpu", {}, 1)
    assert state.config["description"] == f"my own notes\n{MARK.settled()}"

    changed = replace(vm, settings=(*vm.settings[:3], ("cores", "2"), *vm.settings[4:]))
    results = power_cycled(loop, changed)
    assert {each.verdict for each in results} == {Verdict.DONE}, results
    assert changed.changes(loop.see(changed)) == ()
    assert len(site.guests.started) == 2

    loop.settle(VmAbsent("pve/api", "pve", 203, MARK))
    loop.settle(replace(CARD, absent=True), replace(image(site), absent=True))
    assert loop.see(vm)[vm.queries()[0]] is None


def power_cycled(loop: Loop, vm: Vm) -> list[Result]:
    snapshot = loop.see(vm)
    remedy = vm.fix(snapshot)
    assert isinstance(remedy, ApiCall)
    effect = Effect(vm_effects.POWER_CYCLE, "vm-gpu")
    assert remedy.effects == (effect,)
    return loop.driver.act("run", [Action(vm.key, "vm", remedy)], (effect,), lambda _: None, Cancel())
