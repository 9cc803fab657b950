"""Pods that load from each other: who failed is named by node, and a cut transfer is no transfer."""

from __future__ import annotations

import pytest

from provision.kube.checks.pods import PodEnd
from provision.kube.checks.test_pod_network import BYTES, _problems

WHOLE = f"bytes {BYTES}\nname yes\n"


@pytest.mark.parametrize(
    ("logs", "expected"),
    [
        ({"a": WHOLE, "b": WHOLE}, ([], [])),
        ({"a": "bytes 0\nname yes\n", "b": WHOLE}, ([f"a gets 0 of {BYTES} bytes from b"], [])),
        # A handshake and a first segment pass where full packets do not.
        ({"a": WHOLE, "b": "bytes 1448\nname yes\n"}, ([f"b gets 1448 of {BYTES} bytes from a"], [])),
        ({"a": f"bytes {BYTES}\nname no\n", "b": WHOLE}, ([], ["a finds no name of the cluster"])),
        ({"a": WHOLE}, ([f"b gets 0 of {BYTES} bytes from a"], ["b finds no name of the cluster"])),
    ],
)
def test_who_does_not_reach_whom_is_named(
    logs: dict[str, str], expected: tuple[list[str], list[str]]
) -> None:
    ends = [PodEnd("c", f"c-{node}", node, 0, log) for node, log in logs.items()]
    assert _problems(["a", "b"], ends) == expected
