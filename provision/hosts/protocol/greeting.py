"""Reads the greeting of a host, and what comes instead of one when it refuses to run scripts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from provision.connections.contracts import NO_LOGINS_NOW
from provision.contracts.effect import Effect, EffectClass
from provision.contracts.query import Frame
from provision.contracts.snapshot import Pending
from provision.hosts.protocol.script import is_satisfied
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, ProvisionError, Transient
from provision.values.redaction import printable

_LINES = 12
_WIDTH = 400


@dataclass(frozen=True, slots=True)
class Hello:
    """The first frame.

    Args:
        uid: user id that the script runs as.
        pgid: its process group, 0 if unknown.
        boot_id: which boot of the host answers.
        clock: the host's clock in epoch seconds, 0.0 if unknown.
        uname: kernel name, release, machine.
        pending: pending effects, without those that another boot has performed.
    """

    uid: int
    pgid: int
    boot_id: str
    clock: float
    uname: str
    pending: tuple[Pending, ...]


def read_hello(frame: Frame, effects: Mapping[str, EffectClass]) -> Hello:
    """Read the first frame; what is missing or damaged counts as unknown.

    Args:
        frame: the greeting.
        effects: the known effect classes by name; markers of others are left alone.
    """
    fields: dict[str, str] = {}
    pending: list[Pending] = []
    for line in frame.stdout.decode("utf-8", "replace").split("\n"):
        name, _, value = line.partition(" ")
        if name == "pending":
            pending += _pending(value, effects)
        else:
            fields[name] = value
    boot = fields.get("boot", "")
    rebuild = any(marker.effect.cls.needs_boot for marker in pending)
    return Hello(
        uid=_number(fields.get("uid", ""), -1),
        pgid=_number(fields.get("pgid", ""), 0),
        boot_id=boot,
        clock=float(_number(fields.get("epoch", ""), 0)),
        uname=fields.get("uname", ""),
        pending=tuple(
            marker
            for marker in pending
            if not is_satisfied(marker.effect.cls, marker.boot_id, boot, rebuild_owed=rebuild)
        ),
    )


def _pending(line: str, effects: Mapping[str, EffectClass]) -> list[Pending]:
    """Return the effect that a marker names; nothing for what is not one of our markers."""
    parts = line.split("\t")
    if len(parts) != 4 or parts[0] not in effects:  # noqa: PLR2004 - the fields of a marker
        return []
    return [Pending(Effect(effects[parts[0]], parts[1]), parts[2], parts[3])]


def _number(text: str, otherwise: int) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else otherwise  # noqa: PLR2004 - 64 bit


def last_lines(data: bytes, count: int = _LINES) -> tuple[str, ...]:
    """Return the last lines as a person may see them: no control bytes, not endlessly wide."""
    text = printable(data[-count * 4096 :].decode("utf-8", "replace"))
    lines = [line.rstrip()[:_WIDTH] for line in text.splitlines()]
    return tuple(line for line in lines if line)[-count:]


def whole(frame: Frame | None) -> str:
    """Return all that was kept of a frame's output, and how much of it was not."""
    if frame is None:
        return ""
    parts = [data.decode("utf-8", "replace") for data in (frame.stdout, frame.stderr) if data]
    if frame.dropped:
        parts.append(f"({frame.dropped} bytes in the middle were not kept)")
    return "\n".join(part.rstrip("\n") for part in parts)


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A reason why a host does not run our script, and the messages that show it."""

    error: type[Transient | Permanent]
    code: str
    summary: str
    remedy: str
    messages: tuple[str, ...]


_REFUSALS = (
    _Refusal(  # sudo(8) says after it that a password is required, which would not help
        Permanent,
        "SUDO_REFUSED",
        "sudo's check of the account fails",
        "correct the account's entry in /etc/shadow or /etc/pam.d/sudo on the host, or log in as root",
        ("PAM account management error", "account validation failure", "Account expired or PAM config"),
    ),
    _Refusal(
        Permanent,
        "SUDO_NEEDS_PASSWORD",
        "sudo asks for a terminal",
        "add `Defaults:USER !requiretty` in /etc/sudoers.d, or log in as root",
        ("you must have a tty",),
    ),
    _Refusal(
        Permanent,
        "SUDO_NEEDS_PASSWORD",
        "sudo asks for a password",
        "allow the user `NOPASSWD: ALL` in /etc/sudoers.d, or log in as root",
        (
            "sudo: a password is required",
            "sudo: a terminal is required",
            "no askpass program specified",
            # sudo-rs
            "interactive authentication is required",
            "sudo: Authentication required",
        ),
    ),
    _Refusal(
        Permanent,
        "SUDO_REFUSED",
        "sudo does not let this user become root",
        "give the user sudo rights, or log in as root",
        (
            "is not in the sudoers file",
            "may not run sudo",
            "is not allowed to execute",
            "is not allowed to run sudo",
            "sudo: I'm sorry",  # sudo-rs
        ),
    ),
    _Refusal(
        Permanent,
        "NO_SUDO",
        "the host has no sudo",
        "install sudo, or log in as root",
        (
            "sudo: not found",
            "sudo: command not found",
            "sudo: No such file",
            "command not found: sudo",  # zsh
            "Unknown command: sudo",  # fish
        ),
    ),
    _Refusal(
        Permanent,
        "NO_SHELL",
        "the account may not run commands",
        "use an account with a login shell: `ssh.user` in the inventory",
        (
            "This account is",
            "Please login as the user",
            "does not allow command execution",
            "exec: restricted",  # rbash
            "restricted: cannot specify",  # rbash
        ),
    ),
    _Refusal(
        Permanent,
        "PASSWORD_EXPIRED",
        "the account's password has expired",
        "log in and set a new password",
        (
            "password has expired",
            "password is expired",
            "required to change your password",
            "Password change required",
        ),
    ),
    _Refusal(
        Transient,
        "HOST_BOOTING",
        "the host does not let users log in yet",
        "wait until it has booted, then run the command again",
        tuple(NO_LOGINS_NOW),
    ),
)


_PASSWORD = re.compile(
    r"passw|contrase|mot de passe|парол|hasło|heslo|senha|parol|lösen|salasana|wachtwoord|jelszó|şifre|"
    r"密码|密碼|パスワード|암호|adgangskode|contrasenya|geslo|zapork",
    re.IGNORECASE,
)
"""How sudo's translations call a password, where the server does not take our `LC_ALL=C`."""

