"""Answers that could not be read: the engine handles them, so that no resource has to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from provision.contracts.change import Change, Key, Op
from provision.contracts.query import Unknown
from provision.contracts.remedy import Fix, Impossible
from provision.contracts.resource import ToleratesUnknown, changes_of, meaning, remedy_of
from provision.contracts.snapshot import Snapshot
from provision.engine.difference import difference
from provision.values.diagnostics import Source

SYSTEM = "n1/ssh"


@dataclass(frozen=True, slots=True)
class Color:
    kind: ClassVar[str] = "color"
    name: str


@dataclass(frozen=True, slots=True)
class Weather:
    kind: ClassVar[str] = "weather"


@dataclass(frozen=True, slots=True)
class Wall:
    """A wall is white; its weather is looked at, too. Breaks on an answer that is no text."""

    name: str = "wall"
    source: Source | None = None

    @property
    def key(self) -> Key:
        return Key(SYSTEM, "wall", self.name)

    def queries(self) -> tuple[Any, ...]:
        return Color(self.name), Weather()

    def changes(self, snapshot: Snapshot) -> tuple[Change, ...]:
        color = snapshot[Color(self.name)]
        assert isinstance(color, str)
        return () if color == "white" else (Change(Op.UPDATE, "color", color, "white"),)

    def fix(self, snapshot: Snapshot) -> Fix:
        assert isinstance(snapshot[Color(self.name)], str)
        return Fix("paint")


@dataclass(frozen=True, slots=True)
class IndoorWall(Wall):
    def optional_queries(self) -> tuple[Any, ...]:
        return (Weather(),)


def snapshot(color: object, weather: object = "dry") -> Snapshot:
    return Snapshot(SYSTEM, answers={Color("wall"): color, Weather(): weather})


def test_an_unknown_answer_needs_attention_and_is_not_corrected() -> None:
    source = Source("site.yaml", 3, 5)
    differing = difference(Wall(source=source), snapshot(Unknown("no lamp"), Unknown("no window")))
    assert differing is not None
    assert differing.changes == (
        Change(Op.ATTENTION, "color wall", "unknown: no lamp"),
        Change(Op.ATTENTION, "weather", "unknown: no window"),
    )
    assert isinstance(differing.remedy, Impossible)
    diagnostic = differing.remedy.diagnostic
    assert (diagnostic.code, diagnostic.subject, diagnostic.source) == ("UNKNOWN", SYSTEM, source)
    assert diagnostic.summary == "the state of wall wall is unknown: no lamp"
    assert diagnostic.evidence == ("color wall: no lamp", "weather: no window")
    assert diagnostic.untouched
    assert (differing.effects, differing.risks) == ((), ())


def test_one_unknown_answer_hides_what_the_others_would_say() -> None:
    differing = difference(Wall(), snapshot("black", Unknown("no window")))
    assert differing is not None
    assert [change.op for change in differing.changes] == [Op.ATTENTION]
    assert isinstance(differing.remedy, Impossible)


@pytest.mark.parametrize(("color", "paths"), [("white", []), ("black", ["color"])])
def test_a_resource_may_live_without_an_answer(color: str, paths: list[str]) -> None:
    wall, at = IndoorWall(), snapshot(color, Unknown("no window"))
    assert isinstance(wall, ToleratesUnknown)
    assert [change.path for change in changes_of(wall, at)] == paths
    assert isinstance(remedy_of(wall, at), Fix)


def test_what_a_resource_tolerates_does_not_cover_its_other_queries() -> None:
    (change,) = changes_of(IndoorWall(), snapshot(Unknown("no lamp"), Unknown("no window")))
    assert (change.op, change.path) == (Op.ATTENTION, "color wall")


def test_unknown_answers_to_queries_of_others_do_not_matter() -> None:
    at = snapshot("black")
    other = Snapshot(SYSTEM, answers={**at.answers, Color("door"): Unknown("no lamp")})
    assert [change.path for change in changes_of(Wall(), other)] == ["color"]


def test_a_snapshot_forgets_an_unknown_answer_once_it_is_known() -> None:
    at = snapshot(Unknown("no lamp"))
    assert at.unknown == {Color("wall")}
    newer = at.updated(snapshot("white"))
    assert newer.unknown == frozenset()
    assert difference(Wall(), newer) is None


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (Color("wall"), "color wall"),
        (Weather(), "weather"),
        (Color("first\n  second"), "color first second"),
        (Color("x" * 200), "color " + "x" * 74),
    ],
)
def test_a_query_is_named_by_its_kind_and_first_field(query: object, text: str) -> None:
    assert meaning(query) == text


def test_no_resource_checks_for_unknown_answers_itself() -> None:
    root = Path(__file__).parents[3] / "provision"
    modules = [*root.glob("*/resources/*.py"), *root.glob("*/backends/*.py")]
    assert len(modules) > 10
    checks = re.compile(r"isinstance\([^)]*Unknown|\.unknown\b")
    assert [path.name for path in modules if checks.search(path.read_text(encoding="utf-8"))] == []
