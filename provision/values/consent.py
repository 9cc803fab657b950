"""What a policy says about the cost of a change."""

from __future__ import annotations

from enum import StrEnum


class Consent(StrEnum):
    """What the policy says about an effect class."""

    ALLOW = "allow"
    ASK = "ask"
    NEVER = "never"
