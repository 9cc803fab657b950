"""A plan on disk: the promise, and the answers it rests on by hash; applied only while nothing has moved.

What holds a secret is hashed with a key that is not in the file: nobody can try secrets on the file alone,
two different secrets never look alike, and the same one always does.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from provision.contracts.query import is_secret
from provision.contracts.snapshot import Snapshot
from provision.engine.environment import Options
from provision.engine.model import StepPlan
from provision.engine.planned import Planned
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Refused, UsageError
from provision.values.whole_file import write_whole

FORMAT = "provision-plan/2"
_MARK = "\0"
"""Stands on both sides of a secret in canonical text; `repr` leaves none of it elsewhere."""


def _canonical(value: object) -> str:
    """Return a value as text that is the same for equal values only, secrets included."""
    if isinstance(value, SecretStr):
        return f"{_MARK}{value.get_secret_value()}{_MARK}"
    if isinstance(value, Mapping):
        items = (f"{_canonical(key)}: {_canonical(item)}" for key, item in value.items())
        return f"{{{', '.join(sorted(items))}}}"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(_canonical, value)))}}}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_canonical, value))})"
    if is_dataclass(value) and not isinstance(value, type):
        compared = (getattr(value, member.name) for member in fields(value) if member.compare)
        return f"{type(value).__qualname__}({', '.join(map(_canonical, compared))})"
    return repr(value)


class Digests:
    """Hashes the values of one plan.

    Args:
        key: returns the key for what holds a secret; called only if something does.
        mask: takes secrets out of text.
        without_made: takes out of text what this plan itself has made: no two plans differ by it.
    """

    def __init__(
        self,
        key: Callable[[], bytes],
        mask: Callable[[str], str] = str,
        without_made: Callable[[str], str] = str,
    ) -> None:
        self._key = key
        self._mask = mask
        self._without_made = without_made
        self._known_key = b""

    @property
    def key_id(self) -> str:
        """Names the key that was used; empty if none was."""
        return self._keyed("the name of this key") if self._known_key else ""

    def _keyed(self, text: str) -> str:
        self._known_key = self._known_key or self._key()
        return hmac.new(self._known_key, text.encode("utf-8", "surrogateescape"), "sha256").hexdigest()[:24]

    def of(self, value: object, *, secret: bool = False) -> str:
        """Return the hash of a value; with the key if it is or holds a secret."""
        text = self._without_made(_canonical(value))
        if secret or _MARK in text or self._mask(text) != text:
            return self._keyed(text)
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:24]

    def label(self, text: str) -> str:
        """Return a name without secrets; different names stay different."""
        masked = self._mask(text)
        return text if masked == text else f"{masked} {self._keyed(text)}"


def _step(plan: StepPlan, digests: Digests) -> dict[str, Any]:
    return {
        "changes": [
            {
                "key": digests.label(str(planned.key)),
                "fields": [
                    [
                        str(change.op),
                        digests.label(change.path),
                        digests.of((change.old, change.new), secret=change.secret),
                    ]
                    for change in planned.changes
                ],
                "effects": [digests.label(str(effect)) for effect in (*planned.effects, *planned.risks)],
            }
            for planned in plan.changes
        ],
        "late": digests.label(plan.late),
        "unreached": digests.label(plan.unreached),
    }


def content(
    planned: Planned, digest: str, snapshots: Mapping[str, Snapshot], digests: Digests
) -> dict[str, Any]:
    """Return a plan as JSON types: no value of any field, only hashes.

    Args:
        planned: the plan.
        digest: hash of the inventory.
        snapshots: the answers it rests on.
        digests: hashes its values.
    """
    # What is as desired, then and now, rests on nothing: answers hold what moves by itself (leases, uptimes).
    answers: dict[str, str] = {}
    for state in planned.states.values():
        changed = {each.key for each in state.plan.changes}
        for resource in state.resources:
            if resource.key not in changed:
                continue
            snapshot = snapshots.get(resource.key.system)
            if snapshot is not None:
                queries = resource.queries()
                used = [(query, snapshot.answers.get(query)) for query in queries]
                name = digests.label(str(resource.key))
                answers[name] = digests.of(used, secret=any(map(is_secret, queries)))
    options = planned.expander.options
    return {
        "format": FORMAT,
        "inventory": planned.plan.inventory,
        "digest": digest,
        "options": {
            "targets": list(options.targets),
            "steps": list(options.steps),
            "allow": sorted(options.allow),
            "prune": options.prune,
        },
        "steps": {str(step): _step(state.plan, digests) for step, state in planned.states.items()},
        "consents": [[each.system, str(each.effect), str(each.consent)] for each in planned.plan.risks],
        "answers": answers,
        "key": digests.key_id,
    }


def save(path: Path, data: Mapping[str, Any], file: str, playbook: str) -> None:
    """Write a plan file, readable by its owner only.

    Args:
        path: where.
        data: what `content` returned.
        file: the inventory's file.
        playbook: name or file of the playbook.
    """
    write_whole(path, json.dumps({**data, "file": file, "playbook": playbook}, indent=1))


def read(path: Path) -> dict[str, Any]:
    """Return what a plan file holds.

    Raises:
        UsageError: it is no plan file.
    """
    try:
        data = json.loads(path.read_text())
        options_of(data)
        known = data["format"] == FORMAT and isinstance(data["key"], str)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise UsageError(
            Diagnostic(
                "PLAN_UNREADABLE",
                f"{path} is not a saved plan: {error}",
                remedy="make a new one with plan --out",
            )
        ) from None
    if not known:
        summary = f"{path} was written by another version: {data['format']!r} is not {FORMAT}"
        raise UsageError(Diagnostic("PLAN_UNREADABLE", summary, remedy="make a new one with plan --out"))
    return dict(data)


def options_of(data: Mapping[str, Any]) -> Options:
    """Return the options that a saved plan was made with."""
    options = data["options"]
    return Options(
        targets=tuple(options["targets"]),
        steps=tuple(options["steps"]),
        allow=frozenset(map(str, options["allow"])),
        prune=bool(options["prune"]),
    )


def check(saved: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Compare a saved plan with a new one.

    Raises:
        Refused: something moved (exit 4); every moved thing is named.
        UsageError: the two were made with different keys.
    """
    if saved["key"] and now["key"] and saved["key"] != now["key"]:
        raise UsageError(
            Diagnostic(
                "PLAN_KEY_DIFFERS",
                "the secrets in the saved plan were hashed with another key than this machine's",
                untouched="nothing was touched",
                remedy="set PROVISION_PLAN_KEY to the same text for plan and apply, "
                "or copy plan.key from the state folder of the machine that made the plan",
            )
        )
    moved = []
    if saved["digest"] != now["digest"]:
        moved.append("the inventory was edited")
    steps, answers = _differing(saved["steps"], now["steps"]), _differing(saved["answers"], now["answers"])
    moved += [f"{each}: {_what(saved['steps'].get(each), now['steps'].get(each))}" for each in steps]
    moved += [f"{each}: was changed by something else" for each in answers]
    # The policy is the inventory's; what `apply FILE --allow` adds to the promise is no other promise.
    if [each[:2] for each in saved["consents"]] != [each[:2] for each in now["consents"]]:
        moved.append("the effects that need consent are others")
    if moved:
        raise Refused(
            Diagnostic(
                "PLAN_STALE",
                f"the saved plan is stale: {moved[0]}"
                + (f" and {len(moved) - 1} more" if len(moved) > 1 else ""),
                evidence=tuple(moved[:40]),
                untouched="nothing was touched",
                remedy=f"make a new plan: `provision plan {saved.get('file', 'INVENTORY')} --out FILE`",
            )
        )


def _differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return sorted(each for each in {*old, *new} if old.get(each) != new.get(each))


def _what(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> str:
    if old is None or new is None:
        return "there is a new step" if old is None else "the step is gone"
    if old["late"] != new["late"] or old["unreached"] != new["unreached"]:
        return new["late"] or new["unreached"] or "it can be planned now"
    before = {each["key"]: each for each in old["changes"]}
    after = {each["key"]: each for each in new["changes"]}
    keys = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
    return "changes are others: " + ", ".join(keys[:5])
