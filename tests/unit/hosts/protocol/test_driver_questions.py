"""Questions to a host: one execution, and every answer that does not come is unknown."""

from collections.abc import Sequence

import pytest

from provision.contracts.effect import Effect
from provision.contracts.query import Unknown
from provision.contracts.snapshot import Pending
from provision.hosts import driver as module
from provision.hosts import host_effects
from provision.hosts.protocol.deadlines import Limit
from provision.testing.scripted_shell import BOOT, Answer, Said
from provision.values.cancel import Cancel, Interrupted
from provision.values.errors import Permanent, ProvisionError, Transient
from tests.unit.hosts.protocol.driver_bench import INITRAMFS, OLD, REBOOT, RESTART, Other, Word, host


def test_all_queries_take_one_execution_with_a_fragment_a_kind() -> None:
    driver, shell = host(Answer({1: Said(b"x\n"), 2: Said(b"a\nb\n")}))
    snapshot = driver.answer(frozenset({Word("a"), Word("b"), Other("x")}), Cancel())
    assert snapshot.answers == {Word("a"): "a", Word("b"): "b", Other("x"): "x"}
    assert driver.round_trips == 1
    assert shell.scripts[0].count(b"( set -eu") == 2


def test_without_queries_the_greeting_is_read() -> None:
    driver, _ = host(Answer(epoch=1_700_000_000))
    snapshot = driver.answer(frozenset(), Cancel())
    assert (snapshot.boot_id, snapshot.clock, snapshot.answers) == (BOOT, 1_700_000_000.0, {})
    assert snapshot.skew < 0


def test_a_query_that_the_answer_does_not_mention_is_unknown() -> None:
    driver, _ = host(Answer({1: Said(b"a\n")}))
    snapshot = driver.answer(frozenset({Word("a"), Word("b")}), Cancel())
    assert snapshot[Word("a")] == "a"
    assert isinstance(snapshot[Word("b")], Unknown)


def test_a_cut_in_the_middle_of_the_answer_is_transient() -> None:
    driver, _ = host(Answer({1: Said(b"a\n", rc=None)}, rc=None))
    with pytest.raises(Transient, match="HOST_CUT"):
        driver.answer(frozenset({Word("a")}), Cancel())


def test_a_query_that_hangs_is_ended_and_only_its_answers_are_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ANSWER", Limit(0.02))
    driver, shell = host(Answer({1: Said(b"x\n"), 2: Said(rc=None)}, silence=5.0))
    snapshot = driver.answer(frozenset({Other("x"), Word("a")}), Cancel())
    assert snapshot[Other("x")] == "x"
    assert snapshot[Word("a")] == Unknown("no answer within 0.02 s")
    assert shell.killed == [4242]


def test_a_silent_host_is_left_after_the_greeting_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GREETING", Limit(0.02))
    driver, shell = host(Answer(hello=None, before=b"wait...\n", silence=5.0))
    with pytest.raises(Transient, match="HOST_SILENT"):
        driver.answer(frozenset(), Cancel())
    assert shell.closed


def test_a_run_that_leaves_asks_nothing_more() -> None:
    cancel = Cancel()
    cancel.leave()
    driver, _ = host(Answer())
    with pytest.raises(Interrupted):
        driver.answer(frozenset(), cancel)


