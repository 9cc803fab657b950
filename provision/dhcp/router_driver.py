"""Asks the web API of a router for lists, and sends it requests."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from provision.contracts.driver import Action, Emit, Result, Verdict
from provision.contracts.effect import Effect
from provision.contracts.query import ApiGet, ApiReply, Unknown
from provision.contracts.remedy import ApiCall
from provision.contracts.snapshot import Snapshot
from provision.dhcp.router_sessions import RouterSession, problem_of
from provision.values.cancel import Cancel, Interrupted
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, ProvisionError, UnknownOutcome

KIND = "router-api"
TEXT = ""
"""The only field of a list of texts."""


@dataclass(frozen=True, slots=True)
class RouterList:
    """A list of objects that a GET answers; the answer is a tuple of rows with the texts of the fields.

    What is not named in `fields` is dropped: routers answer passwords along with networks.

    Args:
        path: with its query string.
        member: where the list is in the answer (`dhcpv4.general`); empty for the answer itself. An object
            counts as a list of one.
        fields: members of the objects; one that is missing is empty, booleans are `true` and `false`. A list
            of texts has the one field TEXT.
    """

    kind: ClassVar[str] = "router-list"
    path: str
    member: str
    fields: tuple[str, ...]


class RouterDriver:
    """One router's API; a Driver.

    Args:
        system: `router`.
        session: logged in with its first request.
    """

    def __init__(self, system: str, session: RouterSession) -> None:
        self.system = system
        self._session = session

    @property
    def round_trips(self) -> int:
        """Requests so far."""
        return self._session.requests

    def close(self) -> None:
        """End the connection."""
        self._session.close()

    def reboot(self, effect: Effect, emit: Emit, cancel: Cancel) -> str:  # noqa: ARG002 - the protocol's form
        """Refuse: an API has no boot."""
        raise Permanent(Diagnostic("NO_BOOT", f"{self.system} is an API and cannot be rebooted"))

    def answer(self, queries: frozenset[Any], cancel: Cancel) -> Snapshot:
        """Ask everything: one request for each list.

        Raises:
            Transient, Permanent, Refused: the API gives no answers at all.
        """
        answers: dict[Any, object] = {}
        for query in sorted(queries, key=lambda query: str(query.path)):
            if cancel.leaving:
                raise Interrupted
            reply = self._session.request("GET", query.path)
            problem = problem_of(reply)
            if isinstance(query, ApiGet):
                text = problem or json.dumps(reply.body, separators=(",", ":"))
                answers[query] = ApiReply(reply.status, text)
            else:
                answers[query] = Unknown(f"{query.path}: {problem}") if problem else rows(query, reply.body)
        return Snapshot(self.system, answers=answers)

    def act(
        self,
        run: str,  # noqa: ARG002 - the protocol's form
        actions: Sequence[Action],
        effects: Sequence[Effect],
        emit: Emit,
        cancel: Cancel,
    ) -> list[Result]:
        """Send the requests in order; see Driver."""
        results: list[Result] = []
        for action in actions:
            if cancel.draining or any(result.verdict is not Verdict.DONE for result in results):
                results.append(Result(Verdict.NOT_BEGUN))
                continue
            emit(action.label)
            began = time.monotonic()
            verdict, diagnostic = self._do(action)
            results.append(Result(verdict, time.monotonic() - began, diagnostic))
        for effect in effects:
            diagnostic = Diagnostic("EFFECT_UNKNOWN", f"{self.system} cannot perform {effect}")
            results.append(Result(Verdict.FAILED, diagnostic=diagnostic))
        return results

    def _do(self, action: Action) -> tuple[Verdict, Diagnostic | None]:
        if not isinstance(action.remedy, ApiCall):
            raise TypeError(f"{action.label}: an API takes no script")
        try:
            for request in action.remedy.requests:
                body = dict(request.data) if request.data or request.method == "POST" else None
                problem = problem_of(self._session.request(request.method, request.path, body))
                if problem:
                    summary = f"{action.label}: {request.method} {request.path}: {problem}"
                    remedy = "See what the router says about it in its web interface."
                    return Verdict.FAILED, Diagnostic("API_REFUSED", summary, self.system, remedy=remedy)
        except UnknownOutcome as error:
            return Verdict.INDETERMINATE, error.diagnostics[0]
        except ProvisionError as error:
            return Verdict.FAILED, error.diagnostics[0]
        return Verdict.DONE, None


def rows(query: RouterList, body: object) -> tuple[tuple[str, ...], ...] | Unknown:
    """Return the rows of an answer; a list that was cut is unknown.

    OPNsense says in `total` how many there are.
    """
    listed = body
    for name in query.member.split(".") if query.member else ():
        listed = listed.get(name) if isinstance(listed, Mapping) else None
    listed = [listed] if isinstance(listed, Mapping) else listed
    if query.fields == (TEXT,) and isinstance(listed, list):
        listed = [{TEXT: entry} if isinstance(entry, str) else entry for entry in listed]
    if not isinstance(listed, list) or not all(isinstance(entry, Mapping) for entry in listed):
        return Unknown(f"{query.path}: the answer has no list {query.member}".rstrip())
    total = body.get("total") if isinstance(body, Mapping) else None
    if isinstance(total, int) and total > len(listed):
        return Unknown(f"{query.path}: {len(listed)} of {total} entries were answered")
    return tuple(tuple(_text(entry.get(name)) for name in query.fields) for entry in listed)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) else ""
