"""`provision` as a contender of the no-op benchmark: its inventory, its command, and how a change shows.

Runs in the benchmark's own virtual environment and imports the benchmark's modules (`--bench FOLDER`), which
lie beside the checkout and are left as they are. `benchmarks/noop.py` starts it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from damage import choose_damage, damaged  # type: ignore[import-not-found]  # beside this file

PEERS = ("check-paramiko", "pyinfra")
"""The bare script first: all ratios are against it."""

ANSIBLE = ("ansible-default", "ansible-tuned")
NO_CHANGE = "(0 changed)"


def load_bench(folder: Path) -> tuple[Any, Any, Any]:
    """Return the benchmark's modules hosts, states and measure."""
    sys.path.insert(0, str(folder))
    import hosts  # type: ignore[import-not-found]  # noqa: PLC0415 - its path is only known now
    import measure  # type: ignore[import-not-found]  # noqa: PLC0415 - its path is only known now
    import states  # type: ignore[import-not-found]  # noqa: PLC0415 - its path is only known now

    return hosts, states, measure


def write_inventory(farm: Any, states: Any, count: int, folder: Path) -> Path:
    """Write the 25 states of `count` hosts as an inventory: one profile, the hosts' differences as `vars`."""
    templates = folder / "templates"
    templates.mkdir(parents=True, exist_ok=True)
    for source, _, _ in states.FILES:
        # The peers render with trim_blocks: the newline after a block goes. Here it goes in the text.
        text = (farm.HERE / "templates" / source).read_text().replace("%}\n", "%}")
        (templates / source).write_text(text)
    root = "{{ root }}/"
    resources: list[dict[str, object]] = [
        {"kind": "file", "path": root + path, "template": str(templates / source), "mode": f"0{mode}"}
        for source, path, mode in states.FILES
    ]
    resources += [{"kind": "package", "name": name} for name in states.PACKAGES]
    resources += [
        {"kind": "service", "name": name, "running": True, "enabled": True} for name in states.SERVICES
    ]
    resources += [{"kind": "file", "path": root + path, "line": line} for path, line in states.LINES]
    resources += [
        {"kind": "command", "name": guard, "run": f"touch {root}{guard}", "creates": root + guard}
        for guard in states.GUARDS
    ]
    if len(resources) != states.STATE_COUNT:
        raise AssertionError(f"{len(resources)} states")
    inventory = {
        "version": 1,
        "name": f"bench-{count}",
        "access": {
            "user": farm.USER,
            "port": farm.PORT,
            "key": str(farm.KEY),
            "known_hosts": str(farm.KNOWN_HOSTS),
        },
        "profiles": {"host": {"ssh": {"sudo": False}, "host_resources": resources}},
        "nodes": {
            farm.name(index): {
                "profile": "host",
                "address": farm.address(index),
                "vars": {"root": str(farm.root(index)), **states.variables(index)},
            }
            for index in range(1, count + 1)
        },
    }
    import yaml  # noqa: PLC0415 - in the benchmark's environment

    path = folder / f"inventory-{count}.yaml"
    path.write_text(yaml.safe_dump(inventory, sort_keys=False))
    return path


def reported_keys(provision: str, inventory: Path, environment: Mapping[str, str]) -> set[str]:
    """Return the resources that a plan would change.

    Raises:
        SystemExit: the plan failed.
    """
    command = [provision, "plan", str(inventory), "--playbook", "hosts", "--json"]
    result = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{' '.join(command)}: exit {result.returncode}\n{result.stdout}{result.stderr}")
    events = [json.loads(line) for line in result.stdout.splitlines()]
    return {str(event["key"]) for event in events if event["type"] == "planned_change"}


def damage_round(
    provision: str,
    farm: Any,
    states: Any,
    count: int,
    seed: int,
    folder: Path,
    environment: Mapping[str, str],
) -> None:
    """Damage one percent of the states, and check that a plan names each of them and nothing else.

    Raises:
        SystemExit: it does not.
    """
    inventory = folder / f"inventory-{count}.yaml"
    chosen = choose_damage(farm, states, count, seed)
    expected = {damage.key for damage in chosen}
    with damaged(chosen, folder / "undamaged"):
        began = time.monotonic()
        reported = reported_keys(provision, inventory, environment)
        seconds = time.monotonic() - began
    if reported != expected:
        missing, additional = sorted(expected - reported), sorted(reported - expected)
        sys.exit(f"seed {seed}: damaged states that the plan misses: {missing}; others: {additional}")
    if left := reported_keys(provision, inventory, environment):
        sys.exit(f"seed {seed}: these states stay damaged: {sorted(left)}")
    print(
        f"{count} hosts, seed {seed}: {len(chosen)} of {count * states.STATE_COUNT} states damaged, "
        f"each is named by the plan ({seconds:.1f} s) and nothing else",
        flush=True,
    )


