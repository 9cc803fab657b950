"""One run as one HTML page: no script, nothing from elsewhere, everything escaped."""

from __future__ import annotations

from html import escape

from provision.contracts.change import Change, Op
from provision.report.checks import OUTCOMES, PROVEN, proven_of, style_of, totals
from provision.report.diff import is_text, text_diff, value_text
from provision.report.history import (
    ChangeRecord,
    CheckRecord,
    EffectRecord,
    RunRecord,
    StepRecord,
    moment,
    time_of_day,
)
from provision.report.problems import remedy_parts
from provision.report.style import count, duration, printable
from provision.values.diagnostics import Diagnostic, Severity
from provision.values.outcomes import Outcome

STYLE = """
:root { color-scheme: light dark; --line: #8884; --dim: #888; --good: #2a8a3e; --bad: #c8322f;
  --warn: #b07800; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0 } h2 { font-size: 1.15rem; margin-top: 2rem }
code, pre, .key { font-family: ui-monospace, monospace; font-size: .9em }
pre { overflow-x: auto; border-left: 3px solid var(--line); padding: .3rem .8rem; margin: .3rem 0 }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top }
.num { text-align: right; white-space: nowrap } .dim { color: var(--dim) }
.tiles { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0; padding: 0; list-style: none }
.tiles li { border: 1px solid var(--line); border-radius: .4rem; padding: .4rem .9rem }
.tiles b { font-size: 1.3rem; display: block }
.failed, .unreached, .blocked, .del { color: var(--bad) } .done, .unchanged, .add { color: var(--good) }
.changed, .waiting, .late, .unknown, .not-run, .trivial, .indeterminate, .not-begun { color: var(--warn) }
.proven { color: var(--good) }
.times { width: 30% }
code.command { display: block; margin: .3rem 1rem }
.bar { background: currentColor; opacity: .75; height: .5rem; border-radius: .25rem; min-width: 3px;
  margin-top: .5rem }
details { margin: .3rem 0 } summary { cursor: pointer }
.problem { border: 1px solid var(--line); border-left: 4px solid var(--bad); border-radius: .3rem;
  padding: .6rem 1rem; margin: .6rem 0 }
.problem.warning { border-left-color: var(--warn) }
""".strip()


def html_report(run: RunRecord) -> str:
    """Return the page of a run."""
    title = f"{run.verb} {run.inventory}: {run.result}"
    spent = "" if run.seconds is None else f", {duration(run.seconds)}"
    who = f", by {run.who}" if run.who else ""
    facts = f"started {_text(moment(run.started) + spent + who)}, run <code>{_text(run.id)}</code>"
    parts = [
        f"<h1>{_text(title)}</h1>",
        f'<p class="dim">{facts}</p>',
        _tiles(run),
        _problems(run.problems),
        _checks(run.checks),
        _steps(run),
        _changes(run),
        _effects(run),
    ]
    body = "\n".join(part for part in parts if part)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{_text(title)}</title>
<style>
{STYLE}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def _text(value: object) -> str:
    return escape(printable(value))


_VERDICTS = ("done", "failed", "indeterminate", "not-begun")


def _name(value: str) -> str:
    """Return a value as a CSS class: it is one of ours, or nothing."""
    known = {*map(str, Outcome), *_VERDICTS, *map(str, Severity), *OUTCOMES}
    return value if value in known else ""


def _tiles(run: RunRecord) -> str:
    tiles = []
    for outcome in Outcome:
        number = sum(step.outcome == outcome for step in run.steps)
        if number:
            steps = "step" if number == 1 else "steps"
            tiles.append(f'<li><b class="{outcome}">{number}</b>{steps} {outcome}</li>')
    if run.verb != "verify":
        changed = sum(change.verdict == "done" for change in run.changes)
        tiles.append(f"<li><b>{changed}</b>{'resource' if changed == 1 else 'resources'} changed</li>")
    for ending in OUTCOMES if run.checks else ():
        number = sum(check.outcome == ending for check in run.checks)
        if number or ending == PROVEN:  # the sum below names all endings
            tiles.append(f'<li><b class="{ending}">{number}</b>of {len(run.checks)} checks {ending}</li>')
    return f'<ul class="tiles">{"".join(tiles)}</ul>'


def _problems(problems: tuple[Diagnostic, ...]) -> str:
    if not problems:
        return ""
    boxes = []
    for problem in problems:
        source = problem.source
        place = f"<p class='dim'>{_text(source.file)}:{source.line}</p>" if source else ""
        evidence = f"<pre>{_lines(chr(10).join(problem.evidence))}</pre>" if problem.evidence else ""
        untouched = f"<p><b>left alone:</b> {_text(problem.untouched)}</p>" if problem.untouched else ""
        remedy = f"<p><b>next:</b> {_remedy(problem.remedy)}</p>" if problem.remedy else ""
        boxes.append(
            f'<div class="problem {_name(problem.severity)}"><b>{_text(problem.code)}</b>'
            f" {_text(problem.subject)}<p>{_text(problem.summary)}</p>"
            f"{place}{evidence}{untouched}{remedy}</div>"
        )
    return "<h2>Problems</h2>\n" + "\n".join(boxes)


def _remedy(text: str) -> str:
    """Return a remedy with its commands on lines of their own."""
    parts = remedy_parts(text)
    return " ".join(
        f"<code class='command'>{_text(part)}</code>" if is_command else _text(part)
        for part, is_command in parts
    )


