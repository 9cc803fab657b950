"""Connections send bytes to a system and return its answer, nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import SecretStr

from provision.values.cancel import Cancel


@dataclass(frozen=True, slots=True)
class SshEndpoint:
    """How to reach a host by SSH.

    Args:
        address: name or address; `~/.ssh/config` applies to it.
        user: login; users other than root get `sudo -n` where `sudo` is set.
        port: TCP port, or None for what ~/.ssh/config says (else 22).
        key: private key file, or None for the agent and ~/.ssh/config.
        jump: jump host, or None.
        known_hosts: file with known keys, or None for the user's own.
        fingerprints: accepted host keys (`SHA256:...`); if any, no other key is accepted.
        wait: seconds to retry while the host boots, counted from the first try (0 = one try).
        sudo: whether users other than root become root by sudo.
        accept: how a person accepts another host key, with `{key}` in its place; for messages.
    """

    address: str
    user: str
    port: int | None = None
    key: Path | None = None
    jump: str | None = None
    known_hosts: Path | None = None
    fingerprints: tuple[str, ...] = ()
    wait: float = 0.0
    sudo: bool = True
    accept: str = ""


@dataclass(frozen=True, slots=True)
class LocalEndpoint:
    """The machine that provision runs on."""


@dataclass(frozen=True, slots=True)
class HttpsEndpoint:
    """How to reach a Proxmox VE API: certificate pinned by its SHA-256 fingerprint (`AA:BB:...`)."""

    url: str
    token_id: str
    token: SecretStr
    fingerprint: str


@dataclass(frozen=True, slots=True)
class KubeEndpoint:
    """How to reach a Kubernetes API: its own certificate authority, and a client certificate or a token.

    Args:
        url: `https://address:6443`.
        authority: certificates that are trusted, as PEM text; no other is.
        certificate: client certificate with its chain, as PEM text, or empty.
        key: private key of the client certificate, as PEM text.
        token: bearer token.
        server_name: name that the server's certificate must have, where it is not the one in `url`.
    """

    url: str
    authority: str
    certificate: str = ""
    key: SecretStr | None = None
    token: SecretStr | None = None
    server_name: str = ""


@dataclass(frozen=True, slots=True)
class WebEndpoint:
    """How to reach a web API that speaks JSON over HTTPS.

    Args:
        url: `https://address`.
        user: login or name of a key; empty where the token is enough.
        token: password, or secret of the key.
        fingerprint: SHA-256 of the certificate that is accepted; empty for the system's authorities.
    """

    url: str
    user: str
    token: SecretStr
    fingerprint: str = ""


Endpoint = SshEndpoint | LocalEndpoint | HttpsEndpoint | KubeEndpoint | WebEndpoint

HTTP_OK = 200
HTTP_REDIRECT = 300

NO_LOGINS_NOW = ("System is booting up", "System is going down", "pam_nologin")
"""Texts of pam_nologin(8): the host boots or shuts down and refuses logins."""


class ShellConnection(Protocol):
    """One connection to a host that runs one script at a time on `sh -s`.

    The remote command is constant: `exec /bin/sh -s`, for users other than root `exec sudo -n /bin/sh -s`
    (unless the endpoint says otherwise).
    """

    executions: int
    """How many scripts were sent; tests limit the number."""

    uses_sudo: bool = False
    """Whether sudo starts the shell."""

    def execute(
        self,
        script: bytes,
        *,
        on_output: Callable[[bytes, bool], None],
        cancel: Cancel,
    ) -> int | None:
        """Send a script on stdin, pass on its output as it arrives, and return the exit status.

        Args:
            script: ASCII shell text.
            on_output: called with bytes and whether they came from stderr.
            cancel: `leaving` ends the wait at once.

        Returns:
            The exit status, or None if the connection broke before.

        Raises:
            Transient, Permanent: no connection; Refused: the host key.
        """

    def upload(self, path: str, data: bytes | memoryview, cancel: Cancel, *, lock: str = "") -> None:
        """Write `data` to a file (0600) over a channel of its own.

        Args:
            path: absolute path; its folders must not be changeable by another user.
            data: the whole content.
            cancel: `leaving` ends it at once.
            lock: file in a folder above the path, whose lock is held meanwhile.

        Raises:
            UploadLockedError: somebody else holds that lock, and nothing was sent.
            Transient, Permanent: it was not written.
        """

    def kill_group(self, pgid: int) -> None:
        """TERM to a process group over a second channel, after 10 s KILL."""

    def close(self) -> None:
        """End the connection; safe to call twice."""


class ApiError(Exception):
    """An HTTP API answered with an error.

    Args:
        status: HTTP status.
        reason: HTTP reason phrase: where Proxmox puts the message.
        errors: message by parameter.
    """

    def __init__(self, status: int, reason: str, errors: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.reason = reason.strip()
        self.errors = dict(errors or {})
        details = "".join(f"; {key}: {value.strip()}" for key, value in self.errors.items())
        super().__init__(f"{status} {self.reason}{details}")


class ApiConnection(Protocol):
    """One connection to an HTTP API."""

    requests: int
    """How many requests were sent (logins not counted)."""

    def request(self, method: str, path: str, data: Mapping[str, object] | None = None) -> object:
        """Send one request and return the body's `data`.

        Args:
            method: GET, POST, PUT or DELETE.
            path: below /api2/json, with a leading slash.
            data: parameters; booleans become 1 and 0, None is left out.

        Raises:
            ApiError: the API refused.
            Transient, Permanent: no answer; Refused for a wrong certificate.
            UnknownOutcome: a write was sent and the answer is missing.
        """

    def close(self) -> None:
        """End the connection."""


@dataclass(frozen=True, slots=True)
class KubeReply:
    """What a Kubernetes API answered, whatever its status.

    Args:
        status: HTTP status.
        body: JSON types, or text where the answer is no JSON.
        warnings: texts of its Warning headers.
    """

    status: int
    body: object
    warnings: tuple[str, ...] = ()

    @property
    def is_success(self) -> bool:
        """Whether the status is one of the 200s."""
        return HTTP_OK <= self.status < HTTP_REDIRECT


class KubeConnection(Protocol):
    """One connection to a Kubernetes API."""

    requests: int
    """How many requests were sent."""

    def request(
        self, method: str, path: str, body: object = None, *, content_type: str = "application/json"
    ) -> KubeReply:
        """Send one request and return the answer, also where the API refuses.

        Args:
            method: GET, POST, PUT, PATCH or DELETE.
            path: with its query string.
            body: JSON types; None for no body.
            content_type: of the body.

        Raises:
            Transient, Permanent: no answer, or an API that is not ready; Refused for a wrong certificate.
            UnknownOutcome: a write was sent and the answer is missing.
        """

    def close(self) -> None:
        """End the connection."""


@dataclass(frozen=True, slots=True)
class WebReply:
    """What a web API answered, whatever its status.

    Args:
        status: HTTP status.
        body: JSON types, or text where the answer is no JSON.
        headers: by lower-case name.
    """

    status: int
    body: object
    headers: Mapping[str, str]


class WebConnection(Protocol):
    """One connection to a web API; it keeps the cookies that the server sets."""

    requests: int
    """How many requests were sent."""

    def request(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> WebReply:
        """Send one request and return the answer; redirects are not followed.

        Args:
            method: GET, POST, PUT, PATCH or DELETE.
            path: below the endpoint's URL, with its query string.
            body: JSON types; None for no body.
            headers: to send besides the usual ones.

        Raises:
            Transient, Permanent: no answer; Refused for a wrong certificate.
            UnknownOutcome: a write was sent and the answer is missing.
        """

    def cookie(self, name: str) -> str:
        """Return the value of a cookie that the server has set, or empty."""

    def close(self) -> None:
        """End the connection."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """An SSH host key generated by the engine: `private` is an OpenSSH private key."""

    private: SecretStr
    public: str
    fingerprint: str


def join_fingerprints(fingerprints: Sequence[str]) -> str:
    """Return fingerprints as a user reads them."""
    return ", ".join(fingerprints) or "none"
