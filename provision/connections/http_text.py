"""What HTTP can carry: headers that can be sent, and JSON that somebody else wrote."""

from __future__ import annotations

import json
import re

_HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")
"""How JSON writes a half of a surrogate pair; most answers have none, and are not looked at again."""


def can_be_sent(header: str) -> bool:
    """Whether a text may stand in a header of a request."""
    return header.isascii() and header.isprintable()


def may_hold_half_pairs(content: bytes) -> bool:
    """Whether a text of an answer may hold half of a surrogate pair."""
    return _HALF_PAIR.search(content) is not None


def is_text(answer: object) -> bool:
    """Whether no text in an answer holds half of a surrogate pair, which nothing can write."""
    try:
        json.dumps(answer, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        return False
    except (TypeError, ValueError):
        return True  # no JSON: a test's own object
    return True


def parsed_json(content: bytes) -> object:
    """Return what JSON says.

    Raises:
        ValueError: it is no JSON in UTF-8, or one that is not to be worked with: the text says why.
    """
    try:
        answer: object = json.loads(content.decode())
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON: {str(error)[:100]}") from None
    if may_hold_half_pairs(content) and not is_text(answer):
        raise ValueError("it is not Unicode text")
    return answer