def _checks(checks: tuple[CheckRecord, ...]) -> str:
    """Return all checks: those that are not proven with their evidence, the others folded."""
    if not checks:
        return ""
    open_rows = "".join(_check(check) for check in checks if check.outcome != PROVEN)
    proven = [check for check in checks if check.outcome == PROVEN]
    table = f"<table>{_CHECKS_HEAD}{open_rows}</table>" if open_rows else ""
    rest = "".join(map(_check, proven))
    folded = f"<details><summary>{proven_of(checks)}</summary><table>{_CHECKS_HEAD}{rest}</table></details>"
    is_green = style_of(checks) == "green"
    result = f'<p class="{"proven" if is_green else "unknown"}">{totals(checks)}</p>'
    return f"<h2>Checks</h2>\n{result}{table}{folded if proven else ''}"


def _check(check: CheckRecord) -> str:
    evidence = f"<pre>{_lines(check.message)}</pre>" if check.message else ""
    outcome = f"{check.outcome} (no fault)" if check.excused else check.outcome
    return (
        f"<tr><td>{_text(time_of_day(check.started))}</td><td>{_text(check.subject)}</td>"
        f'<td class="{_name(check.outcome)}">{_text(outcome)}</td><td>{_text(check.name)}{evidence}</td>'
        f'<td class="num">{_text(duration(check.seconds))}</td></tr>'
    )


_CHECKS_HEAD = (
    "<tr><th>started</th><th>subject</th><th>outcome</th><th>check</th><th class='num'>time</th></tr>"
)


def _steps(run: RunRecord) -> str:
    if not run.steps:
        return ""
    first = min((step.started for step in run.steps if step.started is not None), default=run.started)
    span = max((_end(step, first) for step in run.steps), default=0.0) or 1.0
    rows = "\n".join(_step(step, first, span) for step in run.steps)
    head = (
        "<tr><th>started</th><th>subject</th><th>step</th><th>outcome</th><th></th>"
        "<th class='num'>time</th></tr>"
    )
    return f"<h2>Steps</h2>\n<table>{head}\n{rows}\n</table>"


def _end(step: StepRecord, first: float) -> float:
    """Return when a step ended, in seconds after the first one began."""
    return (step.started or first) - first + step.seconds


def _step(step: StepRecord, first: float, span: float) -> str:
    """Return the row of a step, with a bar from its beginning to its end in the time of the run."""
    reason = f'<br><span class="dim">{_text(step.reason)}</span>' if step.reason else ""
    left = 100 * max(0.0, (step.started or first) - first) / span
    width = min(100 * step.seconds / span, 100 - left)
    return (
        f"<tr><td>{_text(time_of_day(step.started))}</td>"
        f"<td>{_text(step.subject)}</td><td>{_text(step.role)}</td>"
        f'<td class="{_name(step.outcome)}">{_text(step.outcome)}{reason}</td>'
        f'<td class="times"><div class="bar {_name(step.outcome)}" '
        f'style="margin-left: {left:.1f}%; width: {width:.1f}%"></div>'
        f"</td>"
        f'<td class="num">{_text(duration(step.seconds))}</td></tr>'
    )


def _changes(run: RunRecord) -> str:
    if not run.changes:
        return ""
    parts = [f"<h2>{count(len(run.changes), 'change')}</h2>"]
    before = ""
    for change in run.changes:
        step = f"{change.subject}: {change.role}"
        if step != before:
            parts.append(f"<h3>{_text(step)}</h3>")
            before = step
        parts.append(_change(change))
    return "\n".join(parts)


def _change(change: ChangeRecord) -> str:
    fields = "".join(_field(field) for field in change.fields)
    output = f"<p class='dim'>output</p><pre>{_lines(change.output)}</pre>" if change.output else ""
    opened = " open" if change.verdict != "done" else ""
    return (
        f'<details{opened}><summary><span class="key">{_text(change.key)}</span> '
        f'<span class="{_name(change.verdict)}">{_text(change.verdict)}</span> '
        f'<span class="dim">{_text(duration(change.seconds))}</span></summary>{fields}{output}</details>'
    )


def _field(change: Change) -> str:
    name = f"{_text(change.op)} {_text(change.path)}"
    if is_text(change.old) or is_text(change.new):
        classes = {"+": "add", "-": "del"}
        lines = "\n".join(
            f'<span class="{classes.get(sign, "dim")}">{escape(f"{sign} {line}")}</span>'
            for sign, line in text_diff(change, full=True)
        )
        return f"<p class='key'>{name}</p><pre>{lines}</pre>"
    if change.op is Op.CREATE and change.old is None:
        return f"<p class='key'>{name}: {_text(value_text(change.new))}</p>"
    return f"<p class='key'>{name}: {_text(value_text(change.old))} → {_text(value_text(change.new))}</p>"


def _effects(run: RunRecord) -> str:
    if not run.effects:
        return ""
    rows = "\n".join(
        f"<tr><td>{_text(effect.system)}</td><td>{_text(effect.effect)}</td>"
        f'<td class="{_name(effect.verdict)}">{_text(effect.verdict)}</td>'
        f'<td class="num">{_text(duration(effect.seconds))}</td></tr>' + _effect_output(effect)
        for effect in run.effects
    )
    return f"<h2>Effects</h2>\n<table>{rows}</table>"


def _effect_output(effect: EffectRecord) -> str:
    if not effect.output:
        return ""
    opened = " open" if effect.verdict != "done" else ""
    text = f"<details{opened}><summary>output</summary><pre>{_lines(effect.output)}</pre></details>"
    return f"<tr><td colspan='4'>{text}</td></tr>"


def _lines(text: str) -> str:
    return "\n".join(escape(printable(line)) for line in text.splitlines())
