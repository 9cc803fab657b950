"""Secrets in saved plans: alike only if they are the same, and not to be guessed from the file."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import SecretStr

from provision.api import saved_plan
from provision.api.plan_key import plan_key
from provision.api.saved_plan import Digests
from provision.values.errors import UsageError
from provision.values.redaction import Redactor

SECRET = SecretStr("1234")


def digests(key: bytes = b"key", mask: Redactor | None = None, made: Redactor | None = None) -> Digests:
    return Digests(lambda: key, (mask or Redactor()).text, (made or Redactor()).text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (SecretStr("1234"), SecretStr("1235")),
        ((None, SecretStr("a")), (None, SecretStr("b"))),
        ({"token": SecretStr("a")}, {"token": SecretStr("b")}),
        ({1: SecretStr("a")}, {2: SecretStr("a")}),
        ({"a": [SecretStr("a")]}, {"a": [SecretStr("b")]}),
        (frozenset({SecretStr("a")}), frozenset({SecretStr("b")})),
        (SecretStr("1234"), "1234"),
        (SecretStr("**********"), SecretStr("1234")),
    ],
)
def test_different_values_never_have_one_digest(one: object, other: object) -> None:
    assert digests().of(one) != digests().of(other)


def test_the_same_secret_always_has_the_same_digest() -> None:
    assert digests().of((1, SecretStr("1234"))) == digests().of((1, SecretStr("1234")))


def test_a_short_secret_cannot_be_guessed_without_the_key() -> None:
    """Whoever tries all PINs needs the key: no digest without it is the one in the file."""
    digest = digests(b"another key").of(SECRET)
    guesses = (f"{number:04d}" for number in range(10_000))
    tried = {
        hashlib.sha256(text.encode()).hexdigest()[:24] for pin in guesses for text in (pin, f"\0{pin}\0")
    }
    assert digest not in tried
    assert digest != digests(b"key").of(SECRET)


@pytest.mark.parametrize("planted", ["token = 1234 5678", ("old", b"1234 5678"), {"1234 5678": 1}])
def test_a_value_with_a_known_secret_in_it_is_hashed_with_the_key(planted: object) -> None:
    mask = Redactor("1234 5678")
    assert digests(b"one", mask).of(planted) != digests(b"two", mask).of(planted)
    assert digests(b"one").of(planted) == digests(b"two").of(planted)


def test_the_key_is_named_only_if_it_was_used() -> None:
    unused, used = digests(), digests()
    unused.of("public")
    used.of(SECRET)
    assert unused.key_id == ""
    assert used.key_id not in {"", digests(b"another").key_id}


def test_names_with_a_secret_are_masked_and_stay_apart() -> None:
    mask = Redactor("hunter-one", "hunter-two")
    labels = {digests(mask=mask).label(f"line {name}") for name in ("hunter-one", "hunter-two")}
    assert len(labels) == 2
    assert not any("hunter" in label for label in labels)
    assert digests(mask=mask).label("line") == "line"


def test_two_plans_do_not_differ_by_what_each_has_made() -> None:
    contents = [(SecretStr(f"token={made}\n"), made) for made in ("made-by-one", "made-by-two")]
    assert len({digests(made=Redactor(made)).of(content) for content, made in contents}) == 1
    assert len({digests().of(content) for content, _ in contents}) == 2


@dataclass(frozen=True)
class Answer:
    kind: ClassVar[str] = "answer"
    value: str
    uptime: int = field(compare=False, default=0)


def test_what_always_moves_is_no_part_of_a_digest() -> None:
    assert digests().of(Answer("a", 1)) == digests().of(Answer("a", 2))
    assert digests().of(Answer("a")) != digests().of(Answer("b"))


def test_a_plan_of_another_key_is_refused_with_what_to_do() -> None:
    with pytest.raises(UsageError) as caught:
        saved_plan.check({"key": "one"}, {"key": "two"})
    assert caught.value.diagnostics[0].code == "PLAN_KEY_DIFFERS"
    assert "PROVISION_PLAN_KEY" in caught.value.diagnostics[0].remedy


def test_the_key_is_made_once_and_for_its_owner_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROVISION_PLAN_KEY", raising=False)
    key = plan_key(tmp_path / "state")
    assert len(key) == 32
    assert plan_key(tmp_path / "state") == key
    assert plan_key(tmp_path / "other") != key
    assert (tmp_path / "state" / "plan.key").stat().st_mode & 0o777 == 0o600


def test_the_key_of_the_environment_is_the_same_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVISION_PLAN_KEY", "a key for all runners")
    assert plan_key(tmp_path / "one") == plan_key(tmp_path / "two")
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv("PROVISION_PLAN_KEY", "short")
    with pytest.raises(UsageError, match="PLAN_KEY_SHORT"):
        plan_key(tmp_path)


def test_a_damaged_key_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROVISION_PLAN_KEY", raising=False)
    (tmp_path / "plan.key").write_text("no hex")
    with pytest.raises(UsageError, match="PLAN_KEY_DAMAGED"):
        plan_key(tmp_path)


def test_a_plan_file_without_a_word_about_its_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    options = {"targets": [], "steps": [], "allow": [], "prune": False}
    path.write_text(json.dumps({"format": saved_plan.FORMAT, "options": options, "key": 1}))
    with pytest.raises(UsageError, match="PLAN_UNREADABLE"):
        saved_plan.read(path)
