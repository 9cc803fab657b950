"""Composition root and public library: load, plan, apply, verify, destroy."""

from __future__ import annotations

from provision.api.check_session import Answers
from provision.api.defaults import OpenDriver, Verifier, nobody
from provision.api.events import plan_code
from provision.api.loading import load
from provision.api.site import Site
from provision.api.wiring import read_playbook, roles_of, state_folder
from provision.engine.environment import Options
from provision.engine.model import Plan, RunReport
from provision.engine.run import Ask

__all__ = [
    "Answers",
    "Ask",
    "OpenDriver",
    "Options",
    "Plan",
    "RunReport",
    "Site",
    "Verifier",
    "load",
    "nobody",
    "plan_code",
    "read_playbook",
    "roles_of",
    "state_folder",
]
