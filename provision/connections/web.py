"""Speaks JSON over HTTPS with the web API of a router: no proxy, no logging."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from provision.connections.api_problems import NOTHING_SENT, ApiProblems
from provision.connections.contracts import WebEndpoint, WebReply
from provision.connections.deadline import within
from provision.connections.http_text import can_be_sent, parsed_json
from provision.connections.https import (
    ACTUAL_FINGERPRINT,
    CONNECT_TIMEOUT,
    GATEWAY,
    READS,
    TooLargeError,
    colons,
    limited_adapter,
    reason_of,
    was_not_sent,
)
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, ProvisionError, Refused, Transient

if TYPE_CHECKING:
    import requests

ANSWER_TIMEOUT = 60.0
TOTAL_TIMEOUT = 120.0
TOO_MANY = 429
_SHOWN = 1000
"""Bytes that are kept of an answer that is not JSON."""


class HttpsWebConnection:
    """One connection to a web API; a WebConnection.

    Args:
        endpoint: address, certificate and credentials; credentials are the caller's to send.
        subject: whose API it is, for diagnostics.
        timeout: seconds to wait for the next bytes of an answer.
        total: seconds that the whole of an exchange may take.
    """

    def __init__(
        self,
        endpoint: WebEndpoint,
        subject: str = "",
        timeout: float = ANSWER_TIMEOUT,
        total: float = TOTAL_TIMEOUT,
    ) -> None:
        self.requests = 0
        self._url = endpoint.url.rstrip("/")
        self._fingerprint = endpoint.fingerprint
        self._problems = ApiProblems(
            self._url,
            subject,
            "a web API",
            "Check that the router is up and that `network.dhcp.api.url` is right.",
            "Check `network.dhcp.api.url`.",
        )
        self._timeout = timeout
        self._total = total
        self._session: requests.Session | None = None

    def request(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> WebReply:
        """Send one request and return the answer; see WebConnection."""
        session = self._open()
        if not all(map(can_be_sent, (headers or {}).values())):
            raise Permanent(self._unsendable())
        self.requests += 1
        try:
            reply = within(self._total, lambda: self._send(session, method, path, body, headers))
        except TimeoutError as error:
            self.close()
            raise self._no_answer(method, path, error) from None
        if reply.status == TOO_MANY:  # nothing was done
            raise Transient(self._problems.unreachable(f"HTTP {reply.status}"), retry_after=5.0)
        if reply.status in GATEWAY:
            raise self._no_answer(method, path, f"HTTP {reply.status}")
        return reply

    def cookie(self, name: str) -> str:
        """Return the value of a cookie that the server has set, or empty; the first of several paths."""
        jar = self._session.cookies if self._session is not None else ()
        return next((cookie.value for cookie in jar if cookie.name == name and cookie.value), "")

    def close(self) -> None:
        """End the connection."""
        if self._session is not None:
            self._session.close()
        self._session = None

    def _open(self) -> requests.Session:
        if self._session is not None:
            return self._session
        import requests  # noqa: PLC0415 - slow: only when an API is spoken to

        if urlsplit(self._url).scheme != "https":
            raise Permanent(self._problems.unreadable("its address does not begin with https://"))
        session = requests.Session()
        session.trust_env = False
        session.verify = not self._fingerprint  # a fingerprint is checked instead of authorities
        session.mount("https://", limited_adapter(self._fingerprint))
        session.adapters.pop("http://", None)
        self._session = session
        return session

    def _send(
        self,
        session: requests.Session,
        method: str,
        path: str,
        body: object,
        headers: Mapping[str, str] | None,
    ) -> WebReply:
        import requests  # noqa: PLC0415 - the same

        try:
            response = session.request(
                method,
                f"{self._url}{path}",
                json=body,
                headers={"Accept": "application/json", "User-Agent": "provision", **(headers or {})},
                timeout=(CONNECT_TIMEOUT, self._timeout),
                allow_redirects=False,
            )
        except requests.exceptions.SSLError as error:
            raise self._certificate(error) from None
        except requests.exceptions.RequestException as error:
            if was_not_sent(error):
                raise Transient(self._problems.unreachable(reason_of(error))) from None
            raise self._no_answer(method, path, error) from None
        except TooLargeError:
            raise self._no_answer(method, path, "the answer is too large") from None
        names = {name.lower(): value for name, value in response.headers.items()}
        try:
            answer = parsed_json(response.content) if response.content else None
        except ValueError:
            answer = response.content[:_SHOWN].decode(errors="replace")
        return WebReply(response.status_code, answer, names)

    def _no_answer(self, method: str, path: str, cause: object) -> ProvisionError:
        if method in READS:
            return Transient(self._problems.unreachable(reason_of(cause)))
        return self._problems.lost(method, path, reason_of(cause))

    def _certificate(self, error: Exception) -> ProvisionError:
        actual = ACTUAL_FINGERPRINT.search(str(error))
        if actual is not None:
            evidence: tuple[str, ...] = (
                f"pinned: {colons(self._fingerprint)}",
                f"actual: {colons(actual[1])}",
            )
        elif "CERTIFICATE_VERIFY_FAILED" in str(error):
            evidence = (reason_of(error),)
        else:
            return Transient(self._problems.unreachable(reason_of(error)))
        expected = "the pinned one" if self._fingerprint else "from an authority that this machine trusts"
        return Refused(
            self._problems.problem(
                "CERTIFICATE_UNKNOWN",
                f"the certificate of {self._url} is not {expected}",
                evidence=evidence,
                untouched=NOTHING_SENT,
                remedy="Compare the fingerprint with the one that the router shows for its certificate, and"
                " write it to `network.dhcp.api.fingerprint`.",
            )
        )

    def _unsendable(self) -> Diagnostic:
        return self._problems.problem(
            "API_AUTH_FAILED",
            f"the credentials of {self._url} have characters that cannot be sent",
            untouched=NOTHING_SENT,
            remedy="Check the secret that `network.dhcp.api.token` names: it is one line.",
        )
