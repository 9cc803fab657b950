"""Completion, asked as the shells ask it: by environment variables, of the real command line."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from provision.api.preflight import rules
from provision.cli import main
from provision.cli.completion import complete_inventory
from provision.cli.names import shipped
from provision.engine.journal import Journal

SHELLS = ("bash", "zsh", "fish")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROVISION_STATE", str(tmp_path / "state"))
    (tmp_path / "fleet.yaml").write_text(
        "version: 1\nname: fleet\nnodes:\n"
        "  alpha: { address: 10.0.0.1, host_resources: [{ kind: package, name: cron }] }\n"
        "  beta: { address: 10.0.0.2, host_resources: [{ kind: package, name: cron }] }\n"
    )
    journal = Journal(tmp_path / "state" / "journal.sqlite")
    journal.begin("20260101-aaaaaa", "fleet", "apply", "me@here")
    journal.begin("20260202-bbbbbb", "fleet", "verify", "me@here")
    journal.close()
    return tmp_path


def complete(monkeypatch: pytest.MonkeyPatch, line: str, shell: str = "bash") -> list[str]:
    """Return what a shell offers at the end of a line."""
    words = line.split(" ")
    monkeypatch.setenv("_PROVISION_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert main.main([]) == 0
    return [text.partition("\t")[0].strip('"') for text in output.getvalue().split("\n") if text]


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_is_offered_the_nodes_of_the_inventory_on_the_line(
    shell: str, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del site
    offered = " ".join(complete(monkeypatch, "provision plan fleet.yaml --target ", shell))
    assert "alpha" in offered
    assert "beta" in offered


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("provision plan fleet.yaml --target al", ["alpha"]),
        ("provision apply fleet.yaml --step host_r", ["host_resources"]),
        ("provision verify fleet.yaml --target be", ["beta"]),
        ("provision ssh fleet.yaml a", ["alpha"]),
        ("provision trust fleet.yaml b", ["beta/ssh"]),
        ("provision apply fleet.yaml --allow reboot-g", ["reboot-guest"]),
        ("provision show ", ["last", "20260202-bbbbbb", "20260101-aaaaaa"]),
        ("provision report 20260101", ["20260101-aaaaaa"]),
        ("provision plan fl", ["fleet.yaml"]),
    ],
)
def test_a_name_is_completed_from_what_the_line_is_about(
    line: str, offered: list[str], site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del site
    assert complete(monkeypatch, line) == offered


def test_explain_is_offered_all_preflight_codes_that_fit(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del site
    offered = complete(monkeypatch, "provision explain fleet.yaml VMID")
    assert offered == [code for rule in rules() for code in rule.codes if code.startswith("VMID")]
    assert offered


@pytest.mark.parametrize("name", ["nowhere.yaml", "wrong.yaml", "folder"])
def test_a_wrong_inventory_completes_to_nothing(
    name: str, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site / "wrong.yaml").write_text("- no inventory\n")
    (site / "folder").mkdir()
    assert complete(monkeypatch, f"provision plan {name} --target ") == []


def test_without_a_former_run_no_run_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_STATE", str(tmp_path / "state"))
    assert complete(monkeypatch, "provision show ") == []


def test_inventories_are_files_in_reach_and_shipped_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.yaml").write_text("")
    Path("notes.txt").write_text("")
    assert complete_inventory("in") == ["in.yaml", *shipped()]
    assert complete_inventory("nowhere/") == []
