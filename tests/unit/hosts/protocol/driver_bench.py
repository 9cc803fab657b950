"""A driver over a scripted shell, with two kinds of queries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from provision.contracts.driver import Action, Result
from provision.contracts.effect import Effect
from provision.contracts.query import Frame
from provision.contracts.remedy import Fix
from provision.hosts import host_effects
from provision.hosts.driver import HostDriver
from provision.testing.scripted_shell import Answer, ScriptedShell
from provision.values.cancel import Cancel

RESTART = Effect(host_effects.RESTART, "chrony.service")
RELOAD = Effect(host_effects.DAEMON_RELOAD)
REBOOT = Effect(host_effects.REBOOT_NODE)
INITRAMFS = Effect(host_effects.INITRAMFS)
OLD = "00000000-0000-4000-8000-00000000000f"


@dataclass(frozen=True)
class Word:
    kind: ClassVar[str] = "word"
    text: str


@dataclass(frozen=True)
class Other:
    kind: ClassVar[str] = "another"
    text: str


class Lines:
    """Answers every question with its line."""

    def __init__(self, query: type[Any]) -> None:
        self.query = query

    def script(self, queries: Sequence[Any]) -> str:
        return "\n".join(f"echo {query.text}" for query in queries)

    def parse(self, frame: Frame, queries: Sequence[Any]) -> Mapping[Any, object]:
        return dict(zip(queries, frame.stdout.decode().splitlines(), strict=False))


KINDS = {"word": Lines(Word), "another": Lines(Other)}


def host(*answers: Answer) -> tuple[HostDriver, ScriptedShell]:
    shell = ScriptedShell(*answers)
    return HostDriver("n1/ssh", shell, KINDS, who="me@here", reboot_deadline=0.2), shell


def action(label: str, fix: Fix | None = None, *effects: Effect) -> Action:
    return Action(None, label, fix or Fix("true"), effects)


def quiet(_: str) -> None:
    """Receives live output that no test looks at."""


def act(driver: HostDriver, actions: Sequence[Action], effects: Sequence[Effect] = ()) -> list[Result]:
    return driver.act("run-1", actions, effects, quiet, Cancel())
