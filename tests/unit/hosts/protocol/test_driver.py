from __future__ import annotations

import hashlib

import pytest
from pydantic import SecretStr

from provision.contracts import common_effects
from provision.contracts.driver import Action, Verdict
from provision.contracts.effect import Effect
from provision.contracts.remedy import ApiCall, Blob, Fix
from provision.hosts import driver as module
from provision.hosts.protocol.deadlines import Limit
from provision.hosts.protocol.frames import KEEP
from provision.testing.scripted_shell import BOOT, Answer, Said
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, ProvisionError, Refused, Transient
from provision.values.outcomes import ExitCode
from tests.unit.hosts.protocol.driver_bench import (
    INITRAMFS,
    OLD,
    REBOOT,
    RELOAD,
    RESTART,
    act,
    action,
    host,
    quiet,
)

# ---------------------------------------------------------------- acting


def test_fixes_and_effects_go_in_one_execution() -> None:
    driver, shell = host(Answer({2: Said(b"one\n"), 3: Said(b"two\n")}))
    results = act(driver, [action("first", None, RESTART), action("second")], [RESTART])
    assert [result.verdict for result in results] == [Verdict.DONE] * 3
    assert results[0].output == ("one",)
    assert driver.round_trips == 1
    assert b"run-1" in shell.scripts[0]
    assert b"me@here" in shell.scripts[0]


def test_markers_are_written_before_the_fix_and_removed_after_the_effect() -> None:
    driver, shell = host(Answer())
    act(driver, [action("first", Fix("the-fix", effects=(RELOAD,)), RESTART)], [RESTART])
    text = shell.scripts[0].decode()
    mark = text.index("provision_mark restart.")
    assert text.index("provision_mark daemon-reload") < text.index("the-fix")
    assert mark < text.index("provision_commit restart.") < text.index("the-fix")
    assert (
        text.index("the-fix")
        < text.index("systemctl restart")
        < text.index("rm -f /var/lib/provision/pending/restart.")
    )
    assert "rm -f /var/lib/provision/pending/daemon-reload" not in text


def test_the_first_failure_ends_the_execution() -> None:
    driver, _ = host(Answer({2: Said(b"", b"no space\n", 1)}))
    results = act(driver, [action("first"), action("second")], [RESTART])
    assert [result.verdict for result in results] == [Verdict.FAILED, Verdict.NOT_BEGUN, Verdict.NOT_BEGUN]
    diagnostic = results[0].diagnostic
    assert diagnostic is not None
    assert (diagnostic.code, diagnostic.evidence) == ("FIX_FAILED", ("no space",))


def test_a_cut_leaves_the_open_action_indeterminate_with_its_group() -> None:
    driver, _ = host(Answer({3: Said(b"half", rc=None)}, rc=None))
    results = act(driver, [action("first"), action("second"), action("third")])
    assert [result.verdict for result in results] == [Verdict.DONE, Verdict.INDETERMINATE, Verdict.NOT_BEGUN]
    assert results[1].handle == "4242"
    assert results[1].output == ("half",)


def test_a_cut_before_the_greeting_leaves_the_first_indeterminate() -> None:
    driver, _ = host(Answer(hello=None, rc=None))
    assert [result.verdict for result in act(driver, [action("first"), action("second")])] == [
        Verdict.INDETERMINATE,
        Verdict.NOT_BEGUN,
    ]


def test_a_cut_at_every_byte_never_reports_an_open_action_as_done() -> None:
    rank = {Verdict.DONE: 0, Verdict.FAILED: 1, Verdict.INDETERMINATE: 1, Verdict.NOT_BEGUN: 2}
    most_done = 0
    for cut in range(0, 1200, 3):
        driver, _ = host(Answer({2: Said(b"a" * 50), 3: Said(b"b" * 50)}, cut=cut))
        verdicts = [result.verdict for result in act(driver, [action("first"), action("second")], [RELOAD])]
        order = [rank[verdict] for verdict in verdicts]
        assert order == sorted(order)
        assert verdicts.count(Verdict.INDETERMINATE) <= 1
        assert verdicts.count(Verdict.DONE) >= most_done
        most_done = verdicts.count(Verdict.DONE)
    assert most_done == 3


def test_a_locked_host_names_the_run_that_holds_the_lock() -> None:
    driver, _ = host(Answer({1: Said(b"run-0\tann@desk\t1700000000\t77\n", rc=75)}))
    with pytest.raises(ProvisionError) as caught:
        act(driver, [action("first")])
    assert caught.value.exit_code == ExitCode.LOCKED
    diagnostic = caught.value.diagnostics[0]
    assert diagnostic.code == "HOST_LOCKED"
    for word in ("run-0", "ann@desk", "2023-11-14 22:13:20 UTC"):
        assert word in diagnostic.summary
    assert diagnostic.evidence == ("process group 77",)


