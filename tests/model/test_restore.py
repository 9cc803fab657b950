"""`provision restore`: a file goes back to what it was before provision first changed it."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.api.domains import load_inventory as load
from provision.api.past_runs import changed_on, runs
from provision.api.restore import restore
from provision.cli import main
from provision.contracts.driver import Result, Verdict
from provision.engine.journal import Journal
from provision.engine.model import StepId
from provision.testing.model_host import ModelFile
from provision.values.cancel import Cancel
from provision.values.errors import Permanent, UsageError
from tests.model.model_site import ModelSite

INVENTORY = """
version: 1
name: one
access: { user: root }
nodes:
  n1:
    address: 198.51.100.1
    host_resources:
      - { kind: file, path: /etc/motd, content: "ours\\n" }
      - { kind: file, path: /etc/new, content: "ours\\n" }
"""


@pytest.fixture
def models(tmp_path: Path) -> ModelSite:
    file = tmp_path / "one.yaml"
    file.write_text(INVENTORY)
    models = ModelSite(load(file), tmp_path / "state")
    models.hosts["n1/ssh"].state.files["/etc/motd"] = ModelFile(b"theirs\n", "0640")
    models.apply()
    return models


def restored(models: ModelSite, path: str, host: str = "n1") -> bool:
    site = models.site()
    try:
        return restore(site, host, path, Cancel())
    finally:
        site.close()


def test_a_replaced_file_is_put_back_once(models: ModelSite) -> None:
    files = models.hosts["n1/ssh"].state.files
    assert files["/etc/motd"].content == b"ours\n"
    assert restored(models, "/etc/motd") is True
    assert (files["/etc/motd"].content, files["/etc/motd"].mode) == (b"theirs\n", "0640")
    assert restored(models, "/etc/motd") is False
    models.apply()
    assert files["/etc/motd"].content == b"ours\n", "the inventory still declares it"


@pytest.mark.parametrize(
    ("path", "words"), [("/etc/new", "did not exist before"), ("/etc/hostname", "has never replaced")]
)
def test_a_file_of_which_nothing_is_kept_stays(models: ModelSite, path: str, words: str) -> None:
    before = models.dump()
    with pytest.raises(Permanent, match=words):
        restored(models, path)
    assert models.dump() == before


def test_a_wrong_host_or_path_is_wrong_usage(models: ModelSite) -> None:
    with pytest.raises(UsageError, match="NODE_UNKNOWN"):
        restored(models, "/etc/motd", "n2")
    with pytest.raises(UsageError, match="PATH_WRONG"):
        restored(models, "etc/motd")


def test_the_command_asks_before_it_replaces_a_file(
    models: ModelSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("provision.cli.restore.open_site", lambda _inventory: models.site())
    words = ["restore", str(models.inventory.file), "n1", "/etc/motd"]
    assert main.main(words) == 64
    assert "--yes" in capsys.readouterr().err
    assert main.main([*words, "--yes"]) == 0
    assert capsys.readouterr().out == "/etc/motd on n1 is as it was.\n"


def test_a_run_names_the_inventory_and_the_host(
    models: ModelSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = models.site()
    journal = state.journal_path
    state.close()
    monkeypatch.setattr("provision.cli.restore.open_site", lambda _inventory: models.site())
    for module in ("restore", "history"):
        monkeypatch.setattr(f"provision.cli.{module}.journal_file", lambda: journal)
    files = models.hosts["n1/ssh"].state.files
    assert main.main(["restore", "last", "/etc/hostname", "--yes"]) == 64
    assert "did not change /etc/hostname" in capsys.readouterr().err
    assert main.main(["restore", "last", "n2", "/etc/motd", "--yes"]) == 64
    assert main.main(["restore", "last", "/etc/motd", "--yes"]) == 0
    assert files["/etc/motd"].content == b"theirs\n"
    assert main.main(["restore", runs(journal)[0]["id"], "n1", "/etc/motd", "--yes"]) == 0
    assert "was put back already" in capsys.readouterr().out


def test_a_run_on_several_hosts_asks_for_one(tmp_path: Path) -> None:
    book = Journal(tmp_path / "journal.sqlite")
    book.begin("one", "lab", "apply", "me")
    step = StepId("host_resources", "n1")
    for key in ("n1/ssh:file:/etc/a", "n2/ssh:line:/etc/a: x", "n3/ssh:file:/etc/ab"):
        book.change("one", step, key, (), Result(Verdict.DONE, 0.1))
    book.close()
    assert changed_on(tmp_path / "journal.sqlite", "one", "/etc/a") == ("n1/ssh", "n2/ssh")


HOSTILE = (
    "etc/motd",
    "../etc/motd",
    "/etc/../etc/motd",
    "/etc/./motd",
    "/etc//motd",
    "/etc/motd/",
    "/etc/motd\n/etc/shadow",
    "/etc/motd\r",
    "/etc/\x1b]0;owned\x07motd",
    "/etc/\x1b[2Jmotd",
    "/etc/\x9b31mmotd",
    "/etc/\u202emotd",
    "/etc/motd\x7f",
    "/etc/\udcffmotd",
    "/etc/mo\\td",
    "/etc/motd; id",
    "/etc/$(id)",
    "/etc/`id`",
    "/etc/motd*",
    "/" + "a" * 5000,
    "~/motd",
    " ",
)


@pytest.mark.parametrize("host", ["n1", "n1\x1b[2J", "-n1", "n1/ssh", "../n1"])
def test_no_hostile_path_changes_a_file_or_reaches_the_terminal(
    models: ModelSite, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], host: str
) -> None:
    monkeypatch.setattr("provision.cli.restore.settle", lambda _context, _name: models.inventory)
    monkeypatch.setattr("provision.cli.restore.open_site", lambda _inventory: models.site())
    before = models.dump()
    for path in HOSTILE:
        assert main.main(["restore", "--yes", "--", "one.yaml", host, path]) in {1, 64}, ascii(path)
        said = capfd.readouterr()
        assert "Traceback" not in said.err, ascii(path)
        assert "defect" not in said.err.lower(), ascii(path)
        lines = (said.out + said.err).split("\n")
        assert [line for line in lines if not line.isprintable()] == [], ascii(path)
    assert models.dump() == before


def test_a_command_to_paste_quotes_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, path = tmp_path / "journal.sqlite", "/etc/$(id) a"
    book = Journal(file, file="one.yaml")
    book.begin("20261201-120000-abcdef", "lab", "apply", "me")
    for node in ("n1", "n2"):
        key = f"{node}/ssh:file:{path}"
        book.change(
            "20261201-120000-abcdef", StepId("host_resources", node), key, (), Result(Verdict.DONE, 0.1)
        )
    book.close()
    for module in ("restore", "history"):
        monkeypatch.setattr(f"provision.cli.{module}.journal_file", lambda: file)
    assert main.main(["restore", "last", path, "--yes"]) == 64
    assert "restore 20261201-120000-abcdef HOST '/etc/$(id) a'" in " ".join(capsys.readouterr().err.split())
