"""The same scripts in real shells: dash, bash --posix and busybox sh."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import SecretStr

from provision.connections.local import LocalConnection
from provision.contracts.driver import Action, Result, Verdict
from provision.contracts.effect import Effect
from provision.contracts.query import Frame
from provision.contracts.remedy import Blob, Fix
from provision.hosts import driver as module
from provision.hosts import host_effects
from provision.hosts.driver import HostDriver
from provision.hosts.protocol.deadlines import Limit
from provision.hosts.protocol.frames import FrameParser
from provision.hosts.protocol.script import Step, act_script, new_nonce, observe_script
from provision.values.cancel import Cancel
from provision.values.errors import ProvisionError

SHELLS = {"dash": ("dash", "-s"), "bash": ("bash", "--posix", "-s"), "busybox": ("busybox", "sh", "-s")}
RESTART = Effect(host_effects.RESTART, "it's a unit")
INITRAMFS = Effect(host_effects.INITRAMFS)
REBOOT = Effect(host_effects.REBOOT_NODE)
OLD_BOOT = "00000000-0000-4000-8000-00000000000f"


@pytest.fixture(params=sorted(SHELLS))
def shell(request: pytest.FixtureRequest) -> tuple[str, ...]:
    command = SHELLS[request.param]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    return command


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state of it"


@dataclass(frozen=True)
class Shell:
    kind: ClassVar[str] = "shell"
    script: str


class ShellKind:
    query = Shell

    def script(self, queries: Sequence[Any]) -> str:
        return "\n".join(query.script for query in queries)

    def parse(self, frame: Frame, queries: Sequence[Any]) -> Mapping[Any, object]:
        return dict.fromkeys(queries, (frame.stdout, frame.stderr, frame.rc))


@pytest.fixture
def host(shell: tuple[str, ...], state: Path) -> Iterator[HostDriver]:
    driver = HostDriver(
        "n1/ssh", LocalConnection(shell), {"shell": ShellKind()}, who="me@here", state=str(state)
    )
    yield driver
    driver.close()


def run(shell: tuple[str, ...], nonce: str, script: bytes, **environment: str) -> FrameParser:
    process = subprocess.run(
        shell, input=script, capture_output=True, check=False, timeout=60, env={**os.environ, **environment}
    )
    parser = FrameParser(nonce)
    parser.feed(process.stdout, stderr=False)
    parser.feed(process.stderr, stderr=True)
    parser.finish()
    return parser


def observe(shell: tuple[str, ...], *fragments: str, **environment: str) -> list[Frame]:
    nonce = new_nonce()
    parser = run(shell, nonce, observe_script(nonce, fragments, state="/nonexistent"), **environment)
    frames = [parser.frame(index) for index in range(len(fragments) + 2)]
    assert all(frame is not None for frame in frames)
    assert parser.outside() == b""
    return [frame for frame in frames if frame is not None]


def act(
    host: HostDriver, *actions: Action, effects: Sequence[Effect] = (), run_id: str = "r1"
) -> list[Result]:
    return host.act(run_id, actions, effects, lambda _: None, Cancel())


def fix(script: str, *effects: Effect, timeout: float = 60.0) -> Action:
    return Action(None, "fix", Fix(script, timeout=timeout), effects)


# ---------------------------------------------------------------- fragments


@pytest.mark.parametrize(
    ("fragment", "stdout", "stderr", "rc"),
    [
        ("echo hello", b"hello\n", b"", 0),
        ("printf x", b"x", b"", 0),
        ("printf '\\n\\n'", b"\n\n", b"", 0),
        ("echo out; echo err >&2", b"out\n", b"err\n", 0),
        ("echo before; false; echo after", b"before\n", b"", 1),
        ("exit 7", b"", b"", 7),
        ("cat", b"", b"", 0),
        ("read -r line || echo none", b"none\n", b"", 0),
        ("", b"", b"", 0),
        ("# only a comment", b"", b"", 0),
        ("cat <<'END'\nhere\nEND", b"here\n", b"", 0),
        ("f() { false; echo not reached; }\nf", b"", b"", 1),
        ("printf '\\0\\377'", b"\0\xff", b"", 0),
        ("echo @STATE@", b"@STATE@\n", b"", 0),
        ("kill -9 $(sh -c 'echo $PPID')", b"", b"", 137),
    ],
)
def test_a_fragment_ends_as_it_should(
    shell: tuple[str, ...], fragment: str, stdout: bytes, stderr: bytes, rc: int
) -> None:
    frames = observe(shell, fragment, "echo next")
    if rc != 137:
        assert frames[1] == Frame(stdout, stderr, rc)
    assert frames[1].rc == rc
    assert frames[2] == Frame(b"next\n", b"", 0)


def test_an_unset_variable_fails_its_fragment_alone(shell: tuple[str, ...]) -> None:
    frames = observe(shell, "echo $nothing_of_that_name", "echo next")
    assert frames[1].rc not in (0, None)
    assert frames[2] == Frame(b"next\n", b"", 0)


def test_the_environment_is_the_same_everywhere(shell: tuple[str, ...]) -> None:
    fragment = (
        'echo "$LC_ALL $TERM $DEBIAN_FRONTEND $(umask) $(pwd) ${CDPATH-unset} ${ENV-unset} ${LANGUAGE-unset}"'
    )
    frames = observe(shell, fragment, CDPATH="/usr", ENV="/nonexistent", LANGUAGE="de", LC_ALL="POSIX")
    assert frames[1].stdout == b"C dumb noninteractive 0077 / unset unset unset\n"


@pytest.mark.parametrize(
    ("inherited", "first"),
    [
        ("/opt/tools:/usr/bin", "/opt/tools:/usr/bin:/usr/local/sbin:"),
        ("", "/usr/local/sbin:"),
        (".:relative:/opt/*:", "/opt/*:/usr/local/sbin:"),
        ("/home/me/.pyenv/shims:/home/me:/home/you/bin", "/home/me:/home/you/bin:/usr/local/sbin:"),
    ],
)
def test_tools_come_from_absolute_folders(shell: tuple[str, ...], inherited: str, first: str) -> None:
    path = shutil.which(shell[0])
    assert path is not None
    frames = observe((path, *shell[1:]), 'printf %s "$PATH"', PATH=inherited, HOME="/home/me")
    shown = frames[1].stdout.decode()
    assert shown.startswith(first)
    assert shown.endswith(":/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")


def test_the_greeting_names_user_group_boot_and_clock(shell: tuple[str, ...]) -> None:
    greeting = dict(
        line.split(" ", 1) for line in observe(shell)[0].stdout.decode().splitlines() if " " in line
    )
    assert greeting["protocol"] == "1"
    assert greeting["uid"] == str(os.getuid())
    assert int(greeting["pgid"]) > 1
    assert greeting["boot"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert abs(int(greeting["epoch"]) - time.time()) < 60
    assert greeting["uname"].startswith("Linux ")


@pytest.mark.parametrize("kind", ["observe", "act"])
def test_a_script_that_is_cut_at_any_byte_runs_nothing(
    shell: tuple[str, ...], state: Path, kind: str
) -> None:
    mark = state.parent / "it ran"
    fragment = f"touch '{mark}'"
    nonce = new_nonce()
    if kind == "observe":
        script = observe_script(nonce, [fragment])
    else:
        script = act_script(nonce, "r", "w", [Step(fragment, marks=(RESTART,))], state=str(state))
    last = script.rindex(b"main\n")
    # every byte around the fragment and the end, and a sample of the rest: each costs a shell
    begin = script.index(fragment.encode())
    cuts = {*range(0, last, 97), *range(begin, begin + len(fragment) + 30, 3), *range(last - 12, last + 4)}
    for cut in sorted(cuts):
        subprocess.run(shell, input=script[:cut], capture_output=True, check=False, timeout=20)
        assert not mark.exists(), script[:cut][-60:]
        assert not state.exists(), script[:cut][-60:]
    subprocess.run(shell, input=script, capture_output=True, check=False, timeout=20)
    assert mark.exists()


def test_probes_answer_where_nothing_can_be_written(shell: tuple[str, ...], tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where the state folder should be")
    nonce = new_nonce()
    parser = run(shell, nonce, observe_script(nonce, ["echo fine"], state=str(blocked)))
    assert parser.frame(1) == Frame(b"fine\n", b"", 0)


# ---------------------------------------------------------------- acting


def test_fixes_run_until_one_fails(host: HostDriver, tmp_path: Path) -> None:
    mark = tmp_path / "third"
    results = act(host, fix("echo one"), fix("echo two >&2; exit 3"), fix(f"touch {mark}"))
    assert [result.verdict for result in results] == [Verdict.DONE, Verdict.FAILED, Verdict.NOT_BEGUN]
    assert not mark.exists()


def test_markers_exist_from_before_the_fix_until_the_effect(host: HostDriver, state: Path) -> None:
    (result,) = act(host, fix(f"cat '{state}'/pending/*", RESTART))
    assert "restart\tit's a unit\t" in result.output[0]
    owed = host.answer(frozenset(), Cancel()).pending
    assert [(effect.effect, effect.run) for effect in owed] == [(RESTART, "r1")]


def test_a_fix_that_did_not_begin_leaves_no_marker(host: HostDriver) -> None:
    act(host, fix("false"), fix(":", RESTART))
    assert host.answer(frozenset(), Cancel()).pending == ()


def test_an_effect_that_succeeds_removes_its_marker(
    host: HostDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "effect_fragment", lambda effect: f"echo did {effect.cls}")
    results = act(host, fix(":", RESTART, INITRAMFS), effects=[INITRAMFS])
    assert [result.verdict for result in results] == [Verdict.DONE] * 2
    assert [marker.effect for marker in host.answer(frozenset(), Cancel()).pending] == [RESTART]


def test_an_effect_that_fails_stays_pending(host: HostDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "effect_fragment", lambda _: "false")
    act(host, fix(":", INITRAMFS), effects=[INITRAMFS])
    assert [marker.effect for marker in host.answer(frozenset(), Cancel()).pending] == [INITRAMFS]


def age(state: Path) -> None:
    """Pretend that the markers come from an earlier boot."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    for marker in (state / "pending").iterdir():
        marker.write_text(marker.read_text().replace(boot, OLD_BOOT))