@pytest.mark.parametrize(
    ("words", "rc", "error", "code"),
    [
        (b"sudo: a password is required\n", 1, Permanent, "SUDO_NEEDS_PASSWORD"),
        (b"sudo: a terminal is required to read the password\n", 1, Permanent, "SUDO_NEEDS_PASSWORD"),
        (b"ann is not in the sudoers file.\n", 1, Permanent, "SUDO_REFUSED"),
        (b"sudo: interactive authentication is required\n", 1, Permanent, "SUDO_NEEDS_PASSWORD"),
        (b"sudo: Ein Passwort ist notwendig\n", 1, Permanent, "SUDO_NEEDS_PASSWORD"),
        ("sudo: il est nécessaire de saisir un mot de passe\n".encode(), 1, Permanent, "SUDO_NEEDS_PASSWORD"),
        ("sudo: se requiere una contraseña\n".encode(), 1, Permanent, "SUDO_NEEDS_PASSWORD"),
        ("sudo: пароль обязателен\n".encode(), 1, Permanent, "SUDO_NEEDS_PASSWORD"),
        ("sudo: パスワードが必要です\n".encode(), 1, Permanent, "SUDO_NEEDS_PASSWORD"),
        (b"sudo: sorry, you must have a tty to run sudo\n", 1, Permanent, "SUDO_NEEDS_PASSWORD"),
        (b"sudo: I'm sorry deploy. I'm afraid I can't do that\n", 1, Permanent, "SUDO_REFUSED"),
        (b"Sorry, user ann may not run sudo on n1.\n", 1, Permanent, "SUDO_REFUSED"),
        (b"sudo: error in event loop\n", 1, Permanent, "SUDO_REFUSED"),
        (b"sh: 1: exec: sudo: not found\n", 127, Permanent, "NO_SUDO"),
        (b"zsh:1: command not found: sudo\n", 127, Permanent, "NO_SUDO"),
        (b"fish: Unknown command: sudo\n", 127, Permanent, "NO_SUDO"),
        (b"rbash: line 1: exec: restricted\n", 1, Permanent, "NO_SHELL"),
        (b"This account is currently not available.\n", 1, Permanent, "NO_SHELL"),
        (b'Please login as the user "debian" rather than the user "root".\n', 142, Permanent, "NO_SHELL"),
        (b"WARNING: Your password has expired.\n", 1, Permanent, "PASSWORD_EXPIRED"),
        (b"System is booting up. Unprivileged users are not permitted\n", 1, Transient, "HOST_BOOTING"),
        (b"Cisco IOS\n% Unknown command\n", 0, Permanent, "HOST_ANSWERED_GARBAGE"),
        (b"", 0, Permanent, "HOST_ANSWERED_GARBAGE"),
        (b"Last login\n", None, Transient, "HOST_CUT"),
    ],
)
def test_output_instead_of_a_greeting_is_the_evidence(
    words: bytes, rc: int | None, error: type[ProvisionError], code: str
) -> None:
    driver, _ = host(Answer(hello=None, before=words, rc=rc))
    with pytest.raises(error) as caught:
        driver.answer(frozenset(), Cancel())
    diagnostic = caught.value.diagnostics[0]
    assert diagnostic.code == code
    assert diagnostic.remedy
    if words:
        assert words.decode().splitlines()[0] in diagnostic.evidence


PAM, ASKS = "sudo: PAM account management error", "sudo: a password is required\n"
NEEDS, REFUSED, EXPIRED = "SUDO_NEEDS_PASSWORD", "SUDO_REFUSED", "PASSWORD_EXPIRED"
LECTURE = b"""
We trust you have received the usual lecture from the local System
Administrator. It usually boils down to these three things:

    #1) Respect the privacy of others.
"""


