from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from provision.connections.contracts import ApiError
from provision.contracts.change import Key
from provision.contracts.driver import Action, Result, Verdict
from provision.contracts.effect import Effect
from provision.contracts.query import ApiGet, Unknown
from provision.contracts.remedy import ApiCall, Request
from provision.proxmox import marker as markers
from provision.proxmox import vm_effects
from provision.proxmox.driver import ProxmoxDriver
from provision.proxmox.queries import (
    Elsewhere,
    Mappings,
    Permissions,
    Rights,
    StorageContent,
    VmConfig,
    VmList,
    VmState,
)
from provision.proxmox.resources.vm_lifecycle import VmPower
from provision.proxmox.tasks import is_success, start_timeout, upid_of
from provision.testing.model_proxmox import ModelProxmox, ModelVm
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, Transient, UnknownOutcome

VM = {"name": "vm-1", "tags": "provision", "memory": "1024", "cores": "2"}


def model(*vmids: int, running: bool = False) -> ModelProxmox:
    return ModelProxmox(vms={vmid: ModelVm(vmid, dict(VM), running=running) for vmid in vmids})


def act(
    pve: ModelProxmox | ProxmoxDriver, *requests: Request, effects: tuple[Effect, ...] = ()
) -> list[Result]:
    driver = pve.driver() if isinstance(pve, ModelProxmox) else pve
    actions = [
        Action(Key("pve/api", "vm", str(index)), f"do {index}", ApiCall((request,)))
        for index, request in enumerate(requests)
    ]
    return driver.act("run", actions, effects, lambda _: None, Cancel())


def start(vmid: int) -> Request:
    return Request("POST", f"/nodes/pve/qemu/{vmid}/status/start", {}, task=60)


def test_knowing_a_hypervisor_costs_four_requests_and_one_a_vm() -> None:
    pve = model(101, 102)
    driver = pve.driver()
    queries = {
        Permissions(),
        VmList(),
        Mappings(),
        StorageContent("local"),
        *map(VmConfig, (101, 102, 103)),
    }
    snapshot = driver.answer(frozenset(queries), Cancel())
    assert driver.round_trips == 4 + 3
    assert snapshot[VmConfig(103)] is None
    assert snapshot[VmConfig(101)].config["cores"] == "2"
    assert snapshot.missing(queries) == frozenset()


def test_checks_read_the_configuration_without_a_further_request() -> None:
    pve = model(101, 102)
    driver = pve.driver()
    raw = [ApiGet(f"/nodes/pve/qemu/{vmid}/pending") for vmid in (101, 102)]
    mappings = ApiGet("/cluster/mapping/pci?check-node=pve")
    alone = driver.answer(frozenset({VmConfig(101), VmConfig(102), Mappings()}), Cancel())
    assert driver.round_trips == 3 + 2
    rows = {row["key"]: row.get("value") for row in json.loads(alone[raw[0]].text)}
    assert (alone[raw[0]].status, rows["cores"]) == (200, alone[VmConfig(101)].config["cores"])
    together = driver.answer(frozenset({VmConfig(101), VmConfig(102), Mappings(), *raw, mappings}), Cancel())
    assert driver.round_trips == 2 * (3 + 2)
    assert json.loads(together[mappings].text) == []


def test_a_check_gets_the_status_of_a_refused_request() -> None:
    pve = model()
    query = ApiGet("/nodes/pve/qemu/101/pending")
    reply = pve.driver().answer(frozenset({query}), Cancel())[query]
    assert (reply.status, pve.requests) == (500, 1)
    assert "does not exist" in reply.text


def test_one_vm_is_found_without_a_query_for_the_list() -> None:
    pve = model(101)
    assert isinstance(pve.driver().answer(frozenset({VmConfig(101)}), Cancel())[VmConfig(101)], VmState)
    assert pve.requests == 3


def test_a_token_without_rights_does_not_prove_absence() -> None:
    pve = model(101)
    pve.rights = {}
    answer = pve.driver().answer(frozenset({VmConfig(101)}), Cancel())[VmConfig(101)]
    assert isinstance(answer, Unknown)
    assert "VM.Audit" in answer.reason


def test_a_number_on_another_node_is_elsewhere() -> None:
    pve = model()
    pve.others = [{"vmid": 300, "node": "pve2", "type": "qemu", "name": "x", "status": "running"}]
    assert pve.driver().answer(frozenset({VmConfig(300)}), Cancel())[VmConfig(300)] == Elsewhere(
        "pve2", "qemu", "x"
    )


