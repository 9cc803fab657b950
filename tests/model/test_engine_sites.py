"""Every shipped inventory on models: plan, apply, plan is empty, destroy leaves nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from provision.api import Options
from provision.api.domains import effect_classes
from provision.api.domains import load_inventory as load
from provision.api.support import unsupported
from provision.inventory import Inventory
from provision.values.outcomes import ExitCode
from tests.model.k3s_site import pinned
from tests.model.model_site import DeadError, ModelSite

INVENTORIES = Path(__file__).parents[2] / "inventories"
PIN = "a" * 64
FINGERPRINT = ":".join(["AA"] * 32)
HOST_KEY = "SHA256:" + "A" * 43


def lab(folder: Path, *, one_vm: bool = False) -> Inventory:
    """Return the lab's inventory with what the lab would fill in; one VM is the one with the card."""
    folder.mkdir(parents=True, exist_ok=True)
    key = folder / "key"
    key.write_text("not a real key\n")
    (folder / "key.pub").write_text("ssh-ed25519 AAAA me\n")
    overlay = folder / "overlay.yaml"
    overlay.write_text(
        f"""
access: {{ key: {key} }}
images: {{ debian-12: {{ url: "https://images.test/d.qcow2", sha256: "{PIN}" }} }}
hypervisors:
  pve:
    api: {{ token_id: "p@pve!x", token: !secret {{ file: {key} }}, fingerprint: "{FINGERPRINT}" }}
    ssh: {{ host_key: "{HOST_KEY}" }}
network: {{ dhcp: {{ ssh: {{ host_key: "{HOST_KEY}" }} }} }}
{"nodes: { vm-1: null, vm-2: null }" if one_vm else ""}
"""
    )
    return load(INVENTORIES / "lab.yaml", overlays=[overlay])


@pytest.fixture(autouse=True)
def _tasks_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provision.proxmox.driver.FIRST_POLL", 0.0)
    monkeypatch.setattr("provision.verify.plugin.SETTLING", 0.0)  # models know no clock that settles


def test_the_lab_from_nothing_to_nothing(tmp_path: Path) -> None:
    inventory = lab(tmp_path)
    site = ModelSite(inventory, tmp_path / "state")
    boots = site.hosts["pve/ssh"].state.boots
    first = site.apply()
    assert first.exit_code == 0, [step for step in first.steps if step.diagnostics]
    assert site.hosts["pve/ssh"].state.boots == boots + 1, "the hypervisor booted once for all of its changes"
    assert site.plan().empty

    second = site.apply()
    assert {str(step.outcome) for step in second.steps} == {"unchanged"}
    assert second.trips == {
        "pve/ssh": 1,
        "pve/api": 4 + len(inventory.nodes),
        "router": 1,
        "vm-1/ssh": 1,
        "vm-2/ssh": 1,
        "vm-gpu/ssh": 1,
    }

    assert site.destroy().exit_code == 0
    left = site.apis["pve/api"].dump()
    assert left["vms"] == {}
    assert left["mappings"] == {}
    assert site.hosts["router"].state.below("/etc/dnsmasq.d/hosts/") == []


def test_the_first_plan_shows_what_needs_no_answer_of_a_machine_to_come(tmp_path: Path) -> None:
    inventory = lab(tmp_path)
    plan = ModelSite(inventory, tmp_path / "state").plan()
    assert {step.step.subject.name for step in plan.steps if step.late} >= set(inventory.nodes)
    for node in inventory.nodes.values():
        shown = {
            f"{change.key.kind} {part.path}"
            for step in plan.steps
            for change in step.changes
            for part in change.changes
            if change.key.system == f"{node.name}/ssh"
        }
        assert "package ca-certificates" in shown, "although the time daemon needs an answer"
        assert "file content" in shown, "although the line of /etc/hosts needs an answer"
        assert not {"time-sync", "sysctl"} & {kind.partition(" ")[0] for kind in shown}


def test_a_machine_that_is_off_may_have_everything_already(tmp_path: Path) -> None:
    inventory = lab(tmp_path, one_vm=True)
    site = ModelSite(inventory, tmp_path / "state")
    assert site.apply().exit_code == 0
    site.apis["pve/api"].vms[inventory.nodes["vm-gpu"].vmid or 0].running = False
    plan = site.plan()
    late = [step for step in plan.steps if step.late and step.step.subject.name == "vm-gpu"]
    assert late
    assert [change.key for step in late for change in step.changes if change.key.system == "vm-gpu/ssh"] == []


def test_without_the_state_folder_the_plan_is_empty_too(tmp_path: Path) -> None:
    inventory = lab(tmp_path)
    site = ModelSite(inventory, tmp_path / "state")
    site.apply()
    site.state = tmp_path / "another"
    assert site.plan().empty


