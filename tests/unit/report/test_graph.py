from __future__ import annotations

from dataclasses import replace

from provision.engine.model import StepId
from provision.report.graph import graph_dot, graph_text, reduced
from tests.unit.report.samples import step

HOST, VM, OS = step("pve", "hypervisor_host"), step("vm-1", "virtual_machine"), step("vm-1", "base_os")
STEPS = (
    HOST,
    replace(VM, after=frozenset({HOST.id}), needs=frozenset({HOST.id}), gate="Is the monitor off?"),
    replace(
        OS, after=frozenset({HOST.id, VM.id, StepId("elsewhere", "left-out")}), needs=frozenset({HOST.id})
    ),
)


def test_an_edge_that_follows_from_others_is_left_out() -> None:
    assert reduced(STEPS) == {HOST.id: (), VM.id: (HOST.id,), OS.id: (VM.id,)}


def test_the_text_says_what_waits_for_what() -> None:
    assert graph_text(STEPS).splitlines() == [
        "pve: hypervisor_host   at once",
        "vm-1: virtual_machine  after pve: hypervisor_host (needed); asks: Is the monitor off?",
        "vm-1: base_os          after vm-1: virtual_machine",
    ]


def test_dot_shows_needs_and_order_differently() -> None:
    text = graph_dot(STEPS)
    assert '"pve: hypervisor_host" -> "vm-1: virtual_machine";' in text
    assert '"vm-1: virtual_machine" -> "vm-1: base_os" [style=dashed];' in text
    assert text.count("->") == 2


def test_names_cannot_leave_their_quotes() -> None:
    assert r'"a\": [label=evil]"' in graph_dot((step('a": [label=evil]', "x"),))


def test_no_steps_are_no_graph() -> None:
    assert graph_text(()) == ""