def test_power_and_existence_come_from_a_live_answer() -> None:
    pve = model(101)
    row = {"vmid": 102, "node": "pve", "type": "qemu", "name": "vm-2", "status": "running"}
    pve.others = [row]  # the cache still lists a VM that is gone
    snapshot = pve.driver().answer(frozenset({VmConfig(101), VmConfig(102)}), Cancel())
    assert (snapshot[VmConfig(101)].running, snapshot[VmConfig(102)]) == (False, None)
    pve.vms[101].running = True
    pve.log.clear()
    assert pve.driver().answer(frozenset({VmConfig(101)}), Cancel())[VmConfig(101)].running
    assert "/cluster/resources" not in [path for _, path, _ in pve.log]


def test_a_missing_storage_is_unknown_and_the_rest_is_answered() -> None:
    snapshot = model(101).driver().answer(frozenset({StorageContent("nope"), VmConfig(101)}), Cancel())
    assert isinstance(snapshot[StorageContent("nope")], Unknown)
    assert isinstance(snapshot[VmConfig(101)], VmState)


def test_an_unreachable_api_is_an_error_and_not_an_answer() -> None:
    pve = model()
    pve.faults["GET", "/nodes/pve/qemu"] = Transient(Diagnostic("API_UNREACHABLE", "x"))
    with pytest.raises(Transient):
        pve.driver().answer(frozenset({VmList()}), Cancel())


@pytest.mark.parametrize(
    ("path", "granted"),
    [("/vms/101", True), ("/vms", True), ("/storage/local", False), ("/", False), ("/pool/x", False)],
)
def test_rights_come_from_the_nearest_entry(path: str, granted: bool) -> None:
    rights = Rights({"/": {"VM.Audit": 0}, "/vms": {"VM.Audit": 1}, "/storage": {"VM.Audit": 0}, "/pool": {}})
    assert rights.may(path, "VM.Audit") is (granted or path == "/")


def test_actions_are_done_in_order_and_stop_at_the_first_failure() -> None:
    pve = model(101)
    results = act(pve, start(101), start(999), start(101))
    assert [result.verdict for result in results] == [Verdict.DONE, Verdict.FAILED, Verdict.NOT_BEGUN]
    assert results[1].diagnostic is not None
    assert "does not exist" in results[1].diagnostic.summary


def test_a_vm_that_already_runs_is_started() -> None:
    assert act(model(101, running=True), start(101))[0].verdict is Verdict.DONE


def test_a_failed_task_has_its_log_as_evidence() -> None:
    pve = model(101)
    pve.vms[101].config["hostpci0"] = "mapping=gone,pcie=1"
    (result,) = act(pve, start(101))
    assert result.verdict is Verdict.FAILED
    assert result.diagnostic is not None
    assert result.diagnostic.code == "MAPPING_MISSING"
    assert result.output == ("TASK ERROR: PCI device mapping not found for 'gone'",)
    assert result.handle.startswith("UPID:pve:")


def test_a_lost_answer_is_indeterminate_and_nothing_follows() -> None:
    pve = model(101, 102)
    pve.faults["POST", start(101).path] = UnknownOutcome(Diagnostic("API_ANSWER_LOST", "x"))
    results = act(pve, start(101), start(102))
    assert [result.verdict for result in results] == [Verdict.INDETERMINATE, Verdict.NOT_BEGUN]
    assert not pve.vms[102].running


def test_a_changed_configuration_is_not_overwritten() -> None:
    pve = model(101)
    path = "/nodes/pve/qemu/101/config"
    (result,) = act(pve, Request("PUT", path, {"cores": 4, "digest": "old"}))
    assert result.diagnostic is not None
    assert result.diagnostic.code == "CONFIG_CHANGED_MEANWHILE"


@pytest.mark.parametrize(
    ("meanwhile", "verdict"),
    [
        ({"lock": "backup"}, Verdict.DONE),
        ({"parent": "snapshot-1"}, Verdict.DONE),
        ({"memory": "2048"}, Verdict.DONE),
        ({"cores": "8"}, Verdict.FAILED),
        ({"tags": "theirs"}, Verdict.FAILED),
    ],
)
def test_only_a_change_of_what_is_written_stops_a_write(meanwhile: dict[str, str], verdict: Verdict) -> None:
    pve = model(101)
    driver = pve.driver()
    state = driver.answer(frozenset({VmConfig(101)}), Cancel())[VmConfig(101)]
    pve.vms[101].config.update(meanwhile)
    data = {"cores": 4, "delete": "tags", "digest": state.digest}
    (result,) = act(driver, Request("PUT", "/nodes/pve/qemu/101/config", data))
    assert result.verdict is verdict
    assert pve.vms[101].config["cores"] == ("4" if verdict is Verdict.DONE else {**VM, **meanwhile}["cores"])


