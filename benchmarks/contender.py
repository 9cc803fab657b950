"""`provision` as a contender of the no-op benchmark: its inventory, its command, and how a change shows.

Runs in the benchmark's own virtual environment and imports the benchmark's modules (`--bench FOLDER`), which
lie beside the checkout and are left as they are. `benchmarks/noop.py` starts it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

PEERS = ("check-paramiko", "pyinfra")
"""The bare script first: all ratios are against it."""

NO_CHANGE = "(0 changed)"


def load_bench(folder: Path) -> tuple[Any, Any, Any]:
    """Return the benchmark's modules hosts, states and measure."""
    sys.path.insert(0, str(folder))
    import hosts  # type: ignore[import-not-found]  # noqa: PLC0415 - only found now
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
    at = "{{ root }}/"
    resources: list[dict[str, object]] = [
        {"kind": "file", "path": at + path, "template": str(templates / source), "mode": f"0{mode}"}
        for source, path, mode in states.FILES
    ]
    resources += [{"kind": "package", "name": each} for each in states.PACKAGES]
    resources += [
        {"kind": "service", "name": each, "running": True, "enabled": True} for each in states.SERVICES
    ]
    resources += [{"kind": "file", "path": at + path, "line": line} for path, line in states.LINES]
    resources += [
        {"kind": "command", "name": guard, "run": f"touch {at}{guard}", "creates": at + guard}
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


def sanity(provision: str, farm: Any, states: Any, inventory: Path, environment: dict[str, str]) -> str:
    """Alter one mode under one host's root; the plan must name exactly that file.

    Raises:
        SystemExit: it named something else, or nothing.
    """

    def plan() -> tuple[int, str]:
        command = [provision, "plan", str(inventory), "--playbook", "hosts", "--detailed-exitcode"]
        done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout

    code, before = plan()
    if code:
        sys.exit(f"the plan of an unchanged farm ends with {code}:\n{before}")
    _, path, mode = states.FILES[3]
    file = farm.root(1) / path
    file.chmod(0o640)
    try:
        code, output = plan()
    finally:
        file.chmod(int(mode, 8))
    named = [line.strip() for line in output.splitlines() if str(farm.BASE) in line]
    if code != 2 or len(named) != 1 or str(file) not in named[0]:
        sys.exit(f"one mode was altered ({file}), and the plan ends with {code}:\n{output}")
    return named[0]


def contend(measure: Any, provision: str, folder: Path, environment: dict[str, str]) -> None:
    """Register the contender, and make the benchmark's check see its changes."""

    def build(count: int) -> tuple[list[str], dict[str, str]]:
        inventory = str(folder / f"inventory-{count}.yaml")
        return [provision, "apply", inventory, "--yes", "--playbook", "hosts"], environment

    measure.CONTENDERS["provision"] = build
    others = measure.check

    def check(name: str, code: int, output: str) -> None:
        others(name, code, output)
        if name == "provision" and NO_CHANGE not in output:
            sys.exit(f"provision changed something:\n{output[-3000:]}")

    measure.check = check


def ratios(results: list[dict[str, Any]], count: int) -> str:
    """Return one row: `provision` over the bare script, the median (least to most) of the rounds' ratios."""
    rows = [row for row in results if row["hosts"] == count]
    by_round: dict[int, dict[str, Any]] = {}
    for row in rows:
        by_round.setdefault(row["round"], {})[row["name"]] = row
    cells = [str(count)]
    for of, over in (("provision", PEERS[0]), ("pyinfra", "provision")):
        for key in ("wall", "client", "server", "all"):
            found = [
                _cpu(each[of], key) / _cpu(each[over], key)
                for each in by_round.values()
                if of in each and over in each
            ]
            cells.append(_spread(found, "") if found else "-")
    more = [each["provision"]["wall"] - each[PEERS[0]]["wall"] for each in by_round.values()]
    cells.append(_spread(more, " s"))
    return "| " + " | ".join(cells) + " |"


def _cpu(row: dict[str, Any], key: str) -> float:
    return float(row["client"] + row["server"] if key == "all" else row[key])


def _spread(found: list[float], unit: str) -> str:
    return f"{statistics.median(found):.2f}{unit} ({min(found):.2f} to {max(found):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", type=Path, required=True)
    parser.add_argument("--provision", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--hosts", default="1,10,50")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(("provision", *PEERS)))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    farm, states, measure = load_bench(given.bench)
    own = {"PROVISION_STATE": str(given.folder / "state")}
    environment = os.environ | own
    counts = [int(each) for each in given.hosts.split(",")]
    names = given.only.split(",")
    for count in counts:
        write_inventory(farm, states, count, given.folder)
    shown = sanity(
        given.provision, farm, states, given.folder / f"inventory-{counts[0]}.yaml", dict(environment)
    )
    print(f"An altered mode is seen, and nothing else: {shown}")
    contend(measure, given.provision, given.folder, own)

    results: list[dict[str, Any]] = []
    for count in counts:
        for name in names:
            measure.measure(name, count)  # bytecode, caches, questions of the last time
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
        f"{of} {what}" for of in ("ours/bare", "pyinfra/ours") for what in ("wall", "client", "server", "CPU")
    ]
    print(f"| hosts | {' | '.join(heads)} | ours - bare, wall |\n|{'---|' * (len(heads) + 2)}")
    for count in counts:
        print(ratios(results, count))


if __name__ == "__main__":
    main()
