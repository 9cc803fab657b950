"""A router that only a person changes: what is told, when, and what counts as done."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from provision.api.domains import load_inventory as load
from provision.api.reserved import confirm_reserved
from provision.dhcp.backends.manual import FOLDER
from provision.engine.model import Plan
from provision.testing.model_proxmox import ModelVm
from provision.values.cancel import Cancel
from provision.values.errors import UsageError
from provision.values.outcomes import ExitCode
from tests.model.model_site import ModelSite

INVENTORY = """
version: 1
name: home
policy: { allow: [power-cycle, delete] }
access: { user: debian, key: @FOLDER/key }
network: { cidr: 10.0.0.0/24, dhcp: { backend: manual, order: @ORDER, range: 10.0.0.100-10.0.0.199 } }
images: { debian-12: { url: "https://images.test/d.qcow2", sha256: "@SHA" } }
hypervisors:
  pve:
    address: 10.0.0.5
    reserve_address: true
    api: { token_id: "p@pve!x", token: !secret { file: @FOLDER/key }, fingerprint: "@PRINT" }
    ssh: { host_key: "SHA256:@KEY" }
profiles:
  small: { hypervisor: pve, image: debian-12, cores: 1, memory: 1GiB, disk: 4GiB, power: running }
nodes:
  vm-1: { profile: small, vmid: 101, address: 10.0.0.11 }
  vm-2: { profile: small, vmid: 102, address: 10.0.0.12 }
"""
POOL = "10.0.0.150"
"""What the router gives to a MAC that nobody reserved an address for."""


class Home(ModelSite):
    """Guests get an address of the pool until a person has typed their row into the router."""

    typed: frozenset[str] = frozenset()

    def _power(self, vm: ModelVm, on: bool) -> None:
        super()._power(vm, on)
        host = self.hosts[f"{vm.config['name']}/ssh"].state
        for mac in host.commands["link"]:
            if on and mac not in self.typed:
                host.commands["link"] = {mac: POOL.encode()}

    def person(self, question: str) -> bool:
        """Type the rows, and have every guest ask for its address anew."""
        self.typed |= {mac.lower() for mac in re.findall(r"(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}", question)}
        for name, node in self.inventory.nodes.items():
            host = self.hosts.get(f"{name}/ssh")
            for mac in self.typed.intersection(host.state.commands["link"] if host else ()):
                assert host is not None
                host.state.commands["link"] = {mac: node.address.encode()}
        return super().person(question)


@pytest.fixture(autouse=True)
def _nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provision.proxmox.driver.FIRST_POLL", 0.0)


def home(folder: Path, order: str) -> Home:
    (folder / "key").write_text("not a real key\n")
    (folder / "key.pub").write_text("ssh-ed25519 AAAA me\n")
    text = INVENTORY.replace("@FOLDER", str(folder)).replace("@ORDER", order).replace("@SHA", "a" * 64)
    text = text.replace("@PRINT", ":".join(["AA"] * 32)).replace("@KEY", "A" * 43)
    (folder / "home.yaml").write_text(text)
    return Home(load(folder / "home.yaml"), folder / "state")


def told(plan: Plan) -> list[str]:
    """Return the rows that a plan tells a person to type."""
    lines = [
        line
        for step in plan.steps
        for change in step.changes
        if change.by_hand is not None
        for line in change.by_hand.lines
    ]
    return [line for line in lines if ":" in line and not line.endswith(":")]


def test_the_plan_prints_the_table_with_the_hypervisors_own_row_once(tmp_path: Path) -> None:
    site = home(tmp_path, "reserve_first")
    rows = [line.split() for line in told(site.plan())]
    assert [row[1:] for row in rows] == [
        ["10.0.0.11", "vm-1"],
        ["10.0.0.5", "pve"],
        ["10.0.0.12", "vm-2"],
    ]
    assert rows[1][0] == "bc:24:11:00:00:05"
    assert len({row[0] for row in rows}) == 3


def test_reserve_first_waits_for_the_person_and_makes_no_vm(tmp_path: Path) -> None:
    site = home(tmp_path, "reserve_first")
    assert site.apply().exit_code == ExitCode.WAITING
    assert site.apis["pve/api"].vms == {}
    assert site.apply(ask=site.person).exit_code == ExitCode.DONE
    assert any("pve" in each for each in site.questions)
    assert site.plan().empty


def test_boot_first_makes_the_vms_and_asks_only_then(tmp_path: Path) -> None:
    site = home(tmp_path, "boot_first")
    assert told(site.plan()) == []
    first = site.apply()
    assert {vm.config["name"]: vm.running for vm in site.apis["pve/api"].vms.values()} == {
        "vm-1": True,
        "vm-2": True,
    }
    assert first.exit_code != ExitCode.DONE, "the guests have other addresses than declared"
    waiting = site.apply()
    assert waiting.exit_code == ExitCode.WAITING
    rows = [line.split() for line in told(site.plan())]
    assert [row[1:] for row in rows] == [["10.0.0.11", "vm-1"], ["10.0.0.5", "pve"], ["10.0.0.12", "vm-2"]]
    site.apply(ask=site.person)
    after = site.apply()  # a guest takes the address that is reserved by now at its next renewal
    assert after.exit_code == ExitCode.DONE
    assert len(site.questions) == 2, "nobody is asked twice"
    assert site.plan().empty


def test_a_word_given_beforehand_lets_an_unattended_run_finish(tmp_path: Path) -> None:
    site = home(tmp_path, "reserve_first")
    assert site.apply().exit_code == ExitCode.WAITING
    rows = confirm_reserved(site.site(), ["vm-1"], Cancel())
    assert [is_new for _, is_new in rows] == [True]
    assert confirm_reserved(site.site(), ["vm-1"], Cancel()) == ((rows[0][0], False),)
    site.typed |= {row[0].lower() for row in map(str.split, told(site.plan()))}
    site.typed |= {re.findall(r"for (\S+)", rows[0][0])[0].lower()}
    assert site.apply().exit_code == ExitCode.WAITING
    assert [vm.config["name"] for vm in site.apis["pve/api"].vms.values()] == ["vm-1"]
    confirm_reserved(site.site(), [], Cancel())
    assert site.apply().exit_code == ExitCode.DONE
    assert site.plan().empty
    words = sorted(path for path in site.hosts["pve/ssh"].state.files if path.startswith(f"{FOLDER}/"))
    assert words == [f"{FOLDER}/home.vm-1", f"{FOLDER}/home.vm-2"]
    assert site.destroy().exit_code == ExitCode.DONE
    assert [path for path in site.hosts["pve/ssh"].state.files if path.startswith(f"{FOLDER}/")] == []


def test_a_wrong_word_is_found_out_by_the_address(tmp_path: Path) -> None:
    site = home(tmp_path, "reserve_first")
    confirm_reserved(site.site(), [], Cancel())  # nobody typed anything
    report = site.apply()
    assert report.exit_code == ExitCode.ERROR
    codes = {problem.code for step in report.steps for problem in step.diagnostics}
    assert "LEASE_NOT_RESERVED_IP" in codes


def test_a_word_about_nothing_that_waits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="RESERVATION_NOT_BY_HAND"):
        confirm_reserved(home(tmp_path, "reserve_first").site(), ["vm-3"], Cancel())
