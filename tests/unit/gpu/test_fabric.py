# ruff: noqa: E501 - a table with one case a line
"""The NVLink fabric: when it is out of order, who may be ended for its cure, and in which order that goes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provision.api import read_playbook
from provision.api.domains import load_inventory as load
from provision.contracts.query import Frame, Unknown
from provision.contracts.remedy import Fix, Impossible
from provision.contracts.resource import remedy_of
from provision.contracts.snapshot import Snapshot
from provision.gpu.fabric import DAEMON, FABRIC_STATE_KIND, MARK, FabricState, FabricStatus, ResetFabric
from provision.gpu.resources.fabric import NvlinkFabric
from provision.gpu.roles import nvls_recovery
from provision.inventory import Inventory, Subject
from provision.testing.model_host import ModelHost, guest_state
from provision.testing.model_state import ModelUnit
from tests.unit.hosts.converge import converge, differing, snapshot_of
from tests.unit.hosts.roles.test_shipped_inventories import resources_of

NODE = Subject("node", "n1")
SITE = """version: 1
name: site
access: { user: root }
nodes:
  n1: { address: 10.0.0.9, gpu_cards: { count: 8, nvswitch: true } }
  n2: { address: 10.0.0.10, gpu_cards: { count: 1 } }
"""
LINE = "[ 4711.250000] gpu05 kernel: NVRM: nvAssertOkFailedNoLog: NV_ERR_FABRIC_STATE_OUT_OF_SYNC (0x7A)"
HEALTHY = "unit|active\nreset|\nlog|yes\ncard|00000000:18:00.0, Completed, Success\ndone|\n"


def read(text: str) -> FabricStatus | Unknown:
    answer = FABRIC_STATE_KIND.parse(Frame(text.encode(), b"", 0), [FabricState()])[FabricState()]
    assert isinstance(answer, FabricStatus | Unknown)
    return answer


CASES = [
    ("in order", HEALTHY, []),
    ("the daemon was killed", HEALTHY.replace("active", "failed"), ["fabric manager"]),
    ("a card did not join", HEALTHY.replace("Completed, Success", "In Progress, N/A"), ["fabric state"]),
    ("cards without a fabric", HEALTHY.replace("Completed, Success", "[N/A], [N/A]"), []),
    ("the kernel says so, the cards do not", HEALTHY.replace("log|", f"line|{LINE}\nlog|"), ["kernel log"]),
    ("that was before the reset", HEALTHY.replace("reset|", f"reset|5000.1\nline|{LINE}"), []),
    ("that was after the reset", HEALTHY.replace("reset|", f"reset|4000.1\nline|{LINE}"), ["kernel log"]),
    ("a line without a time", HEALTHY.replace("log|", "line|NVRM: NV_ERR_FABRIC\nlog|"), ["kernel log"]),
    ("no daemon is installed", HEALTHY.replace("unit|active\n", ""), []),
]


@pytest.mark.parametrize(("text", "names"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_fabric_is_out_of_order_by_any_of_three_signs(text: str, names: list[str]) -> None:
    status = read(text)
    assert isinstance(status, FabricStatus)
    assert [name for name, _, _ in status.faults] == names


@pytest.mark.hypothesis
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 200), st.text(max_size=20), st.integers(0, 40))
def test_any_answer_is_a_fabric_or_unknown(start: int, text: str, length: int) -> None:
    whole = HEALTHY.replace("log|", f"line|{LINE}\nlog|")
    assert read(whole[:start] + text.replace("\ud800", "") + whole[start + length :]) is not None


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    (tmp_path / "site.yaml").write_text(SITE)
    return load(tmp_path / "site.yaml", environ={})


def node(*log: str) -> ModelHost:
    state = guest_state()
    state.kernel_log = log
    state.units[DAEMON] = ModelUnit()
    return ModelHost("n1/ssh", state)


def test_a_fabric_in_order_is_left_alone(inventory: Inventory) -> None:
    host = node("NVRM: loading NVIDIA UNIX x86_64 Kernel Module")
    assert not converge(host, resources_of(nvls_recovery, inventory, NODE, host))
    assert not nvls_recovery.declared(inventory, Subject("node", "n2"))


def test_a_reset_cures_it_and_asks_for_consent(inventory: Inventory) -> None:
    host = node(LINE)
    host.state.units[DAEMON].active = False
    resources = resources_of(nvls_recovery, inventory, NODE, host)
    (resource,) = differing(host, resources)
    remedy = remedy_of(resource, snapshot_of(host, resources))
    assert isinstance(remedy, Fix)
    assert [str(risk) for risk in remedy.risks] == ["gpu-pods-lose-device n1"]
    assert converge(host, resources)
    assert not converge(host, resources_of(nvls_recovery, inventory, NODE, host))


def test_nothing_is_reset_blindly() -> None:
    blind = FabricStatus("failed", (), (), is_readable=False)
    refused = NvlinkFabric("n1/ssh").operations(Snapshot("n1/ssh", answers={FabricState(): blind}))
    assert isinstance(refused, Impossible)
    assert refused.diagnostic.code == "FABRIC_LOG_UNREADABLE"


def test_the_cure_is_gated_and_no_part_of_an_apply() -> None:
    (step, proof) = read_playbook("nvls-recovery").entries
    assert step.gate
    assert (step.serial, step.stop_on_failure, proof.checks) == (1, True, ("gpu",))
    assert "nvls_recovery" not in [entry.role for entry in read_playbook("site").entries]


def reset(folder: Path, users: str) -> tuple[int, list[str], str]:
    """Run the reset with programs that write down what is asked of them."""
    log = folder / "log"
    log.touch()
    active = f"k3s.service {DAEMON} nvidia-persistenced.service"
    programs = {
        "systemctl": f'case $1 in -q) case " {active} " in *" $3 "*) exit 0;; esac; exit 3;; esac; echo "$*" >>{log}',
        "nvidia-smi": f'echo "nvidia-smi $*" >>{log}',
        "sleep": ":",
        "find": f"cat {folder}/users; : >{folder}/users",
    }
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    (folder / "users").write_text(users)
    script = "set -eu\n" + ResetFabric(("k3s.service", "k3s-agent.service")).shell().replace(
        MARK, f"{folder}/mark"
    )
    path = f"{folder}:{os.environ['PATH']}"
    ended = subprocess.run(
        ["sh", "-c", f"( {script}\n)"], env={"PATH": path}, capture_output=True, text=True, check=False
    )
    return ended.returncode, log.read_text().splitlines(), ended.stderr


def test_the_cure_stops_resets_and_starts_again_in_this_order(tmp_path: Path) -> None:
    code, log, _ = reset(tmp_path, "")
    assert code == 0
    first = log.index("nvidia-smi -r")
    assert log[:first] == [
        f"stop {unit}"
        for unit in (
            "k3s.service",
            "k3s-agent.service",
            "nvidia-snapshot.timer",
            "nvidia-snapshot.service",
            "nvidia-dcgm.service",
            "nvidia-persistenced.service",
            DAEMON,
        )
    ]
    assert log[first + 1 : first + 3] == [f"reset-failed {DAEMON}", f"start {DAEMON}"]
    # What did not run before is not started.
    assert log[first + 3 :] == [f"start {DAEMON}", "start nvidia-persistenced.service", "start k3s.service"]
    assert float((tmp_path / "mark").read_text()) > 0


def test_a_program_of_somebody_else_is_never_ended(tmp_path: Path) -> None:
    code, log, text = reset(tmp_path, f"/proc/{os.getpid()}/fd/7\n")
    assert (code, log) == (1, [])
    assert f"process {os.getpid()}" in text
