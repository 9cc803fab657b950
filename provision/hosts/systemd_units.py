"""What systemd says of a host's units, read for checks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from testinfra.host import Host

_UP = ("active", "activating", "reloading", "refreshing")
_STARTED_AT_BOOT = ("enabled", "static", "alias", "generated", "indirect", "linked")
"""Unit file states of what starts at boot, by itself or by others (systemctl(1), is-enabled)."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit in systemd's own words; one that does not exist neither runs nor starts at boot."""

    active: str
    sub: str
    file: str

    @property
    def runs(self) -> bool:
        """Whether it is active or becoming so; one that died and waits for its next try does not run."""
        return self.active in _UP and not self.sub.startswith("auto-restart")

    @property
    def is_stopped(self) -> bool:
        """Whether it is not active, and will not be without somebody's doing."""
        return self.active not in _UP

    @property
    def starts_at_boot(self) -> bool:
        """Whether it starts at boot."""
        return self.file in _STARTED_AT_BOOT

    @property
    def is_disabled(self) -> bool:
        """Whether it does not start at boot by itself."""
        return self.file not in ("enabled", "enabled-runtime")


def unit(host: Host, name: str) -> Unit:
    """Return how a unit is."""
    text = host.check_output("systemctl show -p ActiveState,SubState,UnitFileState -- %s", name)
    fields = dict(line.partition("=")[::2] for line in text.splitlines())
    return Unit(fields.get("ActiveState", ""), fields.get("SubState", ""), fields.get("UnitFileState", ""))


def failed_units(host: Host, own: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the failed units that are the site's, and the others.

    Args:
        host: whom to ask.
        own: the site's units, by full name.
    """
    text = host.check_output("systemctl list-units --state=failed --no-legend --plain")
    names = [line.split()[0] for line in text.splitlines() if line.strip()]
    return [name for name in names if name in own], [name for name in names if name not in own]
