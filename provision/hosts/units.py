"""What systemd says of a host's units, read for checks."""

from __future__ import annotations

from collections.abc import Collection

from testinfra.host import Host

from provision.hosts.resources.service import UnitStatus


def unit_status(host: Host, name: str) -> UnitStatus:
    """Return how a unit is; one that does not exist neither runs nor starts at boot."""
    text = host.check_output("systemctl show -p LoadState,ActiveState,SubState,UnitFileState -- %s", name)
    fields = dict(line.partition("=")[::2] for line in text.splitlines())
    return UnitStatus(
        fields.get("LoadState", ""),
        fields.get("ActiveState", ""),
        fields.get("SubState", ""),
        fields.get("UnitFileState", ""),
    )


def failed_units(host: Host, own: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the failed units that are the site's, and the others.

    Args:
        host: whom to ask.
        own: the site's units, by full name.
    """
    text = host.check_output("systemctl list-units --state=failed --no-legend --plain")
    names = [line.split()[0] for line in text.splitlines() if line.strip()]
    return [each for each in names if each in own], [each for each in names if each not in own]
