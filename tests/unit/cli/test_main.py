from __future__ import annotations

import errno
from pathlib import Path

import pytest

from provision.cli import files, main, state
from provision.values.cancel import Interrupted
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, ProvisionError, Refused, UsageError
from provision.values.outcomes import ExitCode
from provision.values.redaction import Redactor

PROBLEM = Diagnostic("SOME_CODE", "something is wrong", remedy="mend it")


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["nonsense"],
        ["plan"],
        ["plan", "--nonsense", "x"],
        ["apply", "x", "--allow", "nonsense"],
        ["validate", "does-not-exist.yaml"],
        ["apply", "does-not-exist.yaml", "--yes"],
        ["destroy", "does-not-exist.yaml", "--yes"],
        ["plan", "/"],
        ["schema", "--out", "/does/not/exist"],
    ],
)
def test_wrong_usage_is_64(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(argv) == 64
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err + captured.out
    assert captured.err


@pytest.mark.parametrize("argv", [["--help"], ["-h"], ["plan", "--help"], ["--version"], ["schema"]])
def test_questions_are_answered_with_0(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(argv) == 0
    assert capsys.readouterr().out


def test_the_list_of_commands_is_whole_on_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main.main(["--help"]) == 0
    assert not [line for line in capsys.readouterr().out.splitlines()[1:] if line.endswith("...")]


def test_a_valid_inventory_lists_what_is_not_supported_yet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "site.yaml").write_text(
        "version: 1\nname: site\naccess: { user: root }\n"
        "rdma: { operator: { version: v26.4.0 }, method: sriov }\n"
        "network: { cidr: 10.0.0.0/24 }\nnodes: { one: { address: 10.0.0.1 } }\n"
    )
    assert main.main(["validate", str(tmp_path / "site.yaml")]) == 0
    shown = capsys.readouterr()
    assert "is valid" in shown.out
    assert "is not supported yet (role network_sriov)" in shown.err
    assert "error" not in shown.err


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (UsageError(PROBLEM), 64),
        (Refused(PROBLEM), 4),
        (Permanent(PROBLEM), 1),
        (ProvisionError(PROBLEM, exit_code=ExitCode.LOCKED), 6),
    ],
)
def test_errors_end_with_their_code_and_no_traceback(
    problem: ProvisionError, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(problem, monkeypatch)
    assert main.main(["validate", "x"]) == code
    assert capsys.readouterr().err == "error SOME_CODE\n  something is wrong\n  next: mend it\n\n"


def fail_with(problem: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(_name: str, _redactor: Redactor) -> None:
        raise problem

    monkeypatch.setattr(files, "read", read)


@pytest.mark.parametrize("argv", [["validate", "x"], ["validate", "x", "--debug"]])
def test_an_error_tells_no_secret_that_the_call_has_opened(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(_name: str, redactor: Redactor) -> None:
        secret = "hunter2-and-more"
        redactor.add(secret)
        raise Permanent(Diagnostic("SOME_CODE", f"it shown {secret}", evidence=(f"twice: {secret}",)))

    monkeypatch.setattr(files, "read", read)
    assert main.main(argv) == 1
    err = capsys.readouterr().err
    assert "it shown ***" in err
    assert "hunter2" not in err


@pytest.mark.parametrize("problem", [KeyboardInterrupt(), Interrupted()])
def test_an_interrupt_is_130(
    problem: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(problem, monkeypatch)
    assert main.main(["validate", "x"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_defect_is_one_paragraph_without_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(ValueError("hunter2"), monkeypatch)
    assert main.main(["validate", "x"]) == 1
    err = capsys.readouterr().err
    assert "INTERNAL" in err
    assert "ValueError" in err
    assert "--debug" in err
    assert "Traceback" not in err
    assert "hunter2" not in err


@pytest.mark.parametrize("argv", [["--debug", "validate", "x"], ["validate", "x", "--debug"]])
def test_debug_shows_the_traceback(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(ValueError("what happened"), monkeypatch)
    assert main.main(argv) == 1
    assert "ValueError: what happened" in capsys.readouterr().err


def test_a_defect_names_the_journal_once_it_is_known() -> None:
    text = main._internal(ValueError(), state.State(journal="/state/journal")).summary
    assert "/state/journal" in text


def test_a_full_disk_of_another_file_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(OSError(errno.ENOSPC, "full"), monkeypatch)
    assert main.main(["validate", "x"]) == 1
    assert "INTERNAL" in capsys.readouterr().err
