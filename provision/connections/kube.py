"""Speaks HTTPS with a Kubernetes API: own certificate authority, deadlines, no proxy of the environment.

`http.client` reads neither `HTTPS_PROXY` nor the system's certificates, which is what is wanted here.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import ssl
import tempfile
import time
from urllib.parse import urlsplit

from provision.connections.api_problems import NOTHING_SENT, ApiProblems
from provision.connections.contracts import KubeEndpoint, KubeReply
from provision.connections.deadline import within
from provision.connections.http_text import can_be_sent, parsed_json
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, ProvisionError, Refused, Transient

CONNECT_TIMEOUT = 10.0
ANSWER_TIMEOUT = 60.0
LARGEST = 64 * 1024 * 1024
"""Bytes of an answer; lists are asked in pages, so that none comes near."""
CHUNK = 64 * 1024
IDLE = 20.0
"""Seconds after which a connection is not used again: servers and what is between close idle ones."""
UNAUTHORIZED = 401
BUSY = frozenset({429, 503})
"""Statuses with which an API server refuses before it does anything."""
LOST = frozenset({502, 504})


class HttpsKubeConnection:
    """One connection to a Kubernetes API; a KubeConnection.

    Args:
        endpoint: address, authority and credentials.
        subject: whose API it is, for diagnostics.
        timeout: seconds that a whole answer may take.
    """

    def __init__(self, endpoint: KubeEndpoint, subject: str = "", timeout: float = ANSWER_TIMEOUT) -> None:
        self.requests = 0
        self._endpoint = endpoint
        self._subject = subject
        self._problems = ApiProblems(
            endpoint.url,
            subject,
            "a Kubernetes API",
            "Check that the server runs and that its address and port are right.",
            "Check the server's address in the kubeconfig.",
            ("KUBE_UNREACHABLE", "KUBE_UNREADABLE", "KUBE_ANSWER_LOST"),
        )
        self._timeout = timeout
        self._connection: http.client.HTTPSConnection | None = None
        self._context: ssl.SSLContext | None = None
        self._last = 0.0

    def request(
        self, method: str, path: str, body: object = None, *, content_type: str = "application/json"
    ) -> KubeReply:
        """Send one request and return the answer; see KubeConnection."""
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        headers = {"Accept": "application/json", "User-Agent": "provision"}
        if data is not None:
            headers["Content-Type"] = content_type
        if self._endpoint.token is not None:
            headers["Authorization"] = f"Bearer {self._endpoint.token.get_secret_value()}"
            if not can_be_sent(headers["Authorization"]):
                raise Permanent(self._unusable("its token has characters that cannot be sent"))
        self.requests += 1
        deadline = time.monotonic() + self._timeout
        is_reused = self._connection is not None and time.monotonic() - self._last < IDLE
        if not is_reused:
            self.close()
        try:
            return self._judged(method, path, self._send(method, path, data, headers, deadline))
        except (http.client.HTTPException, OSError) as error:
            self.close()
            if method == "GET" and is_reused and isinstance(error, ConnectionError):
                return self._judged(method, path, self._again(method, path, headers, deadline))
            if method != "GET":
                raise self._problems.lost(method, path, _reason(error)) from None
            raise Transient(self._problems.unreachable(_reason(error))) from None

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            with contextlib.suppress(OSError, AttributeError):  # closed, or never open
                self._connection.sock.shutdown(socket.SHUT_RDWR)  # wakes who still reads after a deadline
            self._connection.close()
        self._connection = None

    def _again(self, method: str, path: str, headers: dict[str, str], deadline: float) -> KubeReply:
        """Repeat a read on a new connection: the server had closed the idle one."""
        try:
            return self._send(method, path, None, headers, deadline)
        except (http.client.HTTPException, OSError) as error:
            self.close()
            raise Transient(self._problems.unreachable(_reason(error))) from None

    def _send(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str], deadline: float
    ) -> KubeReply:
        connection = self._open()

        def exchange() -> tuple[http.client.HTTPResponse, bytes]:
            connection.request(method, path, body=data, headers=headers)
            response = connection.getresponse()
            content = bytearray()
            while len(content) <= LARGEST and (chunk := response.read1(CHUNK)):
                content += chunk
            return response, bytes(content)

        response, content = within(max(deadline - time.monotonic(), 0.0), exchange)
        if len(content) > LARGEST:
            self.close()
            raise self._odd(method, path, "it is larger than 64 MiB")
        # Python before 3.11.8 leaves a response open after its last byte, and takes no further request then.
        response.close()
        self._last = time.monotonic()
        warnings = tuple(response.headers.get_all("Warning") or ())
        text = content.decode("utf-8", "replace")
        if "json" not in (response.headers.get("Content-Type") or ""):
            return KubeReply(response.status, text, warnings)
        try:
            return KubeReply(response.status, parsed_json(text.encode()), warnings)
        except ValueError as error:
            raise self._odd(method, path, str(error)) from None

    def _judged(self, method: str, path: str, reply: KubeReply) -> KubeReply:
        """Return a reply; raise for what says nothing about the request itself."""
        if reply.status == UNAUTHORIZED and not _is_of_kubelet(reply.body):
            raise Permanent(
                Diagnostic(
                    "KUBE_AUTH_FAILED",
                    f"{self._endpoint.url} does not accept the credentials of the kubeconfig",
                    self._subject,
                    remedy="Fetch the kubeconfig again: client certificates end after a year, tokens sooner.",
                )
            )
        if reply.status in BUSY and not _names_budget(reply.body):
            raise Transient(
                self._problems.unreachable(f"HTTP {reply.status} {_message(reply.body)}"), retry_after=2.0
            )
        if reply.status in LOST:
            if method != "GET":
                raise self._problems.lost(method, path, f"HTTP {reply.status}")
            raise Transient(
                self._problems.unreachable(f"HTTP {reply.status} {_message(reply.body)}"), retry_after=2.0
            )
        return reply

    # ------------------------------------------------------------ opening

    def _open(self) -> http.client.HTTPSConnection:
        """Return a connection whose handshake has ended: until then nothing was sent.

        Raises:
            Transient, Refused, Permanent: there is none.
        """
        if self._connection is not None:
            return self._connection
        url = urlsplit(self._endpoint.url)
        if url.scheme != "https" or not url.hostname:
            raise Permanent(self._problems.unreadable("its address does not begin with https://"))
        if self._context is None:
            self._context = self._make_context()
        connection = _Connection(
            url.hostname,
            url.port or 443,
            timeout=CONNECT_TIMEOUT,
            context=self._context,
            server_name=self._endpoint.server_name or url.hostname,
        )
        try:
            connection.connect()
        except ssl.SSLCertVerificationError as error:
            raise Refused(self._certificate(error.verify_message)) from None
        except OSError as error:
            raise Transient(self._problems.unreachable(_reason(error))) from None
        connection.sock.settimeout(self._timeout)
        self._connection = connection
        return connection

    def _make_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(cadata=self._endpoint.authority)
            if self._endpoint.certificate and self._endpoint.key is not None:
                pem = f"{self._endpoint.certificate}\n{self._endpoint.key.get_secret_value()}\n"
                _load_certificate(context, pem)
        except (ssl.SSLError, ValueError) as error:
            raise Permanent(self._unusable(f"it has no usable certificates: {_reason(error)}")) from None
        return context

    # ------------------------------------------------------------ problems

    def _unusable(self, what: str) -> Diagnostic:
        return Diagnostic(
            "KUBECONFIG_INVALID",
            f"the kubeconfig of {self._endpoint.url} cannot be used: {what}",
            self._subject,
            remedy="Fetch the kubeconfig from the server again.",
        )

    def _certificate(self, reason: str) -> Diagnostic:
        return Diagnostic(
            "KUBE_CERTIFICATE_UNKNOWN",
            f"the certificate of {self._endpoint.url} is not one of the cluster's: {reason}",
            self._subject,
            untouched=NOTHING_SENT,
            remedy="If the cluster was made again, fetch its kubeconfig again. If the address is new, add it"
            " to the names in the server's certificate (k3s.tls_san).",
        )

    def _odd(self, method: str, path: str, what: str) -> ProvisionError:
        """Return what an answer without measure means: a write may have taken effect."""
        if method != "GET":
            return self._problems.lost(method, path, what)
        return Permanent(self._problems.unreadable(f"the answer to {method} {path}: {what}"))


class _Connection(http.client.HTTPSConnection):
    """Expects a name of its own in the server's certificate, and sends it."""

    def __init__(
        self, host: str, port: int, *, timeout: float, context: ssl.SSLContext, server_name: str
    ) -> None:
        super().__init__(host, port, timeout=timeout, context=context)
        self._tls = context
        self._server_name = server_name

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._server_name)


