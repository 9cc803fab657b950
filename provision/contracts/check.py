"""What a check may look at. Checks are pytest files; this is all that they share with the runner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from provision.contracts.query import ApiReply
from provision.inventory import Inventory

if TYPE_CHECKING:
    from testinfra.host import Host


class NotDeclared(Exception):  # noqa: N818 - a word to the runner, no error
    """The subject declares nothing for this check: there is no claim, and no result."""


class Trivial(Exception):  # noqa: N818 - a word to the runner, no error
    """The claim holds and proves nothing: there is nothing to compare, or a stand-in answered for hardware.

    Its text says which.
    """


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
        ...

    def is_away(self, system: str) -> bool:
        """Return whether a system cannot be reached now."""
        ...

    def host(self, system: str) -> Host:
        """Return testinfra's view of a system; the check ends as unknown when it is away."""
        ...

    def get(self, system: str, path: str) -> ApiReply:
        """Return what an API answers to a GET; the check ends as unknown when it is away.

        Raises:
            ProvisionError: it gives no answers, though it did before.
        """
        ...

    def skew(self, system: str) -> float:
        """Return a host's clock minus the controller's, in seconds, when the host last answered."""
        ...

    def again(self, system: str, *commands: str) -> Iterator[None]:
        """Run commands again for some time, for what is true only some time after a change."""
        ...
