"""What an API server's refusals mean: what to try again, what never helps, and what a user reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from provision.connections.contracts import KubeReply
from provision.kube.queries import Refusal
from provision.values.diagnostics import Diagnostic

TYPED_PATCH = "failed to create typed patch object"
"""Begins the message of an HTTP 500 that is an input error: the field or its type is not in the schema."""
_MANAGER = re.compile(r'conflict with "([^"]*)"')
WEBHOOK_WORDS = ("failed calling webhook", "failed to call webhook")
KIND_GOES = "create not allowed while custom resource definition is terminating"
"""Ends the message of an HTTP 403 that is about no rights: the kind goes, and may come again."""
WEBHOOK_REMEDY = (
    "Bring the webhook's service back, or delete its configuration:"
    " `kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations`."
)
_REFUSED = frozenset({"KUBE_CONFLICT", "KUBE_INVALID", "KUBE_FORBIDDEN", "KUBE_REFUSED"})
NOT_FOUND, CONFLICT, FORBIDDEN, INVALID, SERVER_ERROR = 404, 409, 403, 422, 500


def message_of(reply: KubeReply) -> str:
    """Return what an API says, in its own words."""
    body = reply.body
    if isinstance(body, Mapping):
        return str(body.get("message") or f"HTTP {reply.status}")
    return str(body).strip()[:300] or f"HTTP {reply.status}"


def is_kind_missing(reply: KubeReply) -> bool:
    """Whether the API does not serve the kind: its CRD is not there."""
    return reply.status == NOT_FOUND and not isinstance(reply.body, Mapping)


def may_heal(reply: KubeReply) -> bool:
    """Whether the same request may be taken later: what it needs is being made, or on its way."""
    text = message_of(reply)
    if reply.status == NOT_FOUND:
        return is_kind_missing(reply) or text.startswith("namespaces ")
    is_starting = reply.status >= SERVER_ERROR and any(word in text for word in WEBHOOK_WORDS)
    is_modified = reply.status == CONFLICT and "the object has been modified" in text
    is_going = reply.status == FORBIDDEN and text.endswith(KIND_GOES)
    return is_starting or is_modified or is_going


def conflicts_of(reply: KubeReply) -> tuple[tuple[str, str], ...]:
    """Return the managers that own fields which we want to set, with these fields."""
    conflicts: list[tuple[str, str]] = []
    for cause in causes_of(reply):
        match = _MANAGER.match(str(cause.get("message") or ""))
        if match is not None:
            conflicts.append((match[1], str(cause.get("field") or "")))
    return tuple(conflicts)


def causes_of(reply: KubeReply) -> list[Mapping[str, Any]]:
    """Return the causes in the details of a refusal."""
    details = reply.body.get("details") if isinstance(reply.body, Mapping) else None
    causes = details.get("causes") if isinstance(details, Mapping) else None
    return [cause for cause in (causes if isinstance(causes, list) else []) if isinstance(cause, Mapping)]


def refusal_of(reply: KubeReply) -> Refusal:
    """Return a refusal as data."""
    return Refusal(reply.status, message_of(reply), conflicts_of(reply), may_heal(reply))


def diagnostic_of(refusal: Refusal, what: str, subject: str) -> Diagnostic:
    """Return a refusal as a user reads it.

    Args:
        refusal: what the API said.
        what: which object, as `DaemonSet gpu/driver`.
        subject: whom it is about.
    """
    if refusal.conflicts:
        managers = sorted({manager for manager, _ in refusal.conflicts})
        return Diagnostic(
            "KUBE_CONFLICT",
            f"{', '.join(managers)} owns fields of {what} that are declared here",
            subject,
            evidence=tuple(f"{manager}: {path}" for manager, path in refusal.conflicts[:20]),
            untouched=f"{what} was not changed.",
            remedy="Stop managing these fields there, or remove them here:"
            " `kubectl get --show-managed-fields -o yaml` shows who set what.",
        )
    is_input = refusal.status in {400, INVALID} or TYPED_PATCH in refusal.message
    code = "KUBE_INVALID" if is_input else "KUBE_FORBIDDEN" if refusal.status == FORBIDDEN else "KUBE_REFUSED"
    remedies = {
        "KUBE_INVALID": "Correct the value in the inventory; if it is not yours, report this with the"
        " version of the chart.",
        "KUBE_FORBIDDEN": "See `kubectl auth can-i --list` with the kubeconfig of the cluster.",
        "KUBE_REFUSED": "Correct the cause and run the command again.",
    }
    is_webhook = any(word in refusal.message for word in WEBHOOK_WORDS)
    return Diagnostic(
        code,
        f"the Kubernetes API refuses {what}: {refusal.message}",
        subject,
        untouched=f"{what} was not changed.",
        remedy=WEBHOOK_REMEDY if is_webhook else remedies[code],
    )


def after_others(problem: Diagnostic) -> Diagnostic:
    """Return a problem of a later request of a fix: of a refusal it does not say that nothing was changed."""
    return replace(problem, untouched="") if problem.code in _REFUSED else problem
