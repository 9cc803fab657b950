"""What apt would install: versions by archive, and a whole transaction without doing it.

Sources: apt-cache(8) `policy`, apt-get(8) `--simulate`. A package's name is a request; only the simulated
transaction says which versions come.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from provision.contracts.query import Unknown
from provision.hosts.operations.basic import words
from provision.hosts.queries.shell import Shell, ShellResult

_MARK = "@packages"
_TABLE = re.compile(r"^ (?:\*\*\*|   ) (\S+) -?[0-9]+$")
_FILE = re.compile(r"^ *-?[0-9]+ (\S.*)$")
_ORIGIN = re.compile(r"(?:^|,)o=([^,]*)")
_STEP = re.compile(r"^(Inst|Remv|Purg) (\S+) (?:\[([^\]]*)\])? ?(?:\((\S+))?")


@dataclass(frozen=True, slots=True)
class Offer:
    """A version of a package, and the archives that have it (`Debian`, `Ubuntu`, `NVIDIA`)."""

    version: str
    origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Offers:
    """A package as apt knows it.

    Args:
        installed: empty for not installed.
        versions: newest first.
    """

    installed: str = ""
    versions: tuple[Offer, ...] = ()


@dataclass(frozen=True, slots=True)
class Move:
    """A package that a transaction installs, replaces or removes.

    Args:
        old: empty for none.
        new: empty for one that is removed.
    """

    name: str
    old: str = ""
    new: str = ""


@dataclass(frozen=True, slots=True)
class Transaction:
    """What apt would do.

    Args:
        moves: in its order.
        refusal: why it would do nothing; empty where it would.
    """

    moves: tuple[Move, ...] = ()
    refusal: str = ""


def policy(names: Iterable[str]) -> Shell:
    """Return the query for the versions of some packages."""
    return Shell(f"apt-cache policy; echo {_MARK}; apt-cache policy -- {words(names)}")


def read_policy(answer: object) -> Mapping[str, Offers] | Unknown:
    """Return what apt knows of each package that it knows at all."""
    text = _text(answer)
    if isinstance(text, Unknown):
        return text
    archives, mark, packages = text.partition(f"{_MARK}\n")
    if not mark:
        return Unknown("apt-cache did not answer")
    origins = _origins(archives.splitlines())
    known: dict[str, Offers] = {}
    name, installed = "", ""
    versions: list[Offer] = []
    for line in (*packages.splitlines(), "end:"):
        if line and not line[0].isspace():
            if name:
                known[name] = Offers(installed, tuple(versions))
            name, installed, versions = line.rstrip().removesuffix(":"), "", []
        elif line.startswith("  Installed: "):
            word = line.split()[1]
            installed = "" if word == "(none)" else word
        elif match := _TABLE.match(line):
            versions.append(Offer(match[1]))
        elif versions and (match := _FILE.match(line)) and match[1] in origins:
            last = versions[-1]
            versions[-1] = Offer(last.version, (*last.origins, origins[match[1]]))
    return known


def _origins(lines: Sequence[str]) -> Mapping[str, str]:
    """Return the origin of each archive by the words with which version tables name it."""
    origins: dict[str, str] = {}
    archive = ""
    for line in lines:
        stripped = line.strip()
        if stripped.startswith("release "):
            match = _ORIGIN.search(stripped.removeprefix("release "))
            if archive and match is not None:
                origins[archive] = match[1]
        elif match := _FILE.match(line):
            archive = match[1]
    return origins


def simulation(requests: Iterable[str]) -> Shell:
    """Return the query for a transaction; requests are names or `NAME=VERSION`.

    Nothing is locked, so that a running apt does not fail it. Held packages may move: these are requests.
    """
    options = "-s -q -y -o Debug::NoLocking=1 --no-install-recommends --allow-change-held-packages"
    return Shell(f"apt-get {options} --allow-downgrades install -- {words(requests)}")


def read_simulation(answer: object) -> Transaction | Unknown:
    """Return what a transaction would do, or why it would do nothing."""
    if isinstance(answer, ShellResult) and answer.rc:
        lines = (answer.stdout + b"\n" + answer.stderr).decode("utf-8", "replace").splitlines()
        # apt prints unmet dependencies on its output, and their summary as errors.
        words_of = [line.strip() for line in lines if line.startswith("E: ") or " Depends: " in line]
        return Transaction(refusal="; ".join(words_of)[:500] or "apt-get refuses, and does not say why")
    text = _text(answer)
    if isinstance(text, Unknown):
        return text
    moves: list[Move] = []
    for match in filter(None, map(_STEP.match, text.splitlines())):
        verb, name, old, new = match.groups()
        moves.append(Move(name, old or "", (new or "") if verb == "Inst" else ""))
    return Transaction(tuple(moves))


def _text(answer: object) -> str | Unknown:
    if isinstance(answer, Unknown):
        return answer
    if not isinstance(answer, ShellResult) or answer.rc:
        return Unknown("apt is not installed, or does not answer")
    return answer.stdout.decode("utf-8", "replace")
