from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from provision.api.domains import load_inventory as load
from provision.cli import main, runs
from provision.cli.lab_network import INSIDE, lab_settings
from provision.cli.names import find_inventory
from provision.inventory import Inventory
from provision.lab import record, site
from provision.lab.images import Images
from provision.lab.record import Record
from provision.lab.settings import LabError, LabSettings
from provision.lab.site import Part, Status


class Entered(Exception):  # noqa: N818 - what happened, no error
    """The process would be another one now."""


class FakeLab:
    """Stands in for `provision.lab.site`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, *, up: bool) -> None:
        self.is_up = up
        self.entered: list[str] = []
        self.ups = 0
        self.broken = ""
        self.parts: tuple[Part, ...] = ()
        monkeypatch.setenv("PROVISION_LAB_DIR", str(folder))
        monkeypatch.delenv(INSIDE, raising=False)
        monkeypatch.setattr("os.geteuid", lambda: 0)
        for name in ("status", "up", "down", "enter", "console"):
            monkeypatch.setattr(site, name, getattr(self, name))

    def status(self, name: str) -> Status:
        return Status(name, "qemu", self.is_up, self.parts)

    def up(self, settings: LabSettings, progress: Any) -> None:
        if self.broken:
            raise LabError(self.broken, "provision lab up INVENTORY")
        progress(f"starting {settings.name}")
        self.ups += 1
        self.is_up = True

    def down(self, _name: str, _progress: Any) -> bool:
        was, self.is_up = self.is_up, False
        return was

    def enter(self, _name: str, argv: list[str]) -> NoReturn:
        self.entered = argv
        raise Entered

    def console(self, _name: str, node: str) -> Path:
        raise LabError(f"no console of {node}")


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeLab:
    monkeypatch.setenv(INSIDE, "")  # so that what the code sets is taken back afterwards
    return FakeLab(monkeypatch, tmp_path, up=False)


SECRET = "hunter2-and-more"


@pytest.fixture
def with_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lab's inventory, with a secret."""
    monkeypatch.setenv("PROVISION_TEST_SECRET", SECRET)
    given = "{ kind: file, path: /etc/mine, secret: !secret { env: PROVISION_TEST_SECRET } }"
    text = find_inventory("lab").read_text()
    file = tmp_path / "lab.yaml"
    file.write_text(text.replace("host_resources:\n", f"host_resources:\n      - {given}\n", 1))
    return file


def test_the_lab_is_made_from_the_inventory() -> None:
    settings = lab_settings(load(find_inventory("lab")))
    assert (settings.name, settings.driver, settings.cidr, settings.gateway) == (
        "lab",
        "qemu",
        "198.18.0.0/24",
        "198.18.0.1",
    )
    assert settings.hypervisor == ("pve", "198.18.0.5")
    assert [card.name for card in settings.cards] == ["display", "shared"]
    assert settings.images == ("debian-12",)


