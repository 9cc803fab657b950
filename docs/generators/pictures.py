"""Draws the pictures of the README: `python -m docs.generators.pictures`, in docs/images.

The plan is one of `inventories/lab.yaml`, planned on models. The run and its report are a real run of
`make tour`, kept in `tour_run.json`: `python -m docs.generators.pictures --record FILE` takes the latest
apply out of a journal. The page of the report is photographed by Chromium where it is installed.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

from docs.generators.pages import ROOT
from provision.api.domains import load_inventory
from provision.api.past_runs import run, runs
from provision.inventory import Inventory
from provision.report.history import RunRecord, record
from provision.report.html import html_report
from provision.report.plan import print_plan
from provision.report.progress import LiveProgress
from provision.values.events import ChangeMade, Event, RunStarted, StepEnded, StepStarted
from tests.model.model_site import ModelSite

IMAGES = Path(__file__).parents[1] / "images"
RECORDING = Path(__file__).with_name("tour_run.json")
COLUMNS = 96
LEFT_OUT = ("  host_resources", "  then:")
"""Between these lines the picture of the plan leaves out what repeats itself."""
MOMENT = 3.6
"""Seconds after the beginning of the run at which it is drawn: guests boot."""
_FONT_FACE = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
"""Fonts of another server, which no page may load; the reader's own monospace font takes their place."""


def main() -> None:
    """Draw all pictures, or record the run that they show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", metavar="JOURNAL", type=Path, help="take the latest apply of a journal")
    arguments = parser.parse_args()
    if arguments.record is not None:
        _record(arguments.record)
        return
    draw_all()
    _photograph(html_report(_recorded()))


def draw_all() -> None:
    """Draw what terminals show; each time the same as long as the product prints the same."""
    IMAGES.mkdir(exist_ok=True)
    draw("plan", "provision plan inventories/lab.yaml", _print_plan)
    draw("run", "provision apply inventories/tour.yaml", _print_run)


def draw(name: str, command: str, show: Callable[[Console], None]) -> None:
    """Write what a function prints as `NAME.svg`, in a window that is titled with the command."""
    console = Console(
        file=io.StringIO(),
        record=True,
        width=COLUMNS,
        height=30,
        force_terminal=True,
        color_system="truecolor",
        markup=False,
        highlight=False,
        emoji=False,
        _environ={},
    )
    show(console)
    svg = console.export_svg(title=command, theme=SVG_EXPORT_THEME, unique_id=f"provision-{name}")
    (IMAGES / f"{name}.svg").write_text(_FONT_FACE.sub("", svg), encoding="utf-8")


def _print_plan(console: Console) -> None:
    """Print the first lines of a plan of the lab, as far as they tell what a plan is."""
    with tempfile.TemporaryDirectory() as folder:
        plan = ModelSite(_lab(Path(folder)), Path(folder) / "state").plan()
    text = io.StringIO()
    whole = Console(file=text, width=COLUMNS, markup=False, highlight=False, emoji=False, force_terminal=True,
                    color_system="truecolor", _environ={})  # fmt: skip
    print_plan(whole, plan)
    lines = [Text.from_ansi(line) for line in text.getvalue().splitlines()]
    first, last = (
        next(number for number, line in enumerate(lines) if line.plain.startswith(start))
        for start in LEFT_OUT
    )
    for line in [*lines[:first], Text("  [...]", style="dim"), *lines[last:]]:
        console.print(line, soft_wrap=True)


def _lab(folder: Path) -> Inventory:
    """Return the lab's inventory with one machine, and with what the lab would fill in."""
    key, overlay = folder / "key", folder / "site.yaml"
    key.write_text("no key\n", encoding="utf-8")
    key.with_suffix(".pub").write_text("ssh-ed25519 AAAA me\n", encoding="utf-8")
    fingerprint = ":".join(["A1"] * 32)
    overlay.write_text(
        f"""
access: {{ key: {key} }}
images:
  debian-12:
    url: "http://198.18.0.254:8080/images/debian-12.qcow2"
    sha256: "{hashlib.sha256(b"debian-12").hexdigest()}"
hypervisors:
  pve:
    api: {{ token_id: "p@pve!x", token: !secret {{ file: {key} }}, fingerprint: "{fingerprint}" }}
    ssh: {{ host_key: "SHA256:{"k" * 43}" }}
network: {{ dhcp: {{ ssh: {{ host_key: "SHA256:{"k" * 43}" }} }} }}
nodes: {{ vm-1: null, vm-2: null }}
""",
        encoding="utf-8",
    )
    return load_inventory(ROOT / "inventories" / "lab.yaml", overlays=[overlay])


def _print_run(console: Console) -> None:
    """Print what a terminal shows in the middle of the run: what ended, then what runs."""
    recorded = _recorded()
    clock = recorded.started
    progress = LiveProgress(console, lambda: clock)
    for event in events(recorded):
        if event.at > recorded.started + MOMENT:
            break
        clock = event.at
        progress(event)
    clock = recorded.started + MOMENT
    console.print(progress.table())


def events(recorded: RunRecord) -> list[Event]:
    """Return the events of a run that follow from its journal, in the order of their times.

    A change has no time in the journal: it is put at the end of its step.
    """
    found: list[Event] = [
        RunStarted(
            run=recorded.id,
            inventory=recorded.inventory,
            verb=recorded.verb,
            subjects=tuple(dict.fromkeys(step.subject for step in recorded.steps)),
            steps=len(recorded.steps),
            at=recorded.started,
        )
    ]
    for step in recorded.steps:
        run_id, subject, role = recorded.id, step.subject, step.role
        began = step.started or recorded.started
        ended = began + step.seconds
        found.append(StepStarted(run=run_id, subject=subject, role=role, at=began))
        found += [
            ChangeMade(
                run=run_id,
                subject=subject,
                role=role,
                key=change.key,
                verdict=change.verdict,
                seconds=change.seconds,
                at=ended,
            )
            for change in recorded.changes
            if (change.subject, change.role) == (step.subject, step.role)
        ]
        found.append(
            StepEnded(
                run=run_id,
                subject=subject,
                role=role,
                outcome=step.outcome,
                seconds=step.seconds,
                reason=step.reason,
                at=ended,
            )
        )
    return sorted(found, key=lambda event: event.at)


def _recorded() -> RunRecord:
    return record(json.loads(RECORDING.read_text(encoding="utf-8")))


def _record(journal: Path) -> None:
    latest = next(row["id"] for row in runs(journal) if row["verb"] == "apply")
    row = run(journal, latest)
    RECORDING.write_text(json.dumps({**(row or {}), "who": "me@laptop"}, indent=1) + "\n", encoding="utf-8")


def _photograph(page: str) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        sys.stderr.write("Chromium is not installed: report.png stays as it is\n")
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        file.write_text(page, encoding="utf-8")
        subprocess.run(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--window-size=1100,1000", f"--screenshot={IMAGES / 'report.png'}", file.as_uri()],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip


if __name__ == "__main__":
    main()