def test_two_writes_to_one_configuration_follow_each_other() -> None:
    pve = model(101)
    digest = pve.vms[101].digest
    path = "/nodes/pve/qemu/101/config"
    results = act(
        pve, *(Request("PUT", path, {key: "x", "digest": digest}) for key in ("tags", "description"))
    )
    assert [result.verdict for result in results] == [Verdict.DONE, Verdict.DONE]


def test_a_power_cycle_applies_what_is_pending() -> None:
    pve = model(101, running=True)
    effect = Effect(vm_effects.POWER_CYCLE, "vm-1")
    results = act(pve, Request("PUT", "/nodes/pve/qemu/101/config", {"cores": 4}), effects=(effect,))
    assert [result.verdict for result in results] == [Verdict.DONE, Verdict.DONE]
    vm = pve.vms[101]
    assert (vm.running, vm.config["cores"], vm.pending) == (True, "4", {})


def owing(pve: ModelProxmox) -> str:
    match = markers.read(pve.vms[101].config["description"])
    assert match is not None
    return match.owes


def test_a_power_cycle_keeps_the_notes_and_leaves_no_start_due() -> None:
    pve = model(101, running=True)
    pve.vms[101].config["description"] = notes = "mine\nprovision: inventory=lab node=vm-1 replace=tok\ntoo"
    act(pve, effects=(Effect(vm_effects.POWER_CYCLE, "vm-1"),))
    assert pve.vms[101].config["description"] == notes


@pytest.mark.parametrize("end", ["shutdown", "start"])
def test_after_a_cut_power_cycle_the_start_is_due_until_it_is_done(end: str) -> None:
    pve = model(101, running=True)
    pve.vms[101].config["description"] = notes = "mine\nprovision: inventory=lab node=vm-1"
    pve.faults["POST", f"/nodes/pve/qemu/101/status/{end}"] = ApiError(500, "no")
    (result,) = act(pve, effects=(Effect(vm_effects.POWER_CYCLE, "vm-1"),))
    assert (result.verdict, owing(pve)) == (Verdict.FAILED, "start")
    driver = pve.driver()
    query = VmConfig(101)
    snapshot = driver.answer(frozenset({query}), Cancel())
    power = VmPower("pve/api", "pve", 101, "vm-1", "running")
    assert power.changes(snapshot)
    remedy = power.fix(snapshot)
    assert isinstance(remedy, ApiCall)
    (done,) = driver.act("run", [Action(power.key, "start", remedy)], (), lambda _: None, Cancel())
    assert done.verdict is Verdict.DONE
    assert pve.vms[101].running
    assert pve.vms[101].config["description"] == notes
    assert power.changes(driver.answer(frozenset({query}), Cancel())) == ()


def test_a_vm_that_is_off_as_declared_has_no_due_start() -> None:
    for running in (True, False):
        pve = model(101, running=running)
        pve.vms[101].config["description"] = "provision: inventory=lab node=vm-1 owes=start"
        driver = pve.driver()
        snapshot = driver.answer(frozenset({VmConfig(101)}), Cancel())
        power = VmPower("pve/api", "pve", 101, "vm-1", "stopped")
        remedy = power.fix(snapshot)
        assert isinstance(remedy, ApiCall)
        assert bool(remedy.risks) is running
        driver.act("run", [Action(power.key, "stop", remedy)], (), lambda _: None, Cancel())
        assert (pve.vms[101].running, owing(pve)) == (False, "")


def test_only_a_managed_vm_is_power_cycled() -> None:
    pve = model(101, running=True)
    pve.vms[101].config["tags"] = "theirs"
    (result,) = act(pve, effects=(Effect(vm_effects.POWER_CYCLE, "vm-1"),))
    assert result.diagnostic is not None
    assert result.diagnostic.code == "VM_NOT_FOUND"


class Scripted:
    """An API that answers a fixed sequence."""

    def __init__(self, *answers: object) -> None:
        self.requests = 0
        self._answers = list(answers)

    def request(self, _method: str, _path: str, _data: Mapping[str, object] | None = None) -> object:
        self.requests += 1
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        pass


class Impatient(Cancel):
    """Counts instead of sleeping."""

    waited = 0.0

    def wait(self, seconds: float) -> None:
        self.waited += seconds


UPID = "UPID:pve:0000022D:0004EF62:6B0C2BC5:qmstart:102:prov@pve!tt:"


def run(api: Scripted, cancel: Impatient) -> Result:
    driver = ProxmoxDriver("pve/api", api, "pve", clock=lambda: cancel.waited)
    action = Action(Key("pve/api", "vm", "x"), "start", ApiCall((start(102),)))
    return driver.act("run", [action], (), lambda _: None, cancel)[0]


