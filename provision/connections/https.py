"""Proxmox VE's API over HTTPS: certificate pinned by fingerprint, token login, no logging.

Facts of pve-http-server and AnyEvent: the HTTP reason phrase carries the message; 595 means that the node was
not reached, 596 to 599 that its answer was lost; pveproxy closes idle connections after 5 s.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from provision.connections.api_problems import NOTHING_SENT, ApiProblems
from provision.connections.contracts import ApiError, HttpsEndpoint
from provision.connections.deadline import within
from provision.connections.http_text import can_be_sent, is_text, may_hold_half_pairs
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, Refused, Transient

if TYPE_CHECKING:
    import requests
    from requests.adapters import HTTPAdapter

CONNECT_TIMEOUT = 10.0
ANSWER_TIMEOUT = 60.0
TOTAL_TIMEOUT = 180.0
LARGEST = 64 * 1024 * 1024
"""Bytes that an answer may have; one of 20,000 VMs has about 10 MB."""
IDLE = 2.0
"""Seconds after which a write gets a new connection: pveproxy closes idle ones."""
UNAUTHORIZED = 401
NOT_REACHED = 595
ANSWER_LOST = frozenset({596, 597, 598, 599})
GATEWAY = frozenset({502, 503, 504})
READS = frozenset({"GET"})

ACTUAL_FINGERPRINT = re.compile(r'got "([0-9a-fA-F:]+)"')
_NOT_SENT = (
    "NewConnectionError",
    "NameResolutionError",
    "ConnectTimeoutError",
    "ConnectTimeout",
    "Failed to establish",
)


def colons(fingerprint: str) -> str:
    """Return a SHA-256 fingerprint as PVE shows it: `AA:BB:...`."""
    digits = fingerprint.replace(":", "").upper()
    return ":".join(digits[index : index + 2] for index in range(0, len(digits), 2))


class PveConnection:
    """One connection to a hypervisor's API; an ApiConnection.

    Args:
        endpoint: address, certificate and token.
        subject: the hypervisor's name, for diagnostics.
        timeout: seconds to wait for the next bytes of an answer.
        total: seconds that the whole of an exchange may take.
    """

    def __init__(
        self,
        endpoint: HttpsEndpoint,
        subject: str = "",
        timeout: float = ANSWER_TIMEOUT,
        total: float = TOTAL_TIMEOUT,
    ) -> None:
        self.requests = 0
        self._total = total
        self._odd_bodies: list[bool] = []
        self._endpoint = endpoint
        self._subject = subject
        self._problems = ApiProblems(
            endpoint.url,
            subject,
            "a Proxmox VE API",
            "Check that the host is up and that its address and port are right.",
            "Check `api.url`.",
        )
        self._timeout = timeout
        self._api: Any = None
        self._session: requests.Session | None = None
        self._last = 0.0

    def request(self, method: str, path: str, data: Mapping[str, object] | None = None) -> object:
        """Send one request and return the body's `data`; see ApiConnection."""
        api = self._open()
        write = method not in READS
        now = time.monotonic()
        if write and now - self._last > IDLE and self._session is not None:
            for adapter in self._session.adapters.values():
                adapter.close()
        self.requests += 1
        try:
            return within(self._total, lambda: self._send(api, method, path, plain(data or {})))
        except TimeoutError as error:
            self.close()
            if write:
                raise self._problems.lost(method, path, str(error)) from None
            raise Transient(self._problems.unreachable(reason_of(error))) from None
        finally:
            self._last = time.monotonic()

    def close(self) -> None:
        """End the connection."""
        if self._session is not None:
            self._session.close()
        self._session = None
        self._api = None

    def _send(self, api: Any, method: str, path: str, data: dict[str, object]) -> object:
        self._odd_bodies.clear()
        try:
            answer = self._exchange(api, method, path, data)
        except TooLargeError:
            raise self._odd(method, path, f"its answer is larger than {LARGEST >> 20} MiB") from None
        except RecursionError:
            raise self._odd(method, path, "its answer is nested too deep") from None
        except ValueError as error:  # a number of thousands of digits
            raise self._odd(method, path, f"its answer is not understood: {str(error)[:100]}") from None
        if any(self._odd_bodies) and not is_text(answer):
            raise self._odd(method, path, "its answer is not Unicode text")
        return answer

    def _exchange(self, api: Any, method: str, path: str, data: dict[str, object]) -> object:
        import requests  # noqa: PLC0415 - slow: only when an API is spoken to
        from proxmoxer.core import ResourceException  # noqa: PLC0415 - the same

        call = getattr(api(path.strip("/")), method.lower())
        write = method not in READS
        try:
            answer = call(**data)
        except ResourceException as error:
            raise self._refusal(method, path, error) from None
        except requests.exceptions.SSLError as error:
            raise self._certificate(error) from None
        except requests.exceptions.TooManyRedirects:
            raise Permanent(self._problems.unreadable("it redirects elsewhere")) from None
        except requests.exceptions.RequestException as error:
            if not write or was_not_sent(error):
                raise Transient(self._problems.unreachable(reason_of(error))) from None
            raise self._problems.lost(method, path, type(error).__name__) from None
        except (KeyError, TypeError):
            raise Permanent(self._problems.unreadable("its answer has no data")) from None
        if isinstance(answer, dict) and isinstance(answer.get("errors"), bytes):
            raise Permanent(self._problems.unreadable("its answer is not JSON")) from None
        return answer

    def _odd(self, method: str, path: str, what: str) -> Exception:
        """Return what an answer without measure means: a write may have taken effect."""
        return (
            Permanent(self._problems.unreadable(what))
            if method in READS
            else self._problems.lost(method, path, what)
        )

    def _open(self) -> Any:
        if self._api is not None:
            return self._api
        from proxmoxer import ProxmoxAPI  # noqa: PLC0415 - slow: only when an API is spoken to

        for name in ("proxmoxer", "proxmoxer.core", "proxmoxer.backends.https"):
            logging.getLogger(name).disabled = True  # it logs the data of requests at INFO

        url = urlsplit(self._endpoint.url)
        user, _, token = self._endpoint.token_id.partition("!")
        secret = self._endpoint.token.get_secret_value()
        if not can_be_sent(f"{user}{token}{secret}"):
            raise Permanent(self._unsendable())
        api = ProxmoxAPI(
            url.hostname,
            port=url.port or 8006,
            user=user,
            token_name=token,
            token_value=secret,
            verify_ssl=False,  # the fingerprint is checked instead: PVE's certificates are self-signed
            timeout=(CONNECT_TIMEOUT, self._timeout),
        )
        session: requests.Session = api._store["session"]  # noqa: SLF001 - proxmoxer accepts no session of ours
        session.trust_env = False
        session.max_redirects = 0
        session.mount("https://", limited_adapter(self._endpoint.fingerprint, self._odd_bodies))
        session.adapters.pop("http://", None)
        self._session = session
        self._api = api
        return api

    def _unsendable(self) -> Diagnostic:
        return Diagnostic(
            code="API_AUTH_FAILED",
            summary=f"token {self._endpoint.token_id!r} of {self._endpoint.url} has characters that cannot be"
            " sent",
            subject=self._subject,
            untouched="Nothing was sent to the API.",
            remedy="Check `api.token_id` and the secret that `api.token` names: each is one line of ASCII.",
        )

    def _refusal(self, method: str, path: str, error: Any) -> Exception:
        status = int(error.status_code)
        reason = str(error.content or error.status_message or "").strip()
        if status == UNAUTHORIZED:
            host, name = urlsplit(self._endpoint.url).hostname, self._endpoint.token_id.partition("!")[2]
            return Permanent(
                Diagnostic(
                    code="API_AUTH_FAILED",
                    summary=f"{self._endpoint.url} does not accept token {self._endpoint.token_id}: {reason}",
                    subject=self._subject,
                    remedy="Check `api.token_id` and the secret that `api.token` names. Or make a new"
                    f" secret, which ends the old one: `provision bootstrap root@{host} --name {name}"
                    f" --rotate --out {name}.new.yaml`, then copy `api` from that file.",
                )
            )
        write = method not in READS
        if status == NOT_REACHED or (not write and (status in ANSWER_LOST or status in GATEWAY)):
            return Transient(self._behind(f"{status} {reason}"), retry_after=2.0)
        if write and (status in ANSWER_LOST or status in GATEWAY):
            return self._problems.lost(method, path, f"{status} {reason}")
        errors = error.errors if isinstance(error.errors, Mapping) else {}
        return ApiError(status, reason, {str(key): _text(value) for key, value in errors.items()})

    def _certificate(self, error: Exception) -> Exception:
        actual = ACTUAL_FINGERPRINT.search(str(error))
        if actual is None:
            return Transient(self._problems.unreachable(reason_of(error)))
        return Refused(
            Diagnostic(
                code="CERTIFICATE_UNKNOWN",
                summary=f"the certificate of {self._endpoint.url} is not the pinned one",
                subject=self._subject,
                evidence=(
                    f"pinned: {colons(self._endpoint.fingerprint)}",
                    f"actual: {colons(actual[1])}",
                ),
                untouched=NOTHING_SENT,
                remedy="Compare the actual fingerprint with the one on the host"
                " (`pvenode cert info`); if they are equal, write it to `api.fingerprint`.",
            )
        )

    def _behind(self, text: str) -> Diagnostic:
        """Return what a proxy says of a daemon or node behind it: the host itself is up."""
        return Diagnostic(
            code="API_UNREACHABLE",
            summary=f"{self._endpoint.url} answers, and what is behind it does not",
            subject=self._subject,
            evidence=(text,),
            remedy="A busy host answers later. If it does not, look at the daemon and the node on the host:"
            " `systemctl status pvedaemon`, `pvecm status`.",
        )


