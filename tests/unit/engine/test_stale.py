"""A step is expanded again if the answers that it was expanded from have other values, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.contracts.role import Context
from tests.unit.engine.fake_hosts import Host, Item, Value
from tests.unit.engine.fakes import FakeRole, FakeSite, on_own, own


def test_equal_answers_expand_no_step_again(tmp_path: Path) -> None:
    second = FakeRole("second", own(b="1"), on_own("fact"))
    site = FakeSite([FakeRole("first", own(a="1"), on_own("fact")), second], state=tmp_path)
    planned = site.plan()
    expanded = second.expanded
    assert set(site.outcomes(site.apply(planned=planned)).values()) == {"changed"}
    assert second.expanded == expanded


def by_fact(context: Context) -> list[Item]:
    """Want on the own host what a fact of it says."""
    system = f"{context.subject.name}/ssh"
    return [Item(system, "copy", str(context.seen(system)[Value("fact")]))]


def test_another_value_expands_the_step_that_read_it(tmp_path: Path) -> None:
    second = FakeRole("second", by_fact, on_own("fact"))
    host = Host({"fact": "old", "copy": "old"})
    site = FakeSite([FakeRole("first", own(fact="new"), on_own()), second], hosts={"n1/ssh": host})
    site.state = tmp_path
    assert set(site.outcomes(site.apply()).values()) == {"changed"}
    assert host.values["copy"] == "new"
    assert site.plan().plan.empty


@pytest.mark.parametrize("fact", ["old", "new"])
def test_a_key_that_a_step_gives_up_is_compared_again(tmp_path: Path, fact: str) -> None:
    def extra(context: Context) -> list[Item]:
        if context.seen("n1/ssh")[Value("fact")] == "new":
            return []
        return [Item("n1/ssh", "words", "y", merges=True)]

    roles = [
        FakeRole("base", lambda _: [Item("n1/ssh", "words", "x", merges=True)], on_own()),
        FakeRole("turn", own(fact=fact), on_own()),
        FakeRole("extra", extra, on_own("fact")),
    ]
    host = Host({"fact": "old"})
    site = FakeSite(roles, hosts={"n1/ssh": host}, state=tmp_path)
    assert site.apply().exit_code == 0
    assert host.values["words"] == ("x" if fact == "new" else "x,y")
    assert site.plan().plan.empty
