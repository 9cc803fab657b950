"""Logins of container registries: of the inventory, or as `docker login` leaves them on this machine.

Sources: docker-login(1), and the protocol of docker/docker-credential-helpers: `PROGRAM get` reads the name
of the registry from its input and prints JSON; the user `<token>` means that the secret is an identity token.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from provision.connections.http_text import parsed_json
from provision.inventory import Inventory
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent
from provision.values.image_reference import DOCKER, DOCKER_HOST, host_of
from provision.values.read_file import read_limited
from provision.values.redaction import Redactor

HUB = "https://index.docker.io/v1/"
"""Under which `docker login` keeps the login of docker.io."""
LARGEST = 1024 * 1024
HELPER_SECONDS = 60
IDENTITY = "<token>"


@dataclass(frozen=True, slots=True)
class Login:
    """A login of one registry.

    Args:
        user: its name; empty with an identity token.
        password: the password, or the identity token.
    """

    user: str
    password: SecretStr

    @property
    def basic(self) -> str:
        """The value of a header `Authorization`."""
        text = f"{self.user}:{self.password.get_secret_value()}"
        return f"Basic {base64.b64encode(text.encode()).decode()}"


@dataclass(slots=True)
class Logins:
    """The logins that this machine may use; what one reads is masked in all output.

    Args:
        inventory: whose `sources.logins` come before those of docker; None for those of docker alone.
        redactor: learns what is read.
    """

    inventory: Inventory | None = None
    redactor: Redactor = field(default_factory=Redactor)
    _known: dict[str, Login | None] = field(default_factory=dict, init=False, repr=False)

    def of(self, host: str) -> Login | None:
        """Return the login of a registry; None where there is none.

        Args:
            host: where it is reached (`registry-1.docker.io`, `mirror.lab.example:5000`).

        Raises:
            UsageError: the declared password cannot be opened.
            Permanent: REGISTRY_LOGIN_UNREADABLE: docker's file or credential helper does not give it.
        """
        if host not in self._known:
            self._known[host] = self._declared(host) or self._of_docker(host)
        return self._known[host]

    def _declared(self, host: str) -> Login | None:
        if self.inventory is None:
            return None
        for name, login in self.inventory.sources.logins.items():
            if host_of(name) == host:
                return self._kept(Login(login.user, login.password.open(self.redactor)))
        return None

    def _of_docker(self, host: str) -> Login | None:
        data = _docker_config()
        names = (HUB, DOCKER, "index.docker.io", host) if host == DOCKER_HOST else (host, f"https://{host}")
        helpers, store = _table(data, "credHelpers"), data.get("credsStore")
        for name in names:
            helper = helpers.get(name) or store
            if isinstance(helper, str) and helper and (login := _of_helper(helper, name)):
                return self._kept(login)
        auths = _table(data, "auths")
        for name in (*names, f"https://{host}/v1/", f"https://{host}/v2/"):
            if login := _of_entry(auths.get(name), name):
                return self._kept(login)
        return None

    def _kept(self, login: Login) -> Login:
        self.redactor.add(login.password.get_secret_value())
        self.redactor.add(login.basic)
        return login


def logins_of(inventory: Inventory) -> Logins:
    """Return the logins that apply to an inventory."""
    return Logins(inventory, inventory.redactor)


def _docker_config() -> Mapping[str, object]:
    folder = os.environ.get("DOCKER_CONFIG")
    file = Path(folder) if folder else Path.home() / ".docker"
    file /= "config.json"
    try:
        data = parsed_json(read_limited(file, LARGEST))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError):
        raise _unreadable(f"{file} cannot be read", "correct it, or declare `sources.logins`") from None
    return data if isinstance(data, dict) else {}


def _table(data: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _of_entry(entry: object, name: str) -> Login | None:
    if not isinstance(entry, dict):
        return None
    identity, auth = entry.get("identitytoken"), entry.get("auth")
    if isinstance(identity, str) and identity:
        return Login("", SecretStr(identity))
    if not isinstance(auth, str) or not auth:
        return None
    try:
        user, _, password = base64.b64decode(auth, validate=True).decode().partition(":")
    except ValueError:
        raise _unreadable(
            f"docker's login for {name} cannot be read", f"log in again: docker login {name}"
        ) from None
    return Login(user, SecretStr(password.rstrip("\0"))) if user else None


def _of_helper(helper: str, name: str) -> Login | None:
    """Return what a credential helper has; it gets the name of the registry on its input."""
    program = shutil.which(f"docker-credential-{helper}")
    if program is None or "/" in helper:
        raise _unreadable(
            f"docker-credential-{helper:.60}, which docker's config.json names, is not installed",
            "install it",
        )
    try:
        process = subprocess.run(
            [program, "get"], input=name.encode(), capture_output=True, timeout=HELPER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        summary = f"docker-credential-{helper} does not answer"
        raise _unreadable(summary, f"run it: echo {name} | docker-credential-{helper} get") from None
    if process.returncode:
        return None  # it has none: the protocol knows no other failure
    try:
        data: Any = parsed_json(process.stdout)
    except ValueError:
        data = None
    user, secret = (data.get(key) if isinstance(data, dict) else None for key in ("Username", "Secret"))
    if not isinstance(user, str) or not isinstance(secret, str):
        summary = f"docker-credential-{helper} prints no login"
        raise _unreadable(summary, "install another version of it")
    return Login("" if user == IDENTITY else user, SecretStr(secret)) if secret else None


def _unreadable(summary: str, remedy: str) -> Permanent:
    return Permanent(Diagnostic("REGISTRY_LOGIN_UNREADABLE", summary, remedy=remedy))