def test_apply_starts_the_lab_and_runs_the_same_command_inside(
    lab: FakeLab, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["apply", "lab", "--yes", "--step", "image"]
    main.main(argv)
    assert lab.ups == 1
    assert lab.entered == [sys.executable, "-P", "-m", "provision.cli.main", *argv]
    assert "lab: starting lab" in capsys.readouterr().err


def test_apply_leaves_a_lab_that_is_up(lab: FakeLab) -> None:
    lab.is_up = True
    main.main(["apply", "lab", "--yes"])
    assert lab.ups == 0
    assert lab.entered


@pytest.mark.parametrize("verb", ["plan", "verify"])
def test_other_commands_do_not_start_it(verb: str, lab: FakeLab, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([verb, "lab"]) == 1
    assert not lab.entered
    assert "  provision lab up lab\n" in capsys.readouterr().err


def test_the_parts_of_a_lab_that_do_not_work_are_named(
    lab: FakeLab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.parts = (
        Part("daemon", "api", "down", None, ""),
        Part("router", "router", "starting", 7, "SSH does not answer"),
        Part("hypervisor", "pve", "up", 8, ""),
        Part("guest", "vm-1", "off", None, "VM 101"),
    )
    assert main.main(["plan", "lab"]) == 1
    err = capsys.readouterr().err
    assert [line for line in err.splitlines() if "|" in line] == [
        "  | daemon api is down",
        "  | router router is starting: SSH does not answer",
    ]
    assert "  provision lab up lab\n" in err


@pytest.mark.parametrize("command", [["apply", "lab", "--yes"], ["plan", "lab"]])
def test_a_lab_with_other_settings_is_not_entered(
    lab: FakeLab, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    lab.is_up = True
    declared = lab_settings(load(find_inventory("lab")))
    declared.folder.mkdir()
    images = Images(Path("/rootfs"), None, ())
    record.save(Record(replace(declared, cards=()), images, ()))
    assert main.main(command) == 1
    assert not lab.entered
    err = capsys.readouterr().err
    assert "the lab lab runs with other settings (cards)" in err
    assert "  provision lab down lab\n" in err
    assert main.main(["lab", "status", "lab"]) == 0
    assert capsys.readouterr().out.endswith("has now: cards.\nNext:\n  provision lab down lab\n")
    record.save(Record(declared, images, ()))
    main.main(command)
    assert lab.entered


def test_inside_the_lab_its_own_file_is_laid_over(
    lab: FakeLab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened: list[Inventory] = []

    def open_site(inventory: Inventory, _playbook: str | None = None) -> NoReturn:
        opened.append(inventory)
        raise Entered

    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "site.yaml").write_text("access: { user: overlaid }\n")
    monkeypatch.setenv(INSIDE, str(tmp_path.resolve() / "lab"))
    monkeypatch.setattr(runs, "open_site", open_site)
    main.main(["plan", "lab"])
    assert not lab.entered
    assert opened[0].access.user == "overlaid"


def test_without_root_it_says_so(
    lab: FakeLab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert main.main(["apply", "lab", "--yes"]) == 1
    assert not lab.entered
    assert "LAB_NEEDS_ROOT" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["lab", "up"], ["apply", "--yes"]])
def test_a_lab_that_does_not_start_shows_its_console_without_secrets(
    lab: FakeLab, command: list[str], with_secret: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.broken = f"198.18.0.5 did not answer\nkernel panic at {SECRET}"
    assert main.main([*command, str(with_secret)]) == 1
    err = capsys.readouterr().err
    assert "LAB_FAILED" in err
    assert "| kernel panic at ***" in err
    assert f"provision lab up {with_secret}" in " ".join(err.split())


def test_the_lab_is_reported_as_up_and_down(lab: FakeLab, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["lab", "status"]) == 1
    assert main.main(["lab", "up"]) == 0
    assert main.main(["lab", "status"]) == 0
    assert main.main(["lab", "down"]) == 0
    assert not lab.is_up
    assert main.main(["lab", "down"]) == 0
    shown = capsys.readouterr().out
    assert "lab lab is not up (driver qemu).\nNext:\n  provision lab up inventories/lab.yaml\n" in shown
    assert "lab lab is up (driver qemu).\n" in shown
    assert shown.endswith("lab lab is down.\nThere is no lab lab.\n")


def test_an_inventory_without_a_lab_has_none(lab: FakeLab, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["lab", "up", "homelab"]) == 64
    assert lab.ups == 0
    assert "LAB_NOT_DECLARED" in capsys.readouterr().err


def test_a_console_shows_its_last_lines_without_the_inventorys_secrets(
    lab: FakeLab,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    with_secret: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    del lab
    screen = tmp_path / "vm-1.log"
    screen.write_text(f"before\r\nbooting\r\nits password is {SECRET}\r\n")
    monkeypatch.setattr(site, "console", lambda _name, _node: screen)
    assert main.main(["lab", "console", "vm-1", str(with_secret), "--lines", "2"]) == 0
    assert capsys.readouterr().out == "booting\nits password is ***\n"


def test_a_console_that_is_not_there_is_an_error(lab: FakeLab) -> None:
    del lab
    assert main.main(["lab", "console", "vm-9"]) == 1
