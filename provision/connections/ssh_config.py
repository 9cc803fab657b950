"""What ssh(1) makes of its configuration for one host: the answer of `ssh -G`.

Include, Match, tokens and canonical names are ssh's own grammar, so ssh is asked instead of read again.
"""

from __future__ import annotations

import glob
import os
import pwd
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent
from provision.values.redaction import printable

SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")

TIMEOUT = 30.0
"""Seconds: `Match exec` runs commands, and canonical names ask DNS."""

Options = Mapping[str, tuple[str, ...]]
"""The values by lower-case keyword, in the order of ssh's answer."""

_DEPTH = 16
"""How deep ssh(1) follows Include (readconf.c)."""

_LINE = re.compile(r"(\s*)([A-Za-z]+)(\s*=\s*|\s+)(.*)", re.DOTALL)

_USED = frozenset(
    {
        "addressfamily",
        "bindaddress",
        "bindinterface",
        "canonicalizehostname",
        "certificatefile",
        "globalknownhostsfile",
        "hostkeyalias",
        "hostname",
        "identitiesonly",
        "identityagent",
        "identityfile",
        "port",
        "proxycommand",
        "proxyjump",
        "user",
        "userknownhostsfile",
    }
)
"""The keywords that decide where a connection goes and which keys count."""

_WITH_HOME = frozenset(
    {"certificatefile", "globalknownhostsfile", "identityagent", "identityfile", "userknownhostsfile"}
)


def user_config() -> Path:
    """Return the user's own SSH configuration file."""
    return Path.home() / ".ssh" / "config"


def applies() -> bool:
    """Whether a configuration exists that may change where a connection goes."""
    return user_config().is_file() or _system_matters(SYSTEM_CONFIG, _stamp(SYSTEM_CONFIG))


def options_of(host: str, user: str | None, port: int | None, system: str) -> Options:
    """Return what ssh(1) would use for a host; the answer is kept as long as the files stay the same.

    Args:
        host: as a person would give it to ssh.
        user: login that overrides the configuration.
        port: TCP port that overrides the configuration.
        system: name for messages.

    Raises:
        Permanent: `SSH_CONFIG_UNREADABLE`.
    """
    try:
        text = _answer(host, user, port, user_config(), _stamp(user_config()), _stamp(SYSTEM_CONFIG))
    except _NoAnswerError as error:
        raise Permanent(
            Diagnostic(
                "SSH_CONFIG_UNREADABLE",
                f"{system}: ssh(1) does not accept its configuration for {host}",
                system,
                evidence=error.evidence,
                untouched="nothing was sent to the host",
                remedy=f"install the OpenSSH client, and run `ssh -G {shlex.quote(host)}` until it succeeds",
            )
        ) from error
    options: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        keyword, _, value = line.partition(" ")
        options[keyword] = (*options.get(keyword, ()), value)
    return options


@lru_cache(maxsize=1)
def default_identities() -> tuple[str, ...]:
    """Return the key files that ssh(1) names where no configuration does, as it prints them."""
    text = _run("-F", "none", "-G", "localhost")
    return tuple(line.split(" ", 1)[1] for line in text.splitlines() if line.startswith("identityfile "))


class _NoAnswerError(Exception):
    def __init__(self, *evidence: str) -> None:
        super().__init__(*evidence)
        self.evidence = evidence


@lru_cache(maxsize=4096)
def _answer(host: str, user: str | None, port: int | None, config: Path, *stamps: tuple[int, int]) -> str:
    del stamps  # part of the cache's key: a changed file is read again
    arguments = ["-G"]
    if user is not None:
        arguments += ["-l", user]
    if port is not None:
        arguments += ["-p", str(port)]
    if _is_own_home():
        return _run(*arguments, "--", host)
    # ssh(1) takes the home folder from the user database, not from $HOME. Where they differ (a container of
    # a CI service, for example), it gets a copy of the files in which paths of the home folder are absolute.
    with tempfile.TemporaryDirectory(prefix="provision-ssh-") as folder:
        copies = _Copies(Path(folder))
        main = Path(folder, "main")
        parts = [
            copies.text(path, base, 0)
            for path, base in ((config, config.parent), _system())
            if path.is_file()
        ]
        main.write_text("\nMatch all\n".join(parts), encoding="utf-8")
        return _run("-F", str(main), *arguments, "--", host)


def _system() -> tuple[Path, Path]:
    return SYSTEM_CONFIG, SYSTEM_CONFIG.parent


def _is_own_home() -> bool:
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir) == Path.home()
    except KeyError:  # no entry in the user database
        return False


def _run(*arguments: str) -> str:
    # -T: without a terminal on stdin, ssh would complain about it
    command = ["ssh", "-T", *arguments]
    try:
        process = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except FileNotFoundError:
        raise _NoAnswerError("ssh(1) is not installed") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _NoAnswerError(str(error)) from None
    if process.returncode != 0:
        lines = printable(process.stderr.decode("utf-8", "replace")).splitlines()
        raise _NoAnswerError(*(line.strip() for line in lines[-5:] if line.strip()))
    return process.stdout.decode("utf-8", "replace")


def _stamp(path: Path) -> tuple[int, int]:
    """Return what changes with a file; two zeros if there is none."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


class _Copies:
    """Copies of configuration files in which Include and `~` lead to $HOME.

    Args:
        folder: where they are written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def text(self, path: Path, base: Path, depth: int) -> str:
        """Return a file's text; `base` is the folder of relative names in Include."""
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        return "\n".join(self._line(line, base, depth) for line in lines) + "\n"

    def _line(self, line: str, base: Path, depth: int) -> str:
        match = _LINE.fullmatch(line)
        if match is None:
            return line
        indent, keyword, separator, value = match.groups()
        if keyword.lower() == "include":
            return self._include(indent, value, base, depth)
        if keyword.lower() in _WITH_HOME:
            value = re.sub(r"(^|[\s\"'])~(?=/)", lambda tilde: f"{tilde[1]}{Path.home()}", value)
        return f"{indent}{keyword}{separator}{value}"

    def _include(self, indent: str, value: str, base: Path, depth: int) -> str:
        if depth >= _DEPTH:
            return f"{indent}Include {value}"
        copies: list[str] = []
        for path in _included(value, base):
            self._count += 1
            copy = self._folder / str(self._count)
            text = self.text(path, base, depth + 1)
            copy.write_text(text, encoding="utf-8", errors="surrogateescape")
            copies.append(str(copy))
        return f"{indent}Include {' '.join(copies)}" if copies else ""


def _included(value: str, base: Path) -> Iterator[Path]:
    """Yield the files that the words of an Include name, in ssh's order."""
    try:
        words = shlex.split(value, comments=True)
    except ValueError:  # ssh(1) says what is wrong with the quotes
        return
    for word in words:
        pattern = str(base / Path(word).expanduser())
        names = sorted(glob.glob(pattern))  # noqa: PTH207 - Path.glob takes no absolute pattern
        yield from (path for name in names if (path := Path(name)).is_file())


@lru_cache(maxsize=4)
def _system_matters(path: Path, stamp: tuple[int, int]) -> bool:
    """Whether the machine's own configuration says anything that we use; Debian's does not."""
    del stamp  # part of the cache's key: a changed file is read again
    return any(keyword in _USED for keyword in _keywords(path, 0))


def _keywords(path: Path, depth: int) -> Iterator[str]:
    if depth > _DEPTH:
        return
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        keyword = match[2].lower()
        yield keyword
        if keyword == "include":
            for included in _included(match[4], SYSTEM_CONFIG.parent):
                yield from _keywords(included, depth + 1)