def test_markers_that_another_boot_satisfies_are_removed(host: HostDriver, state: Path) -> None:
    act(host, fix(":", RESTART, REBOOT, Effect(host_effects.DAEMON_RELOAD)))
    age(state)
    act(host, fix(":"))
    assert list((state / "pending").iterdir()) == []


def test_a_boot_before_the_initramfs_was_rebuilt_proves_nothing(
    host: HostDriver, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "effect_fragment", lambda _: ":")
    act(host, fix(":", INITRAMFS, REBOOT))
    age(state)
    act(host, effects=[INITRAMFS])
    assert [marker.effect for marker in host.answer(frozenset(), Cancel()).pending] == [REBOOT]


def test_a_second_run_learns_who_holds_the_lock(
    host: HostDriver, shell: tuple[str, ...], state: Path
) -> None:
    begun, done = threading.Event(), threading.Event()

    def hold() -> None:
        host.act(
            "run-a",
            [fix(f"echo begun; while [ ! -e '{state}/go' ]; do sleep 0.05; done")],
            [],
            lambda _: begun.set(),
            Cancel(),
        )
        done.set()

    threading.Thread(target=hold, daemon=True).start()
    assert begun.wait(20)
    other = HostDriver("n1/ssh", LocalConnection(shell), {}, who="you@there", state=str(state))
    with pytest.raises(ProvisionError, match=r"HOST_LOCKED: .* run run-a of me@here since"):
        act(other, fix(":"), run_id="run-b")
    (state / "go").touch()
    assert done.wait(20)
    assert act(other, fix(":"), run_id="run-b")[0].verdict == Verdict.DONE