def _load_certificate(context: ssl.SSLContext, pem: str) -> None:
    """Load a client certificate; OpenSSL reads files only, so one exists for a moment, 0600."""
    handle, path = tempfile.mkstemp(prefix="provision-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(pem)
        context.load_cert_chain(path)
    finally:
        os.unlink(path)  # noqa: PTH108 - the name comes from mkstemp


def _names_budget(body: object) -> bool:
    """Whether a 429 is the answer to an eviction that a PodDisruptionBudget forbids, and no overload."""
    details = body.get("details") if isinstance(body, dict) else None
    causes = details.get("causes") if isinstance(details, dict) else None
    return any(
        isinstance(cause, dict) and cause.get("reason") == "DisruptionBudget"
        for cause in (causes if isinstance(causes, list) else [])
    )


def _is_of_kubelet(body: object) -> bool:
    """Whether a 401 came from a node's kubelet, which the API asks for logs: our credentials are right."""
    details = body.get("details") if isinstance(body, dict) else None
    return isinstance(details, dict) and details.get("kind") == "pods/log"


def _message(body: object) -> str:
    return str(body.get("message", "")) if isinstance(body, dict) else str(body).strip()[:200]


def _reason(cause: object) -> str:
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return f"{type(cause).__name__}: {cause}" if isinstance(cause, Exception) else str(cause)
