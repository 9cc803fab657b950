from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from provision.api import Site
from provision.api.import_vms import adopt, adoption
from provision.cli import main, vms
from provision.proxmox import marker
from provision.testing.model_host import ModelFile
from provision.values.cancel import Cancel
from provision.values.errors import Permanent, Refused
from tests.unit.proxmox.roles.world import INVENTORY, World

T = TypeVar("T")
KEY = "SHA256:" + "k" * 43


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A site whose VM 101 carries neither tag nor marker."""
    world = World(tmp_path)
    world.apply()
    config = world.pve.vms[101].config
    config.update({"description": "made by hand", "tags": "web", "cores": "1", "name": "old-web"})
    world.pve.log.clear()
    return world


def with_site(world: World, call: Callable[[Site], T]) -> T:
    site = world.site()
    try:
        return call(site)
    finally:
        site.close()


def writes(world: World) -> list[tuple[str, str, set[str]]]:
    return [(method, path, set(data)) for method, path, data in world.pve.log if method != "GET"]


def test_looking_shows_what_differs_and_writes_nothing(world: World) -> None:
    found = with_site(world, lambda site: adoption(site, "vm-1", Cancel()))
    assert (found.vmid, found.name, found.running, found.ours) == (101, "old-web", True, False)
    assert [(each.path, each.old, each.new) for each in found.changes] == [
        ("name", "old-web", "vm-1"),
        ("cores", "1", "2"),
    ]
    assert writes(world) == []


def test_a_vm_that_is_off_says_that_it_will_be_started(world: World) -> None:
    world.pve.vms[101].running = False
    found = with_site(world, lambda site: adoption(site, "vm-1", Cancel()))
    assert not found.running
    assert ("power", "stopped", "running") in [(each.path, each.old, each.new) for each in found.changes]


def test_adopting_writes_tag_and_marker_and_nothing_else(world: World) -> None:
    before = dict(world.pve.vms[101].config)
    assert with_site(world, lambda site: adopt(site, "vm-1", KEY, Cancel()))
    path = "/nodes/pve/qemu/101/config"
    assert writes(world) == [("PUT", path, {"description", "tags", "digest"})]
    after = world.pve.vms[101].config
    assert {key for key in after if after[key] != before.get(key)} == {"description", "tags"}
    assert after["tags"] == "provision;web"
    assert after["description"].startswith("made by hand\n")
    assert marker.read(after["description"]) == marker.Marker("site", "vm-1", KEY)
    assert not with_site(world, lambda site: adopt(site, "vm-1", KEY, Cancel()))


def test_what_was_adopted_is_reached_by_its_key_and_mended_by_apply(world: World) -> None:
    key = world.host_key("vm-1")
    world.pve.vms[101].config["name"] = "vm-1"  # by which the model finds its guest
    with_site(world, lambda site: adopt(site, "vm-1", key, Cancel()))
    report = world.apply()
    assert report.exit_code == 0, [(str(each.id), each.diagnostics) for each in report.steps]
    assert world.pve.vms[101].config["cores"] == "2"
    assert world.host_key("vm-1") == key
    assert world.plan().empty


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda world: world.pve.vms.pop(101), "VM_ABSENT"),
        (
            lambda world: world.pve.vms[101].config.update(description="provision: inventory=x node=y"),
            "VMID_TAKEN_FOREIGN",
        ),
        (
            lambda world: (
                world.pve.vms.pop(101),
                world.pve.others.append(
                    {"vmid": 101, "node": "pve", "type": "lxc", "name": "box", "status": "running"}
                ),
            ),
            "VMID_TAKEN_FOREIGN",
        ),
    ],
    ids=["absent", "of-another-inventory", "container"],
)
def test_what_cannot_be_adopted_is_left(world: World, spoil: Callable[[World], object], code: str) -> None:
    spoil(world)
    with pytest.raises(Permanent, match=code):
        with_site(world, lambda site: adopt(site, "vm-1", KEY, Cancel()))
    assert writes(world) == []


# ---------------------------------------------------------------- a node that was renamed


@pytest.fixture
def renamed(tmp_path: Path) -> World:
    """A site whose node vm-1 is called web now, and has the number that it had."""
    world = World(tmp_path)
    assert world.apply().exit_code == 0
    world.write(INVENTORY.replace("  vm-1: {", "  web: {"))
    world.pve.log.clear()
    return world


def test_a_plan_says_that_the_number_is_the_old_names_and_what_helps(renamed: World) -> None:
    (problem,) = [each for each in renamed.plan().refusals if each.code == "VMID_TAKEN_FOREIGN"]
    assert problem.summary == "VMID 101 of web belongs to node vm-1 of inventory site"
    command = f"provision import {renamed.folder / 'site.yaml'} web"
    assert problem.remedy.endswith(f"if vm-1 is called web now, take the VM over: `{command}`")
    for prune in (False, True):
        with pytest.raises(Refused, match="VMID_TAKEN_FOREIGN"):
            renamed.apply(prune=prune)
    assert writes(renamed) == []


def test_its_vm_is_taken_over_with_its_key_and_nothing_is_made_anew(renamed: World) -> None:
    found = with_site(renamed, lambda site: adoption(site, "web", Cancel()))
    key = renamed.host_key("vm-1")
    assert (found.ours, found.host_keys) == (False, (key,))
    assert [(each.path, each.old, each.new) for each in found.changes] == [("name", "vm-1", "web")]
    assert with_site(renamed, lambda site: adopt(site, "web", key, Cancel()))
    assert writes(renamed) == [("PUT", "/nodes/pve/qemu/101/config", {"description", "digest"})]
    config = renamed.pve.vms[101].config
    assert marker.read(config["description"]) == marker.Marker("site", "web", key)
    renamed.guests["web"] = renamed.guests["vm-1"]
    plan = renamed.plan()
    assert [str(change.key) for step in plan.steps for change in step.changes] == ["pve/api:vm:web"]
    assert plan.refusals == ()
    assert plan.orphans == ("router:dhcp-reservation:vm-1",)
    born = renamed.pve.vms[101]
    assert renamed.apply(prune=True).exit_code == 0
    assert renamed.plan().orphans == ()
    assert renamed.pve.vms[101] is born
    assert (born.config["name"], renamed.host_key("web")) == ("web", key), "the host key is the same"


@pytest.mark.parametrize("left", ["first-key", "cicustom"])
def test_a_first_contact_that_was_cut_off_is_ended_under_the_old_name(renamed: World, left: str) -> None:
    snippet = "/var/lib/vz/snippets/provision-site-vm-1.yaml"
    renamed.host.files[snippet] = ModelFile(b"with a private key\n", "0600")
    config, key = renamed.pve.vms[101].config, renamed.host_key("vm-1")
    if left == "first-key":
        config["description"] += f" first-key={KEY}"
    config["cicustom"] = "vendor=local:snippets/provision-site-vm-1.yaml"
    with pytest.raises(Permanent, match="FIRST_CONTACT_UNFINISHED"):
        with_site(renamed, lambda site: adoption(site, "web", Cancel()))
    with pytest.raises(Permanent, match="FIRST_CONTACT_UNFINISHED") as caught:
        with_site(renamed, lambda site: adopt(site, "web", key, Cancel()))
    assert "name the node vm-1 again and run `provision apply" in caught.value.diagnostics[0].remedy
    assert writes(renamed) == []
    renamed.write(INVENTORY)
    assert renamed.apply().exit_code == 0
    assert snippet not in renamed.host.files
    renamed.write(INVENTORY.replace("  vm-1: {", "  web: {"))
    assert with_site(renamed, lambda site: adopt(site, "web", renamed.host_key("vm-1"), Cancel()))


def test_a_number_of_a_node_that_is_declared_too_is_no_renaming(renamed: World) -> None:
    text = INVENTORY.replace("vm-1: { profile: small, vmid: 101", "vm-1: { profile: small, vmid: 111")
    renamed.write(text + "  web: { profile: small, vmid: 101, address: 10.0.0.13 }\n")
    with pytest.raises(Permanent, match="VMID_TAKEN_FOREIGN"):
        with_site(renamed, lambda site: adopt(site, "web", KEY, Cancel()))
    assert writes(renamed) == []


# ---------------------------------------------------------------- the command


@pytest.fixture
def command(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.setattr(vms, "settle", lambda _context, _name: world.site().inventory)
    monkeypatch.setattr(vms, "open_site", lambda _inventory: world.site())
    monkeypatch.setattr("provision.api.import_vms.shown_host_key", lambda _site, _name: KEY)

    def run(*argv: str, typed: str | None = None) -> int:
        monkeypatch.setattr(vms, "on_terminal", lambda: typed is not None)
        monkeypatch.setattr("provision.cli.prompts._read", lambda _prompt: typed or "")
        return main.main(["import", "lab", "vm-1", *argv])

    return run


def test_without_a_terminal_the_key_must_be_given(
    command: Callable[..., int], world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command() == 64
    assert "give --host-key and --yes" in capsys.readouterr().err
    assert command("--yes") == 4
    said = " ".join(capsys.readouterr().err.split())
    assert "HOST_KEY_UNKNOWN" in said
    assert f"--host-key {KEY}" in said
    assert command("--yes", "--host-key", "MD5:1") == 64
    assert writes(world) == []
    assert command("--yes", "--host-key", KEY) == 0
    assert command("--yes", "--host-key", KEY) == 0
    assert len(writes(world)) == 1


@pytest.mark.parametrize(("typed", "code", "count"), [("y\n", 0, 1), ("n\n", 5, 0), ("", 5, 0)])
def test_a_person_confirms_the_key_that_is_shown(
    command: Callable[..., int],
    world: World,
    typed: str,
    code: int,
    count: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command(typed=typed) == code
    out = capsys.readouterr().out
    assert KEY in out
    assert "cores" in out
    assert len(writes(world)) == count


def test_the_key_of_a_renamed_nodes_vm_is_known_already(
    command: Callable[..., int], world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    description = f"provision: inventory=site node=old host-key={KEY}"
    world.pve.vms[101].config.update(description=description, tags="provision")
    assert command("--yes") == 0
    assert "vm-1 is now managed by this inventory" in capsys.readouterr().out
    assert world.pve.vms[101].config["description"] == description.replace("=old", "=vm-1")


HOSTILE = {
    "name": "\x1b]0;owned\x07web",
    "tags": "\x1b[2Ja;\x9b31mb",
    "cores": "1\x1b[31m",
    "cpu": "host\r\x1b[1A",
    "net0": "virtio=BC:24:11:00:00:01\x1b[8m,bridge=vmbr0\u202e",
    "scsi0": "local-zfs:vm-101-disk-0\x1b[K,size=4G",
    "machine": "q35\x08\x08\x08",
    "bios": "\u2028ovmf",
    "startup": "order=1\x00",
    "hostpci0": "0000:03:00\x1b[5m",
    "description": "\x1b[31mmade by hand\x7f",
}
"""Texts of a VM that a terminal would obey."""


@pytest.mark.parametrize("every", [True, False])
@pytest.mark.parametrize("key", HOSTILE)
def test_no_text_of_a_vm_reaches_the_terminal_as_a_command(
    command: Callable[..., int],
    world: World,
    key: str,
    every: bool,
    capfd: pytest.CaptureFixture[str],
) -> None:
    world.pve.vms[101].config[key] = HOSTILE[key]
    if every:
        assert main.main(["import", "lab", "--all", "--yes"]) in {0, 4}
    else:
        assert command("--yes", "--host-key", KEY) in {0, 4}
    said = capfd.readouterr()
    lines = (said.out + said.err).split("\n")
    assert any("101" in line or "vm-1" in line for line in lines)
    assert [line for line in lines if not line.isprintable()] == []
    assert "Traceback" not in said.err
