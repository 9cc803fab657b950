"""What a check may look at. Checks are pytest files; this is all that they share with the runner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from provision.contracts.query import ApiReply
from provision.inventory import Inventory

if TYPE_CHECKING:
    from testinfra.host import Host

T = TypeVar("T")


class NotDeclared(Exception):  # noqa: N818 - a word to the runner, no error
    """The subject declares nothing for this check: there is no claim, and no result."""


class Trivial(Exception):  # noqa: N818 - a word to the runner, no error
    """The claim holds and proves nothing: there is nothing to compare, or a stand-in answered for hardware.

    Its text says which.
    """


class NotRun(Exception):  # noqa: N818 - a word to the runner, no error
    """Nobody looked: what the check needs is missing, or others use it now. Its text says which."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What a check has measured.

    Args:
        name: what was measured.
        value: as a number.
        unit: of value and expectation.
        expected: what it is compared with; None where nothing is declared.
        margin: how far it may be below (as a share of what is expected).
    """

    name: str
    value: float
    unit: str = ""
    expected: float | None = None
    margin: float = 0.0

    def __str__(self) -> str:
        """Return it as people read it."""
        text = f"{self.name}: {self.value:g} {self.unit}".rstrip()
        if self.expected is None:
            return text
        margin = f" less {self.margin:.0%}" if self.margin else ""
        return f"{text} (expected {self.expected:g} {self.unit}".rstrip() + f"{margin})"


@dataclass(frozen=True, slots=True)
class Damage:
    """What `verify --break` does to one thing that a check looks at; in a lab only.

    Args:
        system: where.
        script: shell text for a host; otherwise one API request:
        method: PUT or DELETE.
        path: of the API.
        data: its parameters.
    """

    system: str
    script: str = ""
    method: str = ""
    path: str = ""
    data: Mapping[str, object] = field(default_factory=dict)


class Site(Protocol):
    """The site under verification, as the fixture `site` gives it to checks."""

    @property
    def inventory(self) -> Inventory:
        """What was declared."""

    def is_away(self, system: str) -> bool:
        """Return whether a system cannot be reached now."""

    def host(self, system: str) -> Host:
        """Return testinfra's view of a system; the check ends as unknown when it is away."""

    def get(self, system: str, path: str) -> ApiReply:
        """Return what an API answers to a GET; the check ends as unknown when it is away.

        Raises:
            ProvisionError: it gives no answers, though it did before.
        """

    def skew(self, system: str) -> float:
        """Return a host's clock minus the controller's, in seconds, when the host last answered."""

    def again(self, system: str, *commands: str) -> Iterator[None]:
        """Run commands again for some time, for what is true only some time after a change."""


class Trials(Protocol):
    """What a check needs that makes something for a time, as the fixture `trials` gives it.

    A check that takes it is *not run* with `--no-pods`. Requests are never asked in advance, are sent without
    the system's lock, and those that change something are in the journal before they are sent.
    """

    @property
    def run(self) -> str:
        """Identifies this verification; part of the names and labels of what checks make."""

    def send(self, system: str, method: str, path: str, body: Mapping[str, object] | None = None) -> ApiReply:
        """Send one request to an API, also while the run is being interrupted: cleaning up must be possible.

        Raises:
            ProvisionError: no answer.
        """

    def pause(self, seconds: float, *, final: bool = False) -> None:
        """Wait.

        Args:
            seconds: how long.
            final: for what goes away; an interrupted run waits for it, too.

        Raises:
            Interrupted: the run must leave.
        """

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Return what was made the first time for this name, or raise what was raised then."""

    def at_end(self, name: str, remove: Callable[[], None]) -> None:
        """Call this once after all checks, also after an interruption; one call for each name.

        What it raises is a failed check of that name.
        """
