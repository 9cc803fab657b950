"""What all models share."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict

from provision.inventory.grammar import Jump, Login
from provision.inventory.scalars import Check, Flag, HostKey, LocalPath, Port
from provision.inventory.secrets import Secret, secret_of

_SECRET = {
    "type": "object",
    "description": "by the tag !secret",
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": False,
    "properties": {
        "env": {"type": "string"},
        "file": {"type": "string"},
        "command": {"type": "array", "items": {"type": "string"}},
    },
}
SecretRef = Annotated[Secret, Check(secret_of, _SECRET)]
"""A secret by reference: `!secret {env: X}`, `{file: ...}` or `{command: [...]}`."""


class Model(BaseModel):
    """Frozen, and unknown keys are errors; validators are built once, for the whole inventory."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, protected_namespaces=())


class Ssh(Model):
    """How one host is reached by SSH, where it differs from `access:`."""

    user: Login | None = None
    """Login. A user other than root needs sudo without a password, or `sudo: false`."""
    sudo: Flag = True
    """Become root with sudo if the login is another user. Without it, only what that user may do works."""
    key: LocalPath | None = None
    """Private key file on the controller."""
    host_key: HostKey | None = None
    """Fingerprint of the host key (`SHA256:...`); nothing else is accepted then."""
    port: Port | None = None
    """TCP port of sshd."""
    jump: Jump | None = None
    """Jump host, as for `ssh -J`."""
    known_hosts: LocalPath | None = None
    """File with known host keys."""