@pytest.mark.parametrize(
    ("words", "rc", "code"),
    [
        (LECTURE + b"\nsudo: a password is required\n", 1, "SUDO_NEEDS_PASSWORD"),
        (LECTURE + b"\nsudo: Ein Passwort ist notwendig\n", 1, "SUDO_NEEDS_PASSWORD"),
        (b"[sudo] password for ann: \nsudo: a password is required\n", 1, "SUDO_NEEDS_PASSWORD"),
        (b"ann ist nicht in der sudoers-Datei.\n", 1, "SUDO_REFUSED"),
        (b"", 1, "SUDO_REFUSED"),
        (b"bash: Zeile 1: exec: sudo: Nicht gefunden.\n", 127, "NO_SUDO"),
        (b"Cisco IOS\n% Unknown command\n", 0, "HOST_ANSWERED_GARBAGE"),
        # public reports: linux-pam#876, sudo#143, sudo#236, distrobox#721, coolify#5156, lxc#828
        (f"{PAM}: Authentication service cannot retrieve authentication info\n{ASKS}".encode(), 1, REFUSED),
        (f"sudo: unable to resolve host n1: Name or service not known\n{ASKS}".encode(), 1, NEEDS),
        (f"sudo: a terminal is required to read the password; use -S\n{ASKS}".encode(), 1, NEEDS),
        (b"sudo: no tty present and no askpass program specified\n", 1, NEEDS),
        (b"sudo: Account or password is expired, reset your password and try again\n", 1, EXPIRED),
        (b"sudo: account validation failure, is your account locked?\n", 1, REFUSED),
        (b'sudo: Account expired or PAM config lacks an "account" section for sudo\n', 1, REFUSED),
        (b"sudo: /usr/bin/sudo must be owned by uid 0 and have the setuid bit set\n", 1, REFUSED),
        (b"sudo: effective uid is not 0, is sudo installed setuid root?\n", 1, REFUSED),
        (
            b'sudo: The "no new privileges" flag is set, which prevents sudo from running as root.\n',
            1,
            REFUSED,
        ),
        (b"sudo: /etc/sudoers is world writable\nsudo: no valid sudoers sources found\n", 1, REFUSED),
        (b">>> /etc/sudoers.d/lab: syntax error near line 1 <<<\nsudo: parse error in lab\n", 1, REFUSED),
        (b"sudo: unknown uid 1000: who are you?\n", 1, REFUSED),
    ],
)
def test_where_sudo_starts_the_shell_its_exit_status_counts(words: bytes, rc: int, code: str) -> None:
    driver, shell = host(Answer(hello=None, before=words, rc=rc))
    shell.uses_sudo = True
    with pytest.raises(Permanent) as caught:
        driver.answer(frozenset(), Cancel())
    diagnostic = caught.value.diagnostics[0]
    assert diagnostic.code == code
    assert diagnostic.remedy


def test_banners_before_the_greeting_are_ignored() -> None:
    driver, _ = host(Answer({1: Said(b"a\n")}, before=b"\x1b[31mWelcome!\nProperty of ACME\n"))
    assert driver.answer(frozenset({Word("a")}), Cancel())[Word("a")] == "a"


@pytest.mark.parametrize("piece", [1, 2, 7, 64])
def test_pieces_of_any_size_give_the_same_answer(piece: int) -> None:
    driver, _ = host(Answer({1: Said(b"a\nb\n", b"noise")}, piece=piece))
    assert driver.answer(frozenset({Word("a"), Word("b")}), Cancel()).answers == {
        Word("a"): "a",
        Word("b"): "b",
    }


def pending(lines: Sequence[str]) -> tuple[Pending, ...]:
    driver, _ = host(Answer(hello=[f"pending {line}" for line in lines]))
    return driver.answer(frozenset(), Cancel()).pending


@pytest.mark.parametrize(
    ("lines", "owed"),
    [
        ([f"restart\tchrony.service\t{BOOT}\tr1"], [RESTART]),
        ([f"restart\tchrony.service\t{OLD}\tr1"], []),
        ([f"daemon-reload\t\t{OLD}\tr1"], []),
        ([f"restart-k3s\t\t{OLD}\tr1"], []),
        ([f"reboot-node\t\t{BOOT}\tr1"], [REBOOT]),
        ([f"reboot-node\t\t{OLD}\tr1"], []),
        ([f"initramfs\t\t{OLD}\tr1"], [INITRAMFS]),
        ([f"boot-loader\t\t{OLD}\tr1"], [Effect(host_effects.BOOT_LOADER)]),
        # rebooted by hand before the initramfs was rebuilt: that boot proves nothing
        ([f"initramfs\t\t{OLD}\tr1", f"reboot-node\t\t{OLD}\tr1"], [INITRAMFS, REBOOT]),
        (["garbage", "restart\tx", f"explode\t\t{BOOT}\tr1", ""], []),
    ],
)
def test_pending_effects_are_reported_unless_another_boot_did_them(
    lines: list[str], owed: list[Effect]
) -> None:
    assert [marker.effect for marker in pending(lines)] == owed


def test_an_answer_that_no_reader_takes_leaves_the_others_known() -> None:
    driver, _ = host(Answer({1: Said(b"9" * 5000 + b"\xff\n"), 2: Said(b"a\n")}))
    snapshot = driver.answer(frozenset({Other("x"), Word("a")}), Cancel())
    assert snapshot[Word("a")] == "a"
    answer = snapshot[Other("x")]
    assert isinstance(answer, Unknown)
    assert "is not understood" in answer.reason
