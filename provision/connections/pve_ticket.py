"""Proxmox VE's API as root@pam, by a ticket: what no API token may do.

A ticket lasts two hours (pve-access-control, `PVE/AccessControl.pm`). proxmoxer would ask for it without
looking at the certificate, so we ask ourselves, over the pinned session. It is kept in memory alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pydantic import SecretStr

from provision.connections.contracts import ApiError, HttpsEndpoint
from provision.connections.http_text import can_be_sent
from provision.connections.https import UNAUTHORIZED, PveConnection
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, Transient, UnknownOutcome

ROOT = "root@pam"
LIFETIME = 3600.0
"""Seconds after which another ticket is asked for."""


class _UnauthorizedError(Permanent):
    """A login or a ticket was refused; nothing was done."""


class _Signature:
    """Signs requests; it has what proxmoxer's session reads of its own kinds of logins."""

    def __init__(self, replaced: Any) -> None:
        self.verify_ssl = replaced.verify_ssl
        self.timeout = replaced.timeout
        self.headers: dict[str, str] = {}

    def get_cookies(self) -> dict[str, str]:
        """Return none: the header is ours."""
        return {}

    def __call__(self, request: Any) -> Any:
        request.headers.update(self.headers)
        return request


class TicketConnection(PveConnection):
    """A connection of root@pam; an ApiConnection. It logs in with the first request.

    Args:
        endpoint: address and certificate; its token is not used.
        password: gives root's password.
        learn: told every secret of the login, to mask it.
        subject: the hypervisor's name, for diagnostics.
    """

    def __init__(
        self,
        endpoint: HttpsEndpoint,
        password: Callable[[], SecretStr],
        learn: Callable[[str], None],
        subject: str = "",
    ) -> None:
        super().__init__(replace(endpoint, token_id=ROOT, token=SecretStr("")), subject)
        self._password = password
        self._learn = learn
        self._since = 0.0

    def request(self, method: str, path: str, data: Mapping[str, object] | None = None) -> object:
        """Send one request as root; see ApiConnection.

        Raises:
            Permanent: the password is wrong, or root has a second factor.
        """
        if time.monotonic() - self._since > LIFETIME:
            self.close()
        has_ticket = self._session is not None
        try:
            return super().request(method, path, data)
        except _UnauthorizedError:
            self.close()
            if not has_ticket:
                raise
        # The ticket ended before its time: the clock was set, or the host has new keys.
        return super().request(method, path, data)

    def _open(self) -> Any:
        is_new = self._api is None
        api = super()._open()
        if is_new and self._session is not None:
            signature = _Signature(self._session.auth)
            self._session.auth = signature
            try:
                signature.headers = self._login(api)
            except BaseException:
                self.close()
                raise
            self._since = time.monotonic()
        return api

    def _login(self, api: Any) -> dict[str, str]:
        form: dict[str, object] = {"username": ROOT, "password": self._password().get_secret_value()}
        try:
            answer = self._send(api, "POST", "/access/ticket", form)
        except UnknownOutcome as error:  # a ticket that nobody got changes nothing
            raise Transient(replace(error.diagnostics[0], code="API_UNREACHABLE")) from None
        except ApiError as error:
            raise self._refused(str(error)) from None
        values = answer if isinstance(answer, Mapping) else {}
        ticket, token = str(values.get("ticket", "")), str(values.get("CSRFPreventionToken", ""))
        if values.get("NeedTFA") or ticket.startswith("PVE:!tfa!"):
            raise self._refused("it has a second factor, and no code is asked for")
        if not ticket or not token or not can_be_sent(f"{ticket}{token}"):
            raise self._refused("its answer has no ticket")
        self._learn(ticket)
        self._learn(token)
        return {"Cookie": f"PVEAuthCookie={ticket}", "CSRFPreventionToken": token}

    def _refusal(self, method: str, path: str, error: Any) -> Exception:
        if int(error.status_code) == UNAUTHORIZED:
            return self._refused(str(error.content or error.status_message or "").strip())
        return super()._refusal(method, path, error)

    def _refused(self, reason: str) -> _UnauthorizedError:
        return _UnauthorizedError(
            Diagnostic(
                "ROOT_LOGIN_FAILED",
                f"{self._endpoint.url} does not log in {ROOT}: {reason}",
                self._subject,
                untouched="The device was not passed.",
                remedy="Check the password that `api.root_password` names, or pass the device by a mapping:"
                " remove `raw: true`.",
            )
        )
