"""Generated values by the answers of their homes alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from pydantic import SecretStr

from provision.connections.contracts import KeyPair, LocalEndpoint
from provision.contracts.generated import GeneratedValue
from provision.contracts.query import Unknown
from provision.contracts.role import NotYet
from provision.contracts.snapshot import Snapshot
from provision.contracts.system import NotThere, SystemSpec
from provision.engine.generated import GeneratedValues
from provision.engine.session import AwayError, Session
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, ProvisionError

OLD, NEW = SecretStr("the old one"), SecretStr("the new one")
SILENT = Unknown("it may not be read")
ABSENT = AwayError("b", NotThere("b does not exist yet", absent=True))
OFF = AwayError("b", NotThere("b is off by hand", late=False, excused=True))
CUT = Permanent(Diagnostic("HOST_SILENT", "b does not answer"))


@dataclass(frozen=True)
class Home:
    kind: ClassVar[str] = "home"
    secret: ClassVar[bool] = True
    name: str = "current"


NEXT = Home("next")
VALUE = GeneratedValue(
    "token",
    homes=(("a", Home()), ("b", Home())),
    upcoming=(("a", NEXT), ("b", NEXT)),
    keep=lambda _system, _value: pytest.fail("nothing is kept here"),
    make=lambda: "made",
)


def bound(answers: dict[str, Any], *rotate: str) -> GeneratedValues:
    """Bind the value to systems with answers (current and next), or with the reason why they give none."""
    specs = {name: SystemSpec(name, "host", name, {}, lambda _: LocalEndpoint()) for name in ("a", "b")}
    session = Session(specs, lambda *_: pytest.fail("nobody is asked"))
    for name, given in answers.items():
        if isinstance(given, ProvisionError):
            session.systems[name].error = given
        else:
            session.systems[name].snapshot = Snapshot(name, answers={Home(): given[0], NEXT: given[1]})
    values = GeneratedValues(lambda: KeyPair(SecretStr(""), "", ""))
    values.bind(session, [VALUE], frozenset(rotate))
    return values


@pytest.mark.parametrize(
    ("answers", "rotate", "value", "former"),
    [
        ({"a": (None, None), "b": (None, None)}, (), "made", None),
        ({"a": (None, None), "b": ABSENT}, (), "made", None),
        ({"a": (OLD, None), "b": (None, None)}, (), OLD, None),
        ({"a": (None, None), "b": (OLD, None)}, (), OLD, None),
        ({"a": (OLD, None), "b": (NEW, None)}, (), OLD, None),
        ({"a": (OLD, None), "b": CUT}, (), OLD, None),
        ({"a": (SILENT, None), "b": (OLD, None)}, (), OLD, None),
        ({"a": (OLD, None), "b": (OLD, None)}, ("token",), "made", OLD),
        ({"a": (None, None), "b": (None, None)}, ("token",), "made", None),
        ({"a": (OLD, NEW), "b": (OLD, None)}, ("token",), NEW, OLD),
        ({"a": (OLD, None), "b": (OLD, NEW)}, (), NEW, OLD),
        ({"a": (NEW, NEW), "b": (OLD, None)}, (), NEW, OLD),
        ({"a": (NEW, NEW), "b": (NEW, NEW)}, (), NEW, None),
        ({"a": (None, NEW), "b": CUT}, (), NEW, None),
    ],
)
def test_the_value_of_a_run_follows_from_what_its_homes_answer(
    answers: dict[str, Any], rotate: tuple[str, ...], value: SecretStr | str, former: SecretStr | None
) -> None:
    values = bound(answers, *rotate)
    assert values.value("token") == (SecretStr(value) if isinstance(value, str) else value)
    assert values.former("token") == former


@pytest.mark.parametrize(
    ("other", "silence", "reason"),
    [
        (OFF, OFF, "b is off by hand"),
        (CUT, CUT, "b does not answer"),
        ((SILENT, None), None, "it may not be read"),
    ],
)
def test_none_is_made_while_a_home_may_have_one(other: Any, silence: object, reason: str) -> None:
    values = bound({"a": (None, None), "b": other})
    with pytest.raises(NotYet, match=reason) as caught:
        values.value("token")
    assert (caught.value.system, caught.value.query) == ("b", Home())
    assert caught.value.silence is silence
    values._session.systems["b"].snapshot = Snapshot("b", answers={Home(): OLD, NEXT: None})
    assert values.value("token") == OLD


def test_the_first_value_read_or_made_is_the_one_of_the_run() -> None:
    values = bound({"a": (None, None), "b": (None, None)})
    made = values.value("token")
    values._session.systems["a"].snapshot = Snapshot("a", answers={Home(): OLD, NEXT: None})
    assert values.value("token") is made


def test_what_was_made_is_taken_out_of_texts_and_what_was_read_is_not() -> None:
    made, read = bound({"a": (None, None), "b": ABSENT}), bound({"a": (OLD, None)})
    for values in (made, read):
        values.value("token")
    assert made.redactor_of_made().text("token=made") == "token=***"
    assert read.redactor_of_made().text(f"token={OLD.get_secret_value()}") == "token=the old one"
