from __future__ import annotations

import pytest

from provision.cli import main


def test_a_preflight_code_is_explained_without_asking_a_system(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["explain", "lab", "VMID_TAKEN_FOREIGN"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "error VMID_TAKEN_FOREIGN"
    assert lines[1].startswith("  when a declared VMID belongs to")
    assert "provision import INVENTORY NODE" in [line.strip() for line in lines]


def test_an_unknown_code_is_answered_with_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["explain", "lab", "VMID_TAKEN"]) == 64
    assert "did you mean VMID_TAKEN_FOREIGN?" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["usb_missing"], ["USB_MISSING"], ["lab", "USB_MISSING"]])
def test_a_code_is_explained_without_an_inventory(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["explain", *argv]) == 0
    assert capsys.readouterr().out.startswith("error USB_MISSING")


def test_what_is_no_code_needs_a_resource(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["explain", "site.yaml"]) == 64
    assert "provision explain INVENTORY RESOURCE" in capsys.readouterr().err


def test_other_codes_of_the_same_rule_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["explain", "INOTIFY_LIMIT"]) == 0
    assert "the same rule has CGROUP_V1" in capsys.readouterr().out
