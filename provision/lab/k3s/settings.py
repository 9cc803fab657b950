"""The stand-in's command line and configuration files, and what it logs."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

VERSION = "v1.35.7+k3s1"
PROGRAM = f"k3s version {VERSION} (stand-in of the provision lab: no Kubernetes runs here)"
ETC = Path("/etc/rancher/k3s")
DATA = Path("/var/lib/rancher/k3s")
PORT = 6443


class FatalError(Exception):
    """k3s ends with this message; systemd starts it again."""


@dataclass
class Settings:
    """What the configuration files and flags say, later ones over earlier ones.

    Args:
        values: by key, as lists of words.
    """

    values: dict[str, list[str]] = field(default_factory=dict)

    def one(self, key: str, default: str = "") -> str:
        """Return the last value of a key."""
        return self.values.get(key, [default])[-1]

    def all(self, key: str) -> list[str]:
        """Return the values of a key."""
        return self.values.get(key, [])

    def arguments(self) -> list[str]:
        """Return all settings as k3s notes them in `k3s.io/node-args`: flags and values, no tokens."""
        return [
            word
            for key, values in self.values.items()
            for value in values
            for word in (f"--{key}", "********" if key in {"token", "agent-token"} else value)
        ]

    def token(self, key: str = "token") -> str:
        """Return a token, given itself or by its file.

        Raises:
            FatalError: the file cannot be read.
        """
        name = self.one(f"{key}-file")
        if not name or self.one(key):
            return self.one(key).strip()
        try:
            return Path(name).read_text().strip()
        except OSError as error:
            raise FatalError(f"cannot read {name}: {error.strerror}") from None

    @property
    def node(self) -> str:
        """The name of the node.

        Raises:
            FatalError: it is no name that Kubernetes accepts.
        """
        name = self.one("node-name") or socket.gethostname().lower()
        if not name or set(name) - set("abcdefghijklmnopqrstuvwxyz0123456789-."):
            raise FatalError(f'Node "{name}" is invalid: metadata.name')
        return name


def read(arguments: Sequence[str]) -> Settings:
    """Return the settings of a server or agent."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("-c", "--config", default=str(ETC / "config.yaml"))
    known, rest = parser.parse_known_args(list(arguments))
    settings = Settings()
    folder = Path(f"{known.config}.d")
    files = [Path(known.config), *(sorted(folder.glob("*.yaml")) if folder.is_dir() else ())]
    for file in files:
        if file.is_file():
            for key, values in _parsed(file.read_text()):
                settings.values[key] = values
    key = ""
    for word in rest:
        if word.startswith("--"):
            key, equals, value = word[2:].partition("=")
            settings.values[key] = [value] if equals else ["true"]
        elif key:
            settings.values[key] = [word]
    for variable, name in (("K3S_TOKEN", "token"), ("K3S_URL", "server")):
        if os.environ.get(variable):
            settings.values.setdefault(name, [os.environ[variable]])
    return settings


def _parsed(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield keys and values of the plain YAML that k3s's configuration files are."""
    key = ""
    values: list[str] = []
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line.lstrip().startswith("- "):
            values.append(line.lstrip()[2:].strip().strip("'\""))
            continue
        if key and line[0] != " ":
            yield key, values
        name, colon, value = line.partition(":")
        if colon and line[0] != " ":
            key = name.strip()
            values = [value.strip().strip("'\"")] if value.strip() else []
    if key:
        yield key, values


def log(message: str, level: str = "info") -> None:
    """Write a line as k3s does."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    sys.stderr.write(f'time="{stamp}" level={level} msg="{message}"\n')
    sys.stderr.flush()


def notify(state: str) -> None:
    """Report to systemd; see sd_notify(3)."""
    name = os.environ.get("NOTIFY_SOCKET", "")
    if name:
        address = f"\0{name[1:]}" if name.startswith("@") else name
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stream:
            stream.sendto(state.encode(), address)
