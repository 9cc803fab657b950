"""A plan on disk: the promise, and the answers it rests on by hash; applied only while nothing has moved."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provision.contracts.snapshot import Snapshot
from provision.engine.environment import Options
from provision.engine.journal import shown
from provision.engine.model import StepPlan
from provision.engine.planned import Planned
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Refused, UsageError
from provision.values.whole_file import write_whole

FORMAT = "provision-plan/1"


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:24]


def _step(plan: StepPlan) -> dict[str, Any]:
    return {
        "changes": [
            {
                "key": str(each.key),
                "fields": [[*shown(change)[:2], _digest(shown(change)[2:])] for change in each.changes],
                "effects": [str(effect) for effect in (*each.effects, *each.risks)],
            }
            for each in plan.changes
        ],
        "late": plan.late,
        "unreached": plan.unreached,
    }


def content(planned: Planned, digest: str, snapshots: Mapping[str, Snapshot]) -> dict[str, Any]:
    """Return a plan as JSON types: no value of any field, only hashes.

    Args:
        planned: the plan.
        digest: hash of the inventory.
        snapshots: the answers it rests on.
    """
    # What is as desired, then and now, rests on nothing: answers hold what moves by itself (leases, uptimes).
    answers: dict[str, str] = {}
    for state in planned.states.values():
        changed = {each.key for each in state.plan.changes}
        for resource in state.resources:
            if resource.key not in changed:
                continue
            seen = snapshots.get(resource.key.system)
            if seen is not None:
                found = [(query, seen.answers.get(query)) for query in resource.queries()]
                answers[str(resource.key)] = _digest(found)
    return {
        "format": FORMAT,
        "inventory": planned.plan.inventory,
        "digest": digest,
        "options": {
            "targets": list(planned.options.targets),
            "steps": list(planned.options.steps),
            "allow": sorted(planned.options.allow),
            "prune": planned.options.prune,
        },
        "steps": {str(step): _step(state.plan) for step, state in planned.states.items()},
        "consents": [[each.system, str(each.effect), str(each.consent)] for each in planned.plan.risks],
        "answers": answers,
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
        known = data["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            Diagnostic(
                "PLAN_UNREADABLE",
                f"{path} is no saved plan: {error}",
                remedy="make a new one with plan --out",
            )
        ) from None
    if not known:
        summary = f"{path} was written by another version: {data['format']!r} is not {FORMAT}"
        raise UsageError(Diagnostic("PLAN_UNREADABLE", summary, remedy="make a new one with plan --out"))
    return dict(data)


def options_of(data: Mapping[str, Any]) -> Options:
    """Return the options that a saved plan was made with."""
    found = data["options"]
    return Options(
        targets=tuple(found["targets"]),
        steps=tuple(found["steps"]),
        allow=frozenset(map(str, found["allow"])),
        prune=bool(found["prune"]),
    )


def check(saved: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Compare a saved plan with a new one.

    Raises:
        Refused: something moved (exit 4); every moved thing is named.
    """
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
                f"the saved plan no longer holds: {moved[0]}"
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
        return new["late"] or new["unreached"] or "can be told now"
    before = {each["key"]: each for each in old["changes"]}
    after = {each["key"]: each for each in new["changes"]}
    keys = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
    return "changes are others: " + ", ".join(keys[:5])