def contend(measure: Any, provision: str, folder: Path, environment: dict[str, str]) -> None:
    """Register the contender, and make the benchmark's check see its changes."""

    def build(count: int) -> tuple[list[str], dict[str, str]]:
        inventory = str(folder / f"inventory-{count}.yaml")
        return [provision, "apply", inventory, "--yes", "--playbook", "hosts"], environment

    measure.CONTENDERS["provision"] = build
    check_others = measure.check

    def check(name: str, code: int, output: str) -> None:
        check_others(name, code, output)
        if name == "provision" and NO_CHANGE not in output:
            sys.exit(f"provision changed something:\n{output[-3000:]}")

    measure.check = check


def contenders(only: Sequence[str], *, ansible: bool) -> list[str]:
    """Return the names of the contenders; Ansible, which takes minutes, only where it is asked for."""
    names = list(only)
    if ansible:
        program = Path(sys.executable).parent / "ansible-playbook"
        if program.exists():
            names += [name for name in ANSIBLE if name not in names]
        else:
            print(
                f"skipped: Ansible is not installed; "
                f"`{sys.executable} -m pip install ansible-core` adds it to this benchmark",
                flush=True,
            )
    return names


def ratios(results: list[dict[str, Any]], count: int) -> str:
    """Return one row: `provision` over the bare script, the median (least to most) of the rounds' ratios."""
    by_round: dict[int, dict[str, Any]] = {}
    for row in results:
        if row["hosts"] == count:
            by_round.setdefault(row["round"], {})[row["name"]] = row
    cells = [str(count)]
    for name, base in (("provision", PEERS[0]), ("pyinfra", "provision")):
        for key in ("wall", "client", "server", "all"):
            quotients = [
                _value(rows[name], key) / _value(rows[base], key)
                for rows in by_round.values()
                if name in rows and base in rows
            ]
            cells.append(_spread(quotients, "") if quotients else "-")
    differences = [rows["provision"]["wall"] - rows[PEERS[0]]["wall"] for rows in by_round.values()]
    cells.append(_spread(differences, " s"))
    return "| " + " | ".join(cells) + " |"


def _value(row: dict[str, Any], key: str) -> float:
    return float(row["client"] + row["server"] if key == "all" else row[key])


def _spread(values: list[float], unit: str) -> str:
    return f"{statistics.median(values):.2f}{unit} ({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", type=Path, required=True)
    parser.add_argument("--provision", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--hosts", default="1,10,50,100")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(("provision", *PEERS)))
    parser.add_argument("--ansible", action="store_true")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))  # noqa: S311 - no secret
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    farm, states, measure = load_bench(given.bench)
    own = {"PROVISION_STATE": str(given.folder / "state")}
    environment = os.environ | own
    counts = [int(count) for count in given.hosts.split(",")]
    names = contenders(given.only.split(","), ansible=given.ansible)
    for count in counts:
        write_inventory(farm, states, count, given.folder)
    contend(measure, given.provision, given.folder, own)

    results: list[dict[str, Any]] = []
    for count in counts:
        damage_round(given.provision, farm, states, count, given.seed, given.folder, environment)
        for name in names:
            measure.measure(name, count)  # bytecode, caches, queries of the last time
        for number in range(1, given.rounds + 1):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                row = {"name": name, "hosts": count, "round": number} | measure.measure(name, count)
                results.append(row)
                print(json.dumps(row), file=sys.stderr, flush=True)
                if given.json:
                    given.json.write_text(json.dumps(results))
        measure.report(names, count, results)
    if "provision" not in names or PEERS[0] not in names:
        return
    print("\nRatios within one round, median (least to most); CPU: client, server, both together.\n")
    heads = [
        f"{quotient} {what}"
        for quotient in ("ours/bare", "pyinfra/ours")
        for what in ("wall", "client", "server", "CPU")
    ]
    print(f"| hosts | {' | '.join(heads)} | ours - bare, wall |\n|{'---|' * (len(heads) + 2)}")
    for count in counts:
        print(ratios(results, count))


if __name__ == "__main__":
    main()
