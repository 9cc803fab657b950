"""A plan as text: problems, then risk, then what changes, then what is not known yet, then totals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from provision.contracts.change import Change, Op
from provision.contracts.effect import Effect, EffectClass
from provision.engine.model import ConsentNeed, Plan, PlannedChange, StepPlan
from provision.report.diff import field_line, is_text, text_diff
from provision.report.problems import print_diagnostics, wrap
from provision.report.style import Glyphs, count, glyphs, printable, say
from provision.values.consent import Consent

if TYPE_CHECKING:
    from rich.console import Console

OP_STYLES = {
    Op.CREATE: "green",
    Op.UPDATE: "yellow",
    Op.REPLACE: "bold magenta",
    Op.DELETE: "red",
    Op.ATTENTION: "bold yellow",
}
_DIFF_STYLES = {"+": "green", "-": "red", "@": "dim", " ": "dim"}


def print_plan(console: Console, plan: Plan, *, full: bool = False) -> None:
    """Print a plan.

    Args:
        console: where to.
        plan: what the engine decided.
        full: whole contents and values instead of changed lines.
    """
    problems = [step.problem for step in plan.steps if step.problem is not None]
    print_diagnostics(console, (*plan.refusals, *problems, *plan.warnings), full=full)
    view = _View(console.width, glyphs(console.encoding), full)
    for line in view.lines(plan):
        say(console, line)


def op_of(change: PlannedChange) -> Op:
    """Return the one sign that stands for all differences of a resource."""
    ops = {field.op for field in change.changes}
    if change.by_hand is not None:
        return Op.ATTENTION
    for strongest in (Op.REPLACE, Op.ATTENTION):
        if strongest in ops:
            return strongest
    return ops.pop() if len(ops) == 1 else Op.UPDATE


@dataclass(frozen=True, slots=True)
class _View:
    width: int
    signs: Glyphs
    full: bool

    def lines(self, plan: Plan) -> list[Text]:
        lines: list[Text] = []
        for part in (
            self.risks(plan.risks),
            self.changes(plan.steps),
            self.late(plan.steps),
            self.unreached(plan.steps),
            self.orphans(plan.orphans),
        ):
            if part:
                lines += [*part, Text()]
        return [*lines, *self.totals(plan)]

    # ------------------------------------------------------------ risk

    def risks(self, needs: Sequence[ConsentNeed]) -> list[Text]:
        grouped: dict[tuple[EffectClass, Consent], list[str]] = {}
        for need in needs:
            if need.consent is need.effect.cls.default_consent is Consent.ALLOW:
                continue
            names = grouped.setdefault((need.effect.cls, need.consent), [])
            name = affected_subject(need)
            if name not in names:
                names.append(name)
        if not grouped:
            return []
        rows = sorted(grouped.items(), key=lambda item: -item[0][0].rank)
        widest = max(len(cls.name) for cls, _ in grouped)
        lines = [Text("Risks", style="bold")]
        for (cls, consent), names in rows:
            style = "red" if consent is not Consent.ALLOW else "yellow"
            head = Text.assemble("  ", (f"{cls.name:<{widest}}", f"bold {style}"), f"  {', '.join(names)}")
            lines.append(head)
            meaning = wrap([f"{cls.meaning}; {_answer(cls, consent)}"], self.width - widest - 4)
            lines += [Text(" " * (widest + 4) + line, style="dim") for line in meaning]
        return lines

    # ------------------------------------------------------------ changes

    def changes(self, steps: Sequence[StepPlan]) -> list[Text]:
        by_subject: dict[str, list[StepPlan]] = {}
        for step in steps:
            if step.changes:
                by_subject.setdefault(step.step.id.subject, []).append(step)
        lines: list[Text] = []
        for subject, parts in by_subject.items():
            if lines:
                lines.append(Text())
            lines.append(Text(printable(subject), style="bold"))
            for part in parts:
                lines.append(Text(f"  {printable(part.step.id.role)}", style="cyan"))
                for change in part.changes:
                    lines += self.change(subject, change)
            effects = merged(effect for part in parts for change in part.changes for effect in change.effects)
            if effects:
                body = wrap([", ".join(map(str, effects))], self.width - 8)
                lines.append(Text.assemble(("  then: ", "bold"), body[0]))
                lines += [Text(" " * 8 + line) for line in body[1:]]
        return lines

    def change(self, subject: str, planned: PlannedChange) -> list[Text]:
        op = op_of(planned)
        key = planned.key
        where = key.system.split("/")[0]
        place = "" if where == subject else f" on {printable(where)}"
        head = Text("    ")
        head.append(f"{op:<3}", style=OP_STYLES[op])
        head.append(f" {printable(key.kind)} {printable(key.name)}{place}")
        if planned.pending:
            effects = ", ".join(map(str, planned.effects))
            head.append(f"  still due from an earlier run: {effects}", style="dim")
        changes = planned.changes
        inline = self.inline(planned, self.width - len(head.plain) - 2)
        if inline:
            head.append(f"  {inline}")
            lines = [head]
        else:
            lines = [head]
            for change in changes:
                lines += self.field(op, change)
        if planned.by_hand is not None:
            lines.append(Text("          do this yourself:", style="bold"))
            lines += [Text(f"          {printable(line)}") for line in planned.by_hand.lines]
        return lines

    def inline(self, planned: PlannedChange, room: int) -> str:
        """Return the one difference of a resource if it fits behind its name."""
        if len(planned.changes) != 1 or self.full:
            return ""
        only = planned.changes[0]
        if is_text(only.old) or is_text(only.new):
            return ""
        text = field_line(only, 10_000, self.signs)
        return text if len(text) <= room else ""

    def field(self, resource_op: Op, change: Change) -> list[Text]:
        sign = "" if change.op is resource_op else f"{change.op} "
        margin = " " * 10
        if not change.secret and (is_text(change.old) or is_text(change.new)):
            size = _size(change.old, change.new, self.signs)
            lines = [Text.assemble(margin, (sign, OP_STYLES[change.op]), f"{printable(change.path)}: {size}")]
            if change.old is not None or self.full:
                for mark, line in text_diff(change, full=self.full):
                    lines.append(
                        Text(f"{margin}  {mark + ' ' if mark != '@' else ''}{line}", style=_DIFF_STYLES[mark])
                    )
            return lines
        text = field_line(change, self.width - len(margin) - len(sign), self.signs, full=self.full)
        return [Text.assemble(margin, (sign, OP_STYLES[change.op]), text)]

    # ------------------------------------------------------------ not known, not reached, not declared

    def late(self, steps: Sequence[StepPlan]) -> list[Text]:
        grouped: dict[tuple[str, str], list[str]] = {}
        for step in steps:
            if step.late:
                grouped.setdefault((step.late, step.step.id.subject), []).append(step.step.id.role)
        if not grouped:
            return []
        lines = [Text("Not known yet (planned when the run gets there)", style="bold")]
        reasons: dict[str, list[str]] = {}
        for (reason, subject), roles in grouped.items():
            reasons.setdefault(reason, []).append(f"{subject}: {', '.join(roles)}")
        for reason, parts in reasons.items():
            lines.append(Text(f"  {printable(reason)}", style="yellow"))
            lines += [
                Text(f"    {line}") for part in parts for line in wrap([printable(part)], self.width - 4)
            ]
        return lines

    def unreached(self, steps: Sequence[StepPlan]) -> list[Text]:
        grouped: dict[tuple[str, bool], dict[str, int]] = {}
        for step in steps:
            if step.unreached:
                subjects = grouped.setdefault((step.unreached, step.excused), {})
                subjects[step.step.id.subject] = subjects.get(step.step.id.subject, 0) + 1
        if not grouped:
            return []
        lines = [Text("Not reached", style="bold")]
        for (reason, excused), subjects in grouped.items():
            names = ", ".join(
                f"{printable(name)} ({count(number, 'step')})" for name, number in subjects.items()
            )
            note = " (no fault)" if excused else ""
            lines.append(
                Text.assemble("  ", (names, "" if excused else "red"), f": {printable(reason)}{note}")
            )
        return lines

    def orphans(self, orphans: Sequence[str]) -> list[Text]:
        if not orphans:
            return []
        head = Text("No longer in the inventory (--prune removes them)", style="bold")
        return [head, *(Text(f"  {printable(orphan)}") for orphan in orphans)]

    # ------------------------------------------------------------ totals

    def totals(self, plan: Plan) -> list[Text]:
        changed = [change for step in plan.steps for change in step.changes]
        late = sum(1 for step in plan.steps if step.late)
        unreached = sum(1 for step in plan.steps if step.unreached)
        same = sum(step.unchanged for step in plan.steps)
        if plan.refusals:
            text = f"Refused: {count(len(plan.refusals), 'problem')}, see above. Nothing was changed."
            return [Text(text, style="bold red")]
        if plan.empty:
            verb = "is" if same == 1 else "are"
            return [Text(f"No changes. {count(same, 'resource')} {verb} as declared.", style="bold green")]
        signs = (Op.CREATE, Op.UPDATE, Op.REPLACE, Op.DELETE, Op.ATTENTION)
        ops = [op_of(change) for change in changed]
        parts = ", ".join(f"{ops.count(sign)} {sign}" for sign in signs if sign in ops)
        least = "at least " if late or unreached else ""
        text = f"Plan: {least}{count(len(changed), 'change')}"
        if parts:
            text += f" ({parts})"
        reboots = sum(1 for need in plan.risks if need.effect.cls.reboots)
        if reboots:
            text += f", {least}{count(reboots, 'reboot')}"
        text += f"; {same} unchanged"
        if late:
            text += f"; {count(late, 'step')} not known yet"
        if unreached:
            text += f"; {count(unreached, 'step')} not reached"
        return [Text(line, style="bold") for line in wrap([text + "."], self.width)]


def affected_subject(need: ConsentNeed) -> str:
    """Return what an effect affects: its target, or the subject of the system."""
    system = need.system.split("/")[0]
    target = need.effect.target
    if not target or target == system:
        return printable(system)
    return printable(target if target.startswith(system) else f"{target} ({system})")


def merged(effects: Iterable[Effect]) -> list[Effect]:
    """Return effects once each, in the order in which they run."""
    return sorted(set(effects), key=lambda effect: (effect.cls.rank, effect.target))


def _answer(cls: EffectClass, consent: Consent) -> str:
    if consent is Consent.ALLOW:
        return "allowed"
    if consent is Consent.NEVER:
        return "waits, because the policy says never"
    return f"waits until you give --allow {cls}"


def _size(old: object, new: object, signs: Glyphs) -> str:
    def lines(value: object) -> str:
        return "(none)" if value is None else count(len(str(value).splitlines()), "line")

    return lines(new) if old is None else f"{lines(old)} {signs.arrow} {lines(new)}"