@pytest.mark.parametrize("words", [b"", b"\n", b"\t\t\t", b"x\ty\t99999999999999999999\tz", b"\xff\xfe"])
def test_a_damaged_lock_file_still_means_locked(words: bytes) -> None:
    driver, _ = host(Answer({1: Said(words, rc=75)}))
    with pytest.raises(ProvisionError, match="HOST_LOCKED"):
        act(driver, [action("first")])


@pytest.mark.parametrize(("rc", "code"), [(74, "HOST_STATE_UNWRITABLE"), (76, "NO_FLOCK")])
def test_a_host_that_cannot_be_locked_is_not_touched(rc: int, code: str) -> None:
    driver, _ = host(Answer({1: Said(rc=rc)}))
    with pytest.raises(Permanent, match=code):
        act(driver, [action("first")])


def test_a_fix_that_takes_too_long_is_ended() -> None:
    driver, shell = host(Answer({2: Said(b"working\n", rc=None)}, silence=5.0))
    results = act(driver, [action("slow", Fix("sleep 9", timeout=0.02)), action("next")])
    assert [result.verdict for result in results] == [Verdict.FAILED, Verdict.NOT_BEGUN]
    assert results[0].diagnostic is not None
    assert results[0].diagnostic.code == "FIX_TIMED_OUT"
    assert shell.killed == [4242]


def test_a_fix_that_is_quiet_for_too_long_is_ended() -> None:
    driver, _ = host(Answer({2: Said(b"working\n", rc=None)}, silence=5.0))
    (result,) = act(driver, [action("slow", Fix("sleep 9", quiet=0.02))])
    assert result.diagnostic is not None
    assert "no output for 0.02 s" in result.diagnostic.summary