def test_a_fix_that_takes_too_long_is_ended_with_its_children(host: HostDriver, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    (result, after) = act(host, fix(f"sh -c 'echo $$ >{pid}; exec sleep 300'", timeout=3), fix(":"))
    assert (result.verdict, after.verdict) == (Verdict.FAILED, Verdict.NOT_BEGUN)
    assert not alive(int(pid.read_text()))
    assert act(host, fix(":"))[0].verdict == Verdict.DONE


def test_a_probe_that_hangs_is_ended(host: HostDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER", Limit(0.5))
    snapshot = host.answer(frozenset({Shell("sleep 300")}), Cancel())
    assert "no answer within" in snapshot[Shell("sleep 300")].reason


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_leaving_ends_the_process_group(host: HostDriver, tmp_path: Path) -> None:
    pid, cancel = tmp_path / "pid", Cancel()
    action = fix(f"sh -c 'echo $$ >{pid}; echo begun; exec sleep 300'")
    (result,) = host.act("r1", [action], [], lambda _: cancel.leave(), cancel)
    assert result.verdict == Verdict.INDETERMINATE
    assert not alive(int(pid.read_text()))


def test_a_killed_shell_leaves_its_fix_indeterminate(host: HostDriver) -> None:
    # The first fix takes a moment, as real ones do: by then its output no longer goes with the group.
    results = act(host, fix("sleep 0.3; echo begun"), fix("kill -KILL 0"), fix(":"))
    assert [result.verdict for result in results] == [Verdict.DONE, Verdict.INDETERMINATE, Verdict.NOT_BEGUN]
    assert results[1].handle.isdigit()


def test_large_content_is_checked_and_removed_after_use(host: HostDriver, state: Path) -> None:
    data = bytes(range(256)) * 1000
    blob = Blob(hashlib.sha256(data).hexdigest(), data)
    action = Action(None, "blob", Fix(f"sha256sum <$PROVISION_BLOBS/{blob.sha256}", blobs=(blob,)))
    assert act(host, action)[0].output == (f"{blob.sha256}  -",)
    assert list((state / "blobs").iterdir()) == []


def test_damaged_large_content_is_not_used(host: HostDriver, state: Path, tmp_path: Path) -> None:
    wrong = Blob("0" * 64, b"x" * 100)
    mark = tmp_path / "used"
    (result,) = act(host, Action(None, "blob", Fix(f"touch {mark}", blobs=(wrong,))))
    assert result.verdict == Verdict.FAILED
    assert "arrived damaged" in result.output[0]
    assert not mark.exists()
    assert list((state / "blobs").iterdir()) == []


def test_a_state_folder_that_cannot_be_made_stops_before_anything(
    shell: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    host = HostDriver("n1/ssh", LocalConnection(shell), {}, who="w", state=str(tmp_path / "file" / "state"))
    with pytest.raises(ProvisionError, match="HOST_STATE_UNWRITABLE"):
        act(host, fix(f"touch {tmp_path}/ran"))
    assert not (tmp_path / "ran").exists()


def test_a_megabyte_of_output_keeps_both_ends(host: HostDriver) -> None:
    (result,) = act(host, fix("echo first; head -c 1000000 /dev/zero | tr '\\0' x; echo; echo last"))
    assert result.verdict == Verdict.DONE
    assert result.output[-1] == "last"


def test_secrets_are_in_no_argument_list(host: HostDriver) -> None:
    secret = "planted-4711-secret"
    look = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'planted-4711-secre[t]' || :"
    script = f"printf %s {secret} >/dev/null; {look}"
    (result,) = act(host, Action(None, "secret", Fix(script, secrets=(SecretStr(secret),))))
    assert result.output == ("0",)


def test_a_background_child_does_not_hold_up_the_run(host: HostDriver, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    (result,) = act(host, fix(f"sleep 60 & echo $! >{pid}"))
    assert result.verdict == Verdict.DONE
    os.kill(int(pid.read_text()), signal.SIGKILL)


def test_sudo_in_front_of_the_shell_does_not_look_like_a_cut(shell: tuple[str, ...], tmp_path: Path) -> None:
    stand_in = tmp_path / "sudo"
    shutil.copy("/bin/sh", stand_in)
    command = (str(stand_in), "-c", f"{' '.join(shell)}; exit $?")
    there = HostDriver("n1/ssh", LocalConnection(command), {}, who="w", state=str(tmp_path / "state"))
    results = act(there, fix("echo one"), fix("echo two"))
    assert [result.verdict for result in results] == [Verdict.DONE, Verdict.DONE]
