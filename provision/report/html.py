"""One run as one HTML page: no script, nothing from elsewhere, everything escaped."""

from __future__ import annotations

from html import escape

from provision.contracts.change import Change, Op
from provision.report.diff import is_text, text_diff, value_text
from provision.report.history import ChangeRecord, EffectRecord, RunRecord, StepRecord, moment
from provision.report.style import count, duration, printable
from provision.values.diagnostics import Diagnostic
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
.changed, .waiting, .late, .unknown, .not-begun { color: var(--warn) }
.bar { background: var(--line); height: .5rem; border-radius: .25rem; min-width: 2px }
details { margin: .3rem 0 } summary { cursor: pointer }
.problem { border: 1px solid var(--line); border-left: 4px solid var(--bad); border-radius: .3rem;
  padding: .6rem 1rem; margin: .6rem 0 }
.problem.warning { border-left-color: var(--warn) }
""".strip()


def html_report(run: RunRecord) -> str:
    """Return the page of a run."""
    title = f"{run.verb} {run.inventory}: {run.ending}"
    spent = "" if run.seconds is None else f", {duration(run.seconds)}"
    who = f", by {run.who}" if run.who else ""
    facts = f"{_text(moment(run.started) + spent + who)}, run <code>{_text(run.id)}</code>"
    parts = [
        f"<h1>{_text(title)}</h1>",
        f'<p class="dim">{facts}</p>',
        _tiles(run),
        _problems(run.problems),
        _steps(run),
        _changes(run),
        _effects(run),
    ]
    body = "\n".join(each for each in parts if each)
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


def _name(value: str) -> str:
    """Return a value as a CSS class: it is one of ours, or nothing."""
    known = {*map(str, Outcome), "done", "indeterminate", "not-begun", "error", "warning", "note"}
    return value if value in known else ""


def _tiles(run: RunRecord) -> str:
    tiles = []
    for outcome in Outcome:
        number = sum(each.outcome == outcome for each in run.steps)
        if number:
            tiles.append(f'<li><b class="{outcome}">{number}</b>{outcome}</li>')
    changed = sum(each.verdict == "done" for each in run.changes)
    tiles.append(f"<li><b>{changed}</b>{'resource' if changed == 1 else 'resources'} changed</li>")
    return f'<ul class="tiles">{"".join(tiles)}</ul>'


def _problems(problems: tuple[Diagnostic, ...]) -> str:
    if not problems:
        return ""
    boxes = []
    for each in problems:
        where = f"<p class='dim'>{_text(each.source.file)}:{each.source.line}</p>" if each.source else ""
        evidence = f"<pre>{_lines(chr(10).join(each.evidence))}</pre>" if each.evidence else ""
        rest = "".join(
            f"<p><b>{label}:</b> {_text(value)}</p>"
            for label, value in (("left alone", each.untouched), ("next", each.remedy))
            if value
        )
        boxes.append(
            f'<div class="problem {_name(each.severity)}"><b>{_text(each.code)}</b> {_text(each.subject)}'
            f"<p>{_text(each.summary)}</p>{where}{evidence}{rest}</div>"
        )
    return "<h2>Problems</h2>\n" + "\n".join(boxes)


def _steps(run: RunRecord) -> str:
    if not run.steps:
        return ""
    longest = max(each.seconds for each in run.steps) or 1.0
    rows = "\n".join(_step(each, longest) for each in run.steps)
    head = "<tr><th>subject</th><th>step</th><th>outcome</th><th></th><th class='num'>time</th></tr>"
    return f"<h2>Steps</h2>\n<table>{head}\n{rows}\n</table>"


def _step(step: StepRecord, longest: float) -> str:
    reason = f'<br><span class="dim">{_text(step.reason)}</span>' if step.reason else ""
    width = f"{100 * step.seconds / longest:.1f}%"
    return (
        f"<tr><td>{_text(step.subject)}</td><td>{_text(step.role)}</td>"
        f'<td class="{_name(step.outcome)}">{_text(step.outcome)}{reason}</td>'
        f'<td style="width: 30%"><div class="bar" style="width: {width}"></div></td>'
        f'<td class="num">{_text(duration(step.seconds))}</td></tr>'
    )


def _changes(run: RunRecord) -> str:
    if not run.changes:
        return ""
    parts = [f"<h2>{count(len(run.changes), 'change')}</h2>"]
    before = ""
    for each in run.changes:
        step = f"{each.subject}: {each.role}"
        if step != before:
            parts.append(f"<h3>{_text(step)}</h3>")
            before = step
        parts.append(_change(each))
    return "\n".join(parts)


def _change(change: ChangeRecord) -> str:
    fields = "".join(_field(each) for each in change.fields)
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
        f"<tr><td>{_text(each.system)}</td><td>{_text(each.effect)}</td>"
        f'<td class="{_name(each.verdict)}">{_text(each.verdict)}</td>'
        f'<td class="num">{_text(duration(each.seconds))}</td></tr>' + _effect_output(each)
        for each in run.effects
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