def test_a_fix_that_cannot_be_ended_is_indeterminate(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, shell = host(Answer({2: Said(rc=None)}, silence=5.0))

    def fail(_: int) -> None:
        raise Transient(Diagnostic("HOST_CUT", "gone"))

    monkeypatch.setattr(shell, "kill_group", fail)
    (result,) = act(driver, [action("slow", Fix("sleep 9", timeout=0.02))])
    assert (result.verdict, result.handle) == (Verdict.INDETERMINATE, "4242")
    assert shell.closed


def test_leaving_ends_what_runs_on_the_host() -> None:
    cancel = Cancel()
    driver, shell = host(Answer({2: Said(b"working\n", rc=None)}, silence=5.0))
    (result,) = driver.act("r", [action("slow")], [], lambda _: cancel.leave(), cancel)
    assert result.verdict == Verdict.INDETERMINATE
    assert shell.killed == [4242]


def test_secrets_are_masked_in_output_results_and_live_lines() -> None:
    live: list[str] = []
    driver, _ = host(Answer({2: Said(b"key=sesame-open\n", b"sesame-open\n", 1)}, piece=3))
    fix = Fix("x", secrets=(SecretStr("sesame-open"),))
    (result,) = driver.act("r", [action("secret", fix)], [], live.append, Cancel())
    assert "sesame-open" not in repr(result) + repr(live)
    assert result.output == ("key=***", "***")
    assert result.kept == "key=***\n***"


def test_results_keep_all_output_and_show_the_last_lines() -> None:
    lines = [f"line {number}" for number in range(200)]
    lines[100] = "password sesame-open"
    said = "".join(f"{line}\n" for line in lines).encode()
    driver, _ = host(Answer({2: Said(said, b"warned\n"), 3: Said(said, rc=1)}, piece=7))
    fix = Fix("x", secrets=(SecretStr("sesame-open"),))
    effect_result, failed = act(driver, [action("a", fix)], [INITRAMFS])
    masked = "\n".join(lines).replace("sesame-open", "***")
    assert effect_result.kept == f"{masked}\nwarned"
    assert failed.kept == masked
    assert failed.output == tuple(lines[-12:])
    assert failed.diagnostic is not None
    assert failed.diagnostic.evidence == failed.output


def test_output_that_was_not_kept_is_counted() -> None:
    driver, _ = host(Answer({2: Said(b"x" * 200_000)}))
    (result,) = act(driver, [action("a")])
    assert len(result.kept) < 140_000
    assert result.kept.endswith(f"\n({200_000 - 2 * KEEP} bytes in the middle were not kept)")


def test_live_output_is_for_steps_alone_and_free_of_control_bytes() -> None:
    live: list[str] = []
    driver, _ = host(Answer({2: Said(b"\x1b[31mred\x1b[0m\n")}))
    driver.act("r", [action("first")], [], live.append, Cancel())
    assert live == ["red"]


def test_large_content_is_sent_before_the_fix_once() -> None:
    data = b"x" * 70_000
    blob = Blob(hashlib.sha256(data).hexdigest(), data)
    driver, shell = host(Answer())
    act(driver, [action("first", Fix("a", blobs=(blob,))), action("second", Fix("b", blobs=(blob,)))])
    assert shell.uploads == {f"/var/lib/provision/blobs/{blob.sha256}": data}
    assert f"provision_blob {blob.sha256}".encode() in shell.scripts[0]


def test_an_action_that_a_host_cannot_perform_raises() -> None:
    driver, _ = host(Answer())
    with pytest.raises(ValueError, match="replace"):
        act(driver, [], [Effect(common_effects.REPLACE)])
    with pytest.raises(TypeError):
        act(driver, [Action(None, "api", ApiCall(()))])


def test_the_lock_of_an_api_is_held_by_an_execution_until_it_is_released() -> None:
    driver, shell = host(Answer({2: Said(rc=None)}, silence=60.0))
    hold = driver.hold("run-1", "pve/api", Cancel())
    assert hold.alive
    assert b"/lock-api\n" in shell.scripts[0]
    assert b"/lock\n" not in shell.scripts[0]
    hold.release()
    assert not hold.alive
    assert shell.killed == [4242]


def test_a_held_lock_of_an_api_names_the_run_that_holds_it() -> None:
    driver, _ = host(Answer({1: Said(b"run-0\tyou@there\t1700000000\t7\n", rc=75)}))
    with pytest.raises(ProvisionError) as caught:
        driver.hold("run-1", "pve/api", Cancel())
    assert caught.value.exit_code is ExitCode.LOCKED
    diagnostic = caught.value.diagnostics[0]
    assert diagnostic.summary == "pve/api is locked by run run-0 of you@there since 2023-11-14 22:13:20 UTC"
    assert diagnostic.evidence == ("process group 7",)


def test_a_lock_whose_connection_ended_is_not_held_any_more() -> None:
    driver, _ = host(Answer({2: Said(rc=None)}, silence=0.0))
    try:
        hold = driver.hold("run-1", "pve/api", Cancel())
    except Transient as error:
        assert error.diagnostics[0].code == "HOST_CUT"  # noqa: PT017 - it may end before or after
    else:
        hold.release()
        assert not hold.alive


def test_a_host_without_an_answer_holds_no_lock() -> None:
    driver, _ = host(Answer(error=Transient(Diagnostic("HOST_UNREACHABLE", "no route"))))
    with pytest.raises(Transient, match="HOST_UNREACHABLE"):
        driver.hold("run-1", "pve/api", Cancel())


# ---------------------------------------------------------------- rebooting


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BETWEEN_TRIES", 0.0)


@pytest.mark.usefixtures("at_once")
def test_a_reboot_ends_with_another_boot_id() -> None:
    driver, shell = host(Answer(boot=OLD), Answer(boot=OLD), Answer(hello=None, rc=None), Answer(boot=BOOT))
    assert driver.reboot(REBOOT, quiet, Cancel()) == BOOT
    assert b"reboot-node" in shell.scripts[0]
    assert b"systemctl --no-block reboot" in shell.scripts[0]


@pytest.mark.usefixtures("at_once")
def test_a_host_that_does_not_come_back_is_reported() -> None:
    driver, _ = host(Answer(boot=OLD))
    with pytest.raises(Transient, match="REBOOT_TIMED_OUT"):
        driver.reboot(REBOOT, quiet, Cancel())


@pytest.mark.usefixtures("at_once")
def test_a_host_that_comes_back_with_another_key_is_refused() -> None:
    driver, _ = host(Answer(boot=OLD), Answer(error=Refused(Diagnostic("HOST_KEY_CHANGED", "other key"))))
    with pytest.raises(Refused, match="HOST_KEY_CHANGED"):
        driver.reboot(REBOOT, quiet, Cancel())


def test_a_host_that_refuses_to_reboot_is_reported() -> None:
    driver, _ = host(Answer({2: Said(b"", b"Operation inhibited\n", 1)}))
    with pytest.raises(Permanent, match="REBOOT_FAILED") as caught:
        driver.reboot(REBOOT, quiet, Cancel())
    assert caught.value.diagnostics[0].evidence == ("Operation inhibited",)


def test_a_locked_host_is_not_rebooted() -> None:
    driver, _ = host(Answer({1: Said(b"run-0\tann@desk\t1700000000\t77\n", rc=75)}))
    with pytest.raises(ProvisionError, match="HOST_LOCKED"):
        driver.reboot(REBOOT, quiet, Cancel())


def test_a_fix_sent_to_a_silent_host_is_indeterminate_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "GREETING", Limit(0.02))
    driver, shell = host(Answer(hello=None, silence=5.0))
    assert [result.verdict for result in act(driver, [action("first")])] == [Verdict.INDETERMINATE]
    assert shell.closed
    assert driver.round_trips == 1
