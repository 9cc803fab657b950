"""Where k3s keeps what provision writes, asks and removes.

Sources: docs.k3s.io (configuration, token, air-gap installation) and k3s's install.sh.
"""

from __future__ import annotations

from typing import Final

from provision.hosts.queries.file import FileState, FileText
from provision.hosts.queries.secret import SecretText

SERVER: Final = "k3s.service"
AGENT: Final = "k3s-agent.service"
BINARY: Final = "/usr/local/bin/k3s"
ETC: Final = "/etc/rancher/k3s"
CONFIG: Final = f"{ETC}/config.yaml"
REGISTRATION: Final = f"{ETC}/config.yaml.d/50-registration.yaml"
"""Keys that count only when a node registers: no restart follows a change."""
REGISTRIES: Final = f"{ETC}/registries.yaml"
TOKEN: Final = f"{ETC}/token"
AGENT_TOKEN: Final = f"{ETC}/agent-token"
FORMER_TOKENS: Final = f"{ETC}/former-tokens"
KUBECONFIG: Final = f"{ETC}/k3s.yaml"
DATA: Final = "/var/lib/rancher/k3s"
IMAGES: Final = f"{DATA}/agent/images"
FULL_TOKEN: Final = SecretText(f"{DATA}/server/token")
"""`K10<hash of the CA>::server:<token>`: k3s writes it on each server when it starts."""
FULL_AGENT_TOKEN: Final = SecretText(f"{DATA}/server/agent-token")
ADMIN: Final = SecretText(KUBECONFIG)
DATASTORE: Final = FileState(f"{DATA}/server/db")
PASSWORD: Final = FileState("/etc/rancher/node/password")
"""What a node proves with that it is the one which registered under its name."""
OWN_CONFIG: Final = FileText(CONFIG)


def unit_file(unit: str) -> str:
    """Return where a unit of ours is written."""
    return f"/etc/systemd/system/{unit}"


def environment_file(unit: str) -> str:
    """Return the file with a unit's environment, as k3s's own installer names it."""
    return f"{unit_file(unit)}.env"
