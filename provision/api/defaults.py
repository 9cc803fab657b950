"""What the library does where its caller has no wish: see nothing, accept the plan, answer no question."""

from __future__ import annotations

from collections.abc import Callable

from provision.api.check_session import Answers
from provision.connections.contracts import Endpoint
from provision.contracts.driver import Driver
from provision.contracts.system import SystemSpec
from provision.engine.environment import Options
from provision.engine.model import Plan
from provision.values.events import Event
from provision.verify.model import CheckResult, VerifyReport

OpenDriver = Callable[[SystemSpec, Endpoint], Driver]
"""Makes the driver of one system; nothing is sent before its first question."""

Verifier = Callable[[Answers, frozenset[str], Options, Callable[[CheckResult], None]], VerifyReport]
"""Runs the checks: session, subjects away without fault, options, and whom to tell each result."""


def ignore(_event: Event) -> None:
    """Receive an event that nobody wants to see."""


def accept(_plan: Plan) -> bool:
    """Accept a plan without a person."""
    return True


def nobody(_question: str) -> bool | None:
    """Answer for a person who is not there."""
    return None
