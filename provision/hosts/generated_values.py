"""Generated values that live in files of hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pydantic import SecretStr

from provision.contracts.generated import GeneratedValue, new_token
from provision.contracts.resource import Resource
from provision.hosts.protocol.script import STATE
from provision.hosts.queries.secret import SecretText
from provision.hosts.resources.file import File


def generated_value(
    name: str, homes: Mapping[str, str], make: Callable[[], str] = new_token
) -> GeneratedValue:
    """Return a value whose homes are files.

    Args:
        name: as `provision rotate` takes it.
        homes: the file that holds it, by system (`server-1/ssh`), the first home first.
        make: makes a value.
    """
    upcoming = f"{STATE}/values/{name}"

    def keep(system: str, value: SecretStr | None) -> Resource:
        if value is None:
            return File(system, upcoming, absent=True)
        return File(system, upcoming, value.get_secret_value().encode(), "0600", "root", "root", secret=True)

    return GeneratedValue(
        name,
        homes=tuple((system, SecretText(path)) for system, path in homes.items()),
        upcoming=tuple((system, SecretText(upcoming)) for system in homes),
        keep=keep,
        make=make,
    )