def limited_adapter(fingerprint: str, odd: list[bool] | None = None) -> HTTPAdapter:
    """Return what requests sends with: one certificate is trusted, and answers have a limit.

    Args:
        fingerprint: SHA-256 of the certificate; empty for the authorities that the session trusts.
        odd: gets, for each answer, whether it may hold half of a surrogate pair.
    """
    from requests.adapters import HTTPAdapter  # noqa: PLC0415 - slow: only when an API is spoken to

    pin = fingerprint.replace(":", "").lower()

    class Limited(HTTPAdapter):
        """Trusts one certificate, by its SHA-256, and reads no more than the limit."""

        def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
            kwargs |= {"assert_fingerprint": pin} if pin else {}
            super().init_poolmanager(*args, **kwargs)

        def send(self, *args: Any, **kwargs: Any) -> requests.Response:
            response: requests.Response = super().send(*args, **kwargs)
            pieces, size = [], 0
            for piece in response.iter_content(64 * 1024):
                pieces.append(piece)
                size += len(piece)
                if size > LARGEST:
                    response.close()
                    raise TooLargeError
            body = b"".join(pieces)
            if odd is not None:
                odd.append(may_hold_half_pairs(body))
            response._content = body  # noqa: SLF001 - requests reads without a limit
            return response

    return Limited()


class TooLargeError(Exception):
    """An answer passes the limit."""


def plain(data: Mapping[str, object]) -> dict[str, object]:
    """Return parameters as PVE reads them from a form: booleans 1 and 0, None left out."""
    return {key: _plain(value) for key, value in data.items() if value is not None}


def _plain(value: object) -> object:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def was_not_sent(error: Exception) -> bool:
    """Whether an exception of requests came before any byte of the request left."""
    text = f"{type(error).__name__} {error!r} {error}"
    return any(name in text for name in _NOT_SENT)


def reason_of(cause: object) -> str:
    """Return the last part of a nested exception of requests and urllib3, which names the cause."""
    text = str(cause)
    for separator in ("] ", ": "):
        if separator in text:
            text = text.rsplit(separator, 1)[-1]
            break
    return text.strip("'\")> ")