def test_the_generated_secrets_are_in_no_file_of_the_controller(tmp_path: Path) -> None:
    inventory = lab(tmp_path)
    site = ModelSite(inventory, tmp_path / "state")
    made: list[str] = []
    opened = site.site()
    try:
        generated = opened.environment.generated

        def spy() -> object:
            values = generated()
            host_key = values.host_key

            def host_key_of(purpose: str) -> object:
                pair = host_key(purpose)
                made.append(pair.private.get_secret_value().splitlines()[2])
                return pair

            values.host_key = host_key_of  # type: ignore[method-assign,assignment]  # the key is made in advance
            return values

        object.__setattr__(opened.environment, "generated", spy)
        from provision.values.cancel import Cancel  # noqa: PLC0415 - beside its use

        report = opened.apply(None, Options(), site.events.append, Cancel(), lambda _: True)
    finally:
        opened.close()
    assert report.exit_code == 0
    assert made
    text = b"".join(path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file())
    shown = str([event.as_json() for event in site.events])
    for secret in made:
        assert secret.encode() not in text
        assert secret not in shown


def test_verification_asks_in_advance_what_it_asked_last_time(tmp_path: Path) -> None:
    site = ModelSite(lab(tmp_path, one_vm=True), tmp_path / "state", checks=True)
    first = site.apply()
    assert first.verification is not None
    again = site.apply()
    assert again.trips["pve/ssh"] == 1
    assert again.trips["vm-gpu/ssh"] == 1
    assert again.trips["router"] == 1


def test_a_run_killed_at_any_boundary_is_finished_by_the_next(tmp_path: Path) -> None:
    inventory = lab(tmp_path, one_vm=True)
    whole = ModelSite(inventory, tmp_path / "whole")
    assert whole.apply().exit_code == 0
    assert whole.life.boundaries > 50
    uninterrupted = _settled(whole.dump())
    for boundary in range(1, whole.life.boundaries + 1):
        site = ModelSite(inventory, tmp_path / str(boundary))
        site.life.kill_at = boundary
        with pytest.raises(DeadError):
            site.apply()
        where = site.life.log[-1]
        site.life = type(site.life)()
        report = site.apply()
        assert report.exit_code == 0, (boundary, where, [step for step in report.steps if step.diagnostics])
        assert site.plan().empty, (boundary, where)
        assert _settled(site.dump()) == uninterrupted, (boundary, where)


def _settled(dump: object) -> str:
    """Return a dump without what is made anew in every run: host keys and their fingerprints.

    A kill between a package and its unit leaves another first state to be noted.
    """
    text = re.sub(r"SHA256:[A-Za-z0-9+/]{43}", "SHA256:*", repr(_sorted(dump)))
    text = re.sub(r"uuid=[0-9a-f-]{36},family=[A-Za-z0-9+/=]+", "uuid=*,family=*", text)
    text = re.sub(r"ssh-ed25519 [A-Za-z0-9+/]{20,}", "ssh-ed25519 *", text)
    return re.sub(r"-----BEGIN OPENSSH.*?END OPENSSH PRIVATE KEY-----", "private *", text)


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        kept = {**value, "read": "*"} if value.get("config") == ("/etc/ssh/",) else value
        kept = {**kept, "noted": "*"} if "noted" in kept else kept
        return {key: _sorted(kept[key]) for key in sorted(kept, key=str)}
    return value


@pytest.mark.parametrize("name", ["homelab", "h100-pair", "h100-kai", "h100-kai-fractions"])
def test_other_shipped_inventories_converge_as_far_as_roles_exist(name: str, tmp_path: Path) -> None:
    site = ModelSite(credentials(name, tmp_path), tmp_path)
    opened = site.site()
    missing = {step for feature in unsupported(opened.inventory) for step in feature.steps}
    if name == "h100-kai-fractions":
        missing.add("gpu_sharing")  # its charts are files that nobody may ship
    steps = tuple(role for role in opened.environment.roles if role not in missing)
    options = Options(steps=steps, allow=frozenset(effect_classes()))
    report = site.apply(options, ask=site.person)
    assert report.exit_code in {ExitCode.DONE, ExitCode.WAITING}, [
        (each.id, each.diagnostics) for each in report.steps if each.diagnostics
    ]
    assert name != "homelab" or any(each.outcome == "changed" for each in report.steps)
    left = [each for each in site.plan(options).steps if each.changes or each.late or each.problem]
    assert left == []


def credentials(name: str, folder: Path) -> Inventory:
    """Return a shipped inventory with credentials that exist, and the pins of its release of k3s."""
    key = folder / "key"
    key.write_text("not a real key\n")
    (folder / "key.pub").write_text("ssh-ed25519 AAAA me\n")
    plain = load(INVENTORIES / f"{name}.yaml")
    own = f"{{ token_id: 'p@pve!x', token: !secret {{ file: {key} }}, fingerprint: '{FINGERPRINT}' }}"
    hypervisors = ", ".join(f"{hypervisor}: {{ api: {own} }}" for hypervisor in plain.hypervisors)
    images = ", ".join(f"{image}: {{ sha256: '{PIN}' }}" for image in plain.images)
    overlay = folder / "overlay.yaml"
    overlay.write_text(
        f"access: {{ key: {key} }}\n"
        + (f"hypervisors: {{ {hypervisors} }}\n" if hypervisors else "")
        + (f"images: {{ {images} }}\n" if images else "")
    )
    return pinned(load(INVENTORIES / f"{name}.yaml", overlays=[overlay]))