_NOT_FOUND = 127
"""sh(1): the command cannot be found."""

_SUDO_FAILED = _Refusal(
    Permanent,
    "SUDO_REFUSED",
    "sudo did not start a shell",
    "make `sudo -n true` work for this user, or log in as root",
    (),
)


def _refusal(text: str, rc: int | None, *, by_sudo: bool) -> _Refusal | None:
    """Return why the host does not run our script; None if neither text nor exit status show it."""
    for refusal in _REFUSALS:
        if any(message in text for message in refusal.messages):
            return refusal
    # sudo(8) ends with 1 when it does not run the command; its messages begin with its name in every language
    own = [line for line in text.splitlines() if line.startswith("sudo: ")]
    if rc != 1 or not (own or by_sudo):
        return _of_code("NO_SUDO") if by_sudo and rc == _NOT_FOUND else None
    return _of_code("SUDO_NEEDS_PASSWORD") if any(map(_PASSWORD.search, own)) else _SUDO_FAILED


def _of_code(code: str) -> _Refusal:
    return [refusal for refusal in _REFUSALS if refusal.code == code][-1]


def no_hello(
    system: str, outside: bytes, rc: int | None, evidence: tuple[str, ...], *, by_sudo: bool = False
) -> ProvisionError:
    """Return the error for an execution without a first frame.

    Args:
        system: whom it is about.
        outside: what came instead.
        rc: exit status, None when the connection was cut.
        evidence: the same as lines, secrets masked.
        by_sudo: sudo was to start the shell.
    """
    refusal = _refusal(outside.decode("utf-8", "replace"), rc, by_sudo=by_sudo)
    if refusal is not None:
        error, code, summary, remedy = refusal.error, refusal.code, refusal.summary, refusal.remedy
    elif rc is None:
        error, code, summary = Transient, "HOST_CUT", "the connection was cut before the host answered"
        remedy = "check the network and the host, then run the command again"
    else:
        error, code, evidence = Permanent, "HOST_ANSWERED_GARBAGE", evidence or ("(nothing)",)
        summary = f"the host did not run our script (exit status {rc})"
        host = system.removesuffix("/ssh")
        remedy = f"check the output and the exit status of: `ssh {host} 'exec /bin/sh -s' </dev/null`"
    return error(Diagnostic(code, f"{system}: {summary}", system, evidence=evidence, remedy=remedy))
