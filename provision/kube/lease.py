"""The cluster's lock: a Lease that the run which holds it renews."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from provision.connections.contracts import KubeConnection, KubeReply
from provision.kube import refusals
from provision.kube.kinds import LEASE, collection_path, object_path
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import ProvisionError
from provision.values.outcomes import ExitCode

NAMESPACE, NAME = "kube-system", "provision"
SECONDS = 30
"""After this time without renewal anybody may take it: its holder is dead, or cut off."""
RENEWED = 8.0
TRIES = 3
LOOK = 1.0
"""Seconds between two looks at a lock that is held: a living holder renews it, a dead one does not."""
WATCHED = 1.5 * RENEWED
"""Seconds for which a lock that looks dead is watched: the clock of its holder may be behind ours."""
CLOCKS_APART = 300.0
"""No two clocks are further apart; what is older than that is dead."""
_PATH = object_path(LEASE.api, LEASE.plural, NAMESPACE, NAME)


def hold_lease(connection: KubeConnection, run: str, who: str, what: str, cancel: Cancel) -> LeaseHold:
    """Take the lock, and renew it in a thread until it is released.

    Raises:
        ProvisionError: another run holds it (exit 6), or the API gives no answers.
    """
    holder = f"{run} {who}".strip()
    reply = connection.request("GET", _PATH)
    for _ in range(TRIES):
        if reply.status == refusals.NOT_FOUND:
            path = collection_path(LEASE.api, LEASE.plural, NAMESPACE)
            reply = connection.request("POST", path, _body(holder, ""))
        else:
            held = _free(connection, reply, what, cancel)
            version = str((held.get("metadata") or {}).get("resourceVersion") or "")
            reply = connection.request("PUT", _PATH, _body(holder, version))
        if reply.is_success:
            return LeaseHold(connection, holder)
        if reply.status != refusals.CONFLICT:
            break
        cancel.wait(0.2)  # somebody was faster: look who
        reply = connection.request("GET", _PATH)
    refusal = refusals.refusal_of(reply)
    raise ProvisionError(refusals.diagnostic_of(refusal, f"the lock of {what}", what.partition("/")[0]))


def _free(connection: KubeConnection, reply: KubeReply, what: str, cancel: Cancel) -> Mapping[str, Any]:
    """Return the lock once nobody holds it: that of a run which was killed ends by itself.

    Raises:
        ProvisionError: its holder renews it.
    """
    last, start = "", time.monotonic()
    while True:
        held = reply.body if isinstance(reply.body, Mapping) else {}
        spec = held.get("spec") or {}
        renewed = str(spec.get("renewTime") or "")
        over_for = _over_for(spec)
        watched = 0.0 if over_for >= CLOCKS_APART else WATCHED if over_for >= 0 else SECONDS
        if not spec.get("holderIdentity") or time.monotonic() - start >= watched:
            return held
        if last and renewed != last:
            raise _locked(spec, what)
        last = renewed
        cancel.wait(LOOK)
        reply = connection.request("GET", _PATH)


def _over_for(spec: Mapping[str, Any]) -> float:
    """Return for how many seconds a lock has been over by our clock; negative while it is not."""
    age = time.time() - _epoch(str(spec.get("renewTime") or ""))
    return age - float(spec.get("leaseDurationSeconds") or SECONDS)


def _locked(spec: Mapping[str, Any], what: str) -> ProvisionError:
    return ProvisionError(
        Diagnostic(
            "LOCKED",
            f"run {spec.get('holderIdentity')} works on {what}",
            what.partition("/")[0],
            untouched="Nothing was changed there.",
            remedy=f"Wait until it ends. If it dies, its lock ends {SECONDS} s later.",
        ),
        ExitCode.LOCKED,
    )


def _body(holder: str, version: str) -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    metadata = {"name": NAME, "namespace": NAMESPACE}
    return {
        "apiVersion": LEASE.api,
        "kind": LEASE.name,
        "metadata": {**metadata, "resourceVersion": version} if version else metadata,
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": SECONDS,
            "renewTime": now,
            "acquireTime": now,
        },
    }


def _epoch(text: str) -> float:
    """Return a time of the API in seconds since the epoch; 0 where there is none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


class LeaseHold:
    """The lock while it is held; a Hold.

    Args:
        connection: of its own: a thread uses it.
        holder: who holds it.
    """

    def __init__(self, connection: KubeConnection, holder: str) -> None:
        self._connection = connection
        self._holder = holder
        self._renewed = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="cluster-lock", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it is still held: nobody else may take it before its time is over."""
        return not self._ended.is_set() and time.monotonic() - self._renewed < SECONDS

    def idle(self, run: str) -> float:  # noqa: ARG002 - the protocol's form
        """Return 0.0: a Lease does not say who held it before."""
        return 0.0

    def release(self) -> None:
        """Free it; safe to call twice."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._thread.join(1.0)
        with suppress(ProvisionError):  # it ends by itself
            self._write("")
        self._connection.close()

    def _renew(self) -> None:
        while not self._ended.wait(RENEWED):
            try:
                if not self._write(self._holder):
                    return
            except ProvisionError:  # the only server may be rebooting: tried again until the time is over
                continue
            self._renewed = time.monotonic()

    def _write(self, holder: str) -> bool:
        """Renew it, or give it up; False where somebody else has it by now."""
        reply = self._connection.request("GET", _PATH)
        body = reply.body if isinstance(reply.body, Mapping) else {}
        if str((body.get("spec") or {}).get("holderIdentity") or "") != self._holder:
            return False
        version = str((body.get("metadata") or {}).get("resourceVersion") or "")
        return self._connection.request("PUT", _PATH, _body(holder, version)).is_success
