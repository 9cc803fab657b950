"""What happens to nodes that are drained, rebooted and taken back."""

from __future__ import annotations

from tests.unit.engine.fakes import FakeSite

FOUR = dict.fromkeys(("n1", "n2", "n3", "n4"), True)
ROLLED = ["cordon {0}=provision", "pods {0}=0", "down {0}", "up {0}", "cordon {0}="]


def rolled(name: str) -> list[str]:
    """Return what happens to a node that is drained, rebooted and taken back."""
    return [event.format(name) for event in ROLLED]


def lines(site: FakeSite) -> list[str]:
    """Return what was told about steps."""
    return [event.line for event in site.events if hasattr(event, "line")]
