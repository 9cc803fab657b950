"""How nodes speak to a server: the CA is proven by the token before anything secret is sent."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
from typing import Any
from urllib.parse import urlsplit

from provision.lab.k3s.authority import token_prefix
from provision.lab.k3s.settings import FatalError

OK = 200
_TIMEOUT = 10.0


class Client:
    """One node's way to a server.

    Args:
        url: `https://HOST:6443`.
        token: full or bare token.
    """

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = str(parts.hostname), parts.port or 6443
        head, separator, rest = token.partition("::")
        self._authority = head if separator else ""
        user, colon, password = (rest if separator else token).partition(":")
        self._credentials = f"{user}:{password}" if colon else f"server:{user}"
        self._trusted: ssl.SSLContext | None = None

    def get(self, path: str) -> Any:
        """Return what a server answers to a GET.

        Raises:
            FatalError: the CA is another one, or the token is not accepted.
            OSError: the server was not reached, or failed.
        """
        return json.loads(self._request("GET", path, ""))

    def put(self, path: str, body: object) -> None:
        """Send something; raises as `get`."""
        self._request("PUT", path, json.dumps(body))

    def _request(self, method: str, path: str, body: str) -> str:
        if self._trusted is None:
            self._trusted = self._verified()
        login = base64.b64encode(self._credentials.encode()).decode()
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        status, text = self._send(self._trusted, method, path, body, headers)
        if status in (401, 403):
            raise FatalError(f"{path}: {text}")
        if status != OK:
            raise OSError(f"{status} {text[:200]}")
        return text

    def _verified(self) -> ssl.SSLContext:
        blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        blind.check_hostname = False
        blind.verify_mode = ssl.CERT_NONE
        _, text = self._send(blind, "GET", "/cacerts", "", {})
        prefix = token_prefix(text.encode())
        if self._authority and prefix != self._authority:
            hashes = f"{self._authority[3:]} != {prefix[3:]}"
            raise FatalError(f"token CA hash does not match the Cluster CA certificate hash: {hashes}")
        trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text)
            file.flush()
            trusted.load_verify_locations(file.name)
        return trusted

    def _send(
        self, context: ssl.SSLContext, method: str, path: str, body: str, headers: dict[str, str]
    ) -> tuple[int, str]:
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=_TIMEOUT, context=context)
        try:
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode("utf-8", "replace")
        except http.client.HTTPException as error:
            raise OSError(f"the server's answer is not understood: {error}") from None
        finally:
            connection.close()
