from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from provision.contracts.change import Change, Key
from provision.contracts.query import Unknown
from provision.contracts.remedy import Fix
from provision.contracts.snapshot import Snapshot
from provision.engine.step_state import StepState
from provision.report.explain import print_explained
from provision.report.explained import explained
from provision.values.diagnostics import Source
from tests.unit.report.samples import GUEST_STEP, shown

CHRONY, TOKEN = GUEST_STEP.changes[0], GUEST_STEP.changes[1]


@dataclass(frozen=True)
class Wanted:
    key: Key
    source: Source | None = None

    def queries(self) -> tuple[Any, ...]:
        return (FileState(self.key.name, "7d" * 32 if "chrony" in self.key.name else ""),)

    def changes(self, _seen: Snapshot) -> tuple[Change, ...]:
        return ()

    def fix(self, _seen: Snapshot) -> Fix:
        return Fix("")


@dataclass(frozen=True)
class Salted:
    secret: ClassVar[bool] = True
    salt: str
    hash: str


@dataclass(frozen=True)
class Secret(Wanted):
    def queries(self) -> tuple[Any, ...]:
        return (Salted("salt", "abc123"),)


@dataclass(frozen=True)
class FileState:
    path: str
    want: str = ""
    salt: str = ""


@dataclass(frozen=True)
class FileStatus:
    type: str
    mode: str = ""
    owner: str = ""
    size: int = 0


MOTD = Key("vm-1/ssh", "file", "/etc/motd")
LONGER = Key("vm-1/ssh", "file", "/etc/motd.d/x")
SOURCE = Source("lab.yaml", 3, 5, "    chrony: yes", 6)
STATE = StepState(
    GUEST_STEP.step, None, {}, (Wanted(CHRONY.key, SOURCE), Secret(TOKEN.key), Wanted(MOTD), Wanted(LONGER))
)
STATE.plan = GUEST_STEP
SEEN = Snapshot(
    "vm-1/ssh",
    answers={
        FileState(CHRONY.key.name, "7d" * 32): FileStatus("file", "0600", size=7),
        Salted("salt", "abc123"): Unknown("no answer"),
        FileState(MOTD.name): "fine\x1b[0m",
    },
)


def text_of(text: str) -> str:
    explanations = explained({GUEST_STEP.step.id: STATE}, {"vm-1/ssh": SEEN}, text)
    parts = [shown(lambda console, each=each: print_explained(console, each)) for each in explanations]  # type: ignore[misc]  # the default binds the loop
    return "".join(parts)


def test_a_difference_is_explained_from_its_line_to_its_cost() -> None:
    assert text_of("chrony.conf").splitlines() == [
        "vm-1/ssh:file:/etc/chrony/chrony.conf",
        "  The step vm-1: base_os declares it, from this line of the inventory:",
        "    lab.yaml:3:5",
        "    3 |     chrony: yes",
        "      |     ^^^^^^",
        "  Found on vm-1/ssh:",
        "    file state of /etc/chrony/chrony.conf: type file, mode 0600, size 7",
        "  It differs. The next apply changes this:",
        "    ~ content",
        "      - pool a",
        "      + pool b",
        "    ~ mode: 0600 → 0644",
        "  After the change:",
        "    restart chrony.service: a service restarts",
    ]


def test_a_secret_is_not_explained() -> None:
    text = text_of("/etc/token")
    assert "hunter" not in text
    assert "abc123" not in text
    assert "content of a secret: (secret)" in text
    assert "Unknown: no answer" in text


def test_a_key_explains_one_resource_and_a_part_all_that_contain_it() -> None:
    assert text_of(str(MOTD)).count("declares it") == 1
    assert text_of("/etc/motd").count("declares it") == 2


def test_a_resource_that_is_as_declared_says_so() -> None:
    assert "It is as declared." in text_of(str(MOTD))
    assert "\x1b" not in text_of(str(MOTD))
    assert "vm-1/ssh was not asked" in text_of(str(LONGER))


@pytest.mark.parametrize("text", ["nowhere"])
def test_an_unknown_key_explains_nothing(text: str) -> None:
    assert text_of(text) == ""
