"""Our `dataclass` does what the standard library's does: each case is tried with both."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar, NamedTuple

import pytest

from provision.values import records


class Kinds(NamedTuple):
    """The same classes, made by one of the two decorators."""

    plain: Any
    frozen: Any
    ordered: Any
    keywords: Any
    child: Any
    identity: Any
    own_hash: Any


def make_kinds(dataclass: Any) -> Kinds:
    @dataclass(slots=True)
    class Plain:
        name: str
        values: list[int] = field(default_factory=list)
        size: int = 3
        sum: int = field(init=False)

        def __post_init__(self) -> None:
            self.sum = sum(self.values) + self.size

    @dataclass(frozen=True, slots=True)
    class Frozen:
        kind: ClassVar[str] = "k"
        name: str
        secret: str = field(default="s", repr=False)
        note: str = field(default="", compare=False)

    @dataclass(frozen=True, slots=True, order=True)
    class Ordered:
        major: int
        minor: int = 0

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Keywords:
        first: int
        second: int = 2

    @dataclass(frozen=True, slots=True)
    class Child(Frozen):
        size: int = 1

    @dataclass(slots=True, eq=False)
    class Identity:
        name: str

    @dataclass(frozen=True)
    class OwnHash:
        name: str

        def __hash__(self) -> int:
            return 7

    return Kinds(Plain, Frozen, Ordered, Keywords, Child, Identity, OwnHash)


THEIRS = make_kinds(dataclasses.dataclass)
OURS = make_kinds(records.dataclass)

CASES: dict[str, Callable[[Kinds], Any]] = {
    "defaults": lambda kinds: repr(kinds.plain("a")),
    "positional and keyword": lambda kinds: repr(kinds.plain("a", size=5)),
    "each object has its own list": lambda kinds: kinds.plain("a").values is kinds.plain("b").values,
    "post init": lambda kinds: kinds.plain("a", [1, 2]).sum,
    "nested name": lambda kinds: repr(kinds.frozen("a")).startswith("make_kinds.<locals>.Frozen("),
    "hidden field": lambda kinds: "secret" in repr(kinds.frozen("a", "x")),
    "class variable": lambda kinds: (kinds.frozen.kind, [f.name for f in dataclasses.fields(kinds.frozen)]),
    "equal": lambda kinds: kinds.frozen("a") == kinds.frozen("a", note="other"),
    "different": lambda kinds: kinds.frozen("a") == kinds.frozen("b"),
    "another class": lambda kinds: kinds.ordered(1) == kinds.keywords(first=1),
    "same hash": lambda kinds: hash(kinds.frozen("a")) == hash(kinds.frozen("a", note="other")),
    "mutable has no hash": lambda kinds: kinds.plain.__hash__,
    "own hash": lambda kinds: hash(kinds.own_hash("a")),
    "identity": lambda kinds: kinds.identity("a") == kinds.identity("a"),
    "identity has a hash": lambda kinds: isinstance(hash(kinds.identity("a")), int),
    "order": lambda kinds: repr(sorted([kinds.ordered(2), kinds.ordered(1, 9), kinds.ordered(1)])),
    "greater": lambda kinds: kinds.ordered(1, 1) >= kinds.ordered(1, 1) > kinds.ordered(0, 5),
    "keywords": lambda kinds: repr(kinds.keywords(first=1)),
    "child": lambda kinds: repr(kinds.child("a", size=2)),
    "child slots": lambda kinds: (kinds.child.__slots__, hasattr(kinds.child("a"), "__dict__")),
    "replace": lambda kinds: repr(dataclasses.replace(kinds.child("a"), name="b", size=4)),
    "as dictionary": lambda kinds: dataclasses.asdict(kinds.plain("a", [1])),
    "match arguments": lambda kinds: kinds.frozen.__match_args__,
    "documentation": lambda kinds: bool(kinds.frozen.__doc__),
    "copy": lambda kinds: copy.deepcopy(kinds.child("a", "x", "n", 3)) == kinds.child("a", "x", "n", 3),
}

ERRORS: dict[str, tuple[type[Exception], Callable[[Kinds], Any]]] = {
    "missing argument": (TypeError, lambda kinds: kinds.frozen()),
    "unknown argument": (TypeError, lambda kinds: kinds.frozen("a", colour=1)),
    "positional for keyword": (TypeError, lambda kinds: kinds.keywords(1)),
    "assignment": (dataclasses.FrozenInstanceError, lambda kinds: setattr(kinds.frozen("a"), "name", "b")),
    "deletion": (dataclasses.FrozenInstanceError, lambda kinds: delattr(kinds.child("a"), "size")),
    "unhashable": (TypeError, lambda kinds: hash(kinds.plain("a"))),
    "no order": (TypeError, lambda kinds: kinds.frozen("a") < kinds.frozen("b")),
}


@pytest.mark.parametrize("case", CASES)
def test_ours_answers_like_the_standard_library(case: str) -> None:
    assert CASES[case](OURS) == CASES[case](THEIRS)


@pytest.mark.parametrize("case", ERRORS)
def test_ours_refuses_like_the_standard_library(case: str) -> None:
    error, call = ERRORS[case]
    for kinds in (OURS, THEIRS):
        with pytest.raises(error):
            call(kinds)


def test_a_child_that_is_made_first_leaves_the_parent_whole() -> None:
    kinds = make_kinds(records.dataclass)
    assert kinds.child("a", size=9).size == 9
    assert kinds.frozen("b").name == "b"
    assert not hasattr(kinds.frozen("b"), "size")