@pytest.mark.parametrize(
    ("status", "verdict", "code"),
    [
        ("OK", Verdict.DONE, ""),
        ("WARNINGS: 1", Verdict.DONE, ""),
        ("unexpected status", Verdict.INDETERMINATE, "TASK_UNKNOWN"),
        ("q35 machine model is not enabled", Verdict.FAILED, "MACHINE_NOT_Q35"),
        ("a text that nobody has seen", Verdict.FAILED, "TASK_FAILED"),
    ],
)
def test_a_task_ends_by_its_exit_status(status: str, verdict: Verdict, code: str) -> None:
    stopped = {"status": "stopped", "exitstatus": status}
    api = Scripted(UPID, {"status": "running"}, stopped, [{"n": 1, "t": "line"}])
    result = run(api, Impatient())
    assert result.verdict is verdict
    assert (result.diagnostic.code if result.diagnostic is not None else "") == code


def test_a_task_that_exceeds_its_deadline_is_indeterminate() -> None:
    result = run(Scripted(UPID, *([{"status": "running"}] * 200)), Impatient())
    assert (result.verdict, result.handle) == (Verdict.INDETERMINATE, UPID)


def test_an_unreachable_api_is_asked_again_while_a_task_runs() -> None:
    away = Transient(Diagnostic("API_UNREACHABLE", "x"))
    assert (
        run(Scripted(UPID, away, {"status": "stopped", "exitstatus": "OK"}), Impatient()).verdict
        is Verdict.DONE
    )


def test_a_task_that_cannot_be_read_any_more_is_indeterminate() -> None:
    refused = Permanent(Diagnostic("API_AUTH_FAILED", "the token is gone"))
    result = run(Scripted(UPID, refused), Impatient())
    assert (result.verdict, result.handle) == (Verdict.INDETERMINATE, UPID)


def test_locks_are_waited_for() -> None:
    text = "can't lock file '/var/lock/qemu-server/lock-102.conf' - got timeout"
    cancel = Impatient()
    stopped = {"status": "stopped", "exitstatus": "VM is locked (backup)"}
    api = Scripted(ApiError(500, text), UPID, stopped, UPID, {"status": "stopped", "exitstatus": "OK"})
    assert run(api, cancel).verdict is Verdict.DONE
    assert cancel.waited > 0


def test_a_lock_that_stays_is_reported() -> None:
    api = Scripted(*([ApiError(500, "VM is locked (migrate)")] * 100))
    result = run(api, Impatient())
    assert result.diagnostic is not None
    assert (result.verdict, result.diagnostic.code) == (Verdict.FAILED, "VM_LOCKED")


@pytest.mark.parametrize(
    ("memory", "passthrough", "seconds"), [(4096, False, 35), (16384, True, 125), (524288, True, 2053)]
)
def test_a_start_may_take_as_long_as_pve_allows(memory: int, passthrough: bool, seconds: float) -> None:
    assert start_timeout(memory, passthrough) == seconds


def test_only_whole_identifiers_are_tasks() -> None:
    match = upid_of(UPID)
    assert match is not None
    assert match.node == "pve"
    for text in (None, "", 5, UPID[:-1], f"x{UPID}", "UPID:pve"):
        assert upid_of(text) is None
    assert not is_success("OKAY")


def test_a_vm_that_was_renamed_is_power_cycled_by_its_number() -> None:
    pve = model(101, 102)
    pve.vms[101].config["name"] = "called-otherwise"
    pve.vms[102].config["name"] = "vm-1"
    for vm in pve.vms.values():
        vm.running = True
    driver = ProxmoxDriver("pve/api", pve, "pve", vmids={"vm-1": 101})
    driver.act("run", (), (Effect(vm_effects.POWER_CYCLE, "vm-1"),), lambda _: None, Cancel())
    touched = {path for method, path, _ in pve.log if method == "POST"}
    assert touched == {"/nodes/pve/qemu/101/status/shutdown", "/nodes/pve/qemu/101/status/start"}


def test_a_list_that_no_reader_takes_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    pve = model(101)
    request = pve.request

    def odd(method: str, path: str, data: Mapping[str, object] | None = None) -> object:
        return [{"vmid": "9" * 5000}] if path.endswith("/qemu") else request(method, path, data)

    monkeypatch.setattr(pve, "request", odd)
    snapshot = pve.driver().answer(frozenset({VmList(), Permissions()}), Cancel())
    assert isinstance(snapshot[VmList()], Unknown)
    assert not isinstance(snapshot[Permissions()], Unknown)
