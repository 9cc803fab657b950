"""States that are no files, as they were before the first change: noted on their host, and brought back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from provision.contracts.driver import Action
from provision.contracts.remedy import Fix
from provision.hosts.operations.basic import HoldPackages, SetSysctl, SetUnit, quote, words
from provision.hosts.operations.placement import saved_name

SYSCTL, SERVICE, MODULE, PACKAGE, HOLD = "sysctl", "service", "module", "package", "hold"
KINDS = (SYSCTL, SERVICE, MODULE, PACKAGE, HOLD)
MISSING = "missing"
"""The unit, module or package was not there."""
HELD, NOT_HELD = "held", "not held"


def note_name(kind: str, name: str) -> str:
    """Return the name below `saved/` of what is noted about one thing."""
    return f"{saved_name(f'{kind} {name}')}.note"


def _file(kind: str, name: str) -> str:
    return f"provision_v=${{PROVISION_BLOBS%/blobs}}/saved/{note_name(kind, name)}"


@dataclass(frozen=True, slots=True)
class Note:
    """Note how something is before its first change; what is noted already stays.

    Args:
        of: what it is, one of `KINDS`.
        name: its name.
        value: how it is: one line.
    """

    of: str
    name: str
    value: str

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        return (
            'if [ -n "${PROVISION_BLOBS:-}" ]; then\n'
            f"{_file(self.of, self.name)}\n"
            'if [ ! -f "$provision_v" ]; then\n'
            'mkdir -p -- "${provision_v%/*}"\n'
            f"printf '%s\\n' {words((self.of, self.name, self.value))} >\"$provision_v.part\"\n"
            'mv -fT -- "$provision_v.part" "$provision_v"\n'
            "fi\nfi"
        )


def notes_of(actions: Iterable[Action]) -> tuple[Note, ...]:
    """Return what some actions note: all of it is noted before the first of them begins.

    A run that dies after a package has brought a unit must not let the next one take that unit for what was
    there before.
    """
    fixes = (action.remedy for action in actions)
    return tuple(op for fix in fixes if isinstance(fix, Fix) for op in fix.ops if isinstance(op, Note))


def unit_verbs(value: str) -> tuple[str, ...]:
    """Return the verbs of systemctl(1) that bring a unit to a noted state (`enabled active`).

    A static, generated or linked unit can be neither enabled nor disabled.
    """
    file, _, active = value.partition(" ")
    enabling = {"enabled": ("unmask", "enable"), "disabled": ("unmask", "disable"), "masked": ("mask",)}
    return ("start" if active == "active" else "stop", *enabling.get(file, ()))


@dataclass(frozen=True, slots=True)
class BringBack:
    """Bring something to its noted state where it is still there; the note goes.

    What was missing before is left as it is: others may have come to need it. Only a unit whose file
    somebody wrote into /etc ends, because that file goes, too.
    """

    of: str
    name: str
    value: str

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        forget = (
            'if [ -n "${PROVISION_BLOBS:-}" ]; then\n'
            f'{_file(self.of, self.name)}\nrm -f -- "$provision_v"\nfi'
        )
        return "\n".join((*self._lines(), forget))

    def _lines(self) -> tuple[str, ...]:
        if self.of == SYSCTL:
            operation = SetSysctl(self.name, self.value)
            return (f"if [ -e {quote(operation.file)} ]; then {operation.shell()}; fi",)
        if self.of == HOLD:
            hold = HoldPackages((self.name,), hold=self.value == HELD).shell()
            return (f"if dpkg-query -W -- {quote(self.name)} >/dev/null 2>&1; then\n{hold}\nfi",)
        if self.of != SERVICE:
            return ()
        if self.value == MISSING:
            return (
                f"case $(systemctl show -p FragmentPath -- {quote(self.name)}) in",
                f"FragmentPath=/etc/systemd/system/*) systemctl disable --now -- {quote(self.name)} ;;\nesac",
            )
        verbs = [SetUnit(self.name, verb).shell() for verb in unit_verbs(self.value)]
        return (f"if systemctl cat -- {quote(self.name)} >/dev/null 2>&1; then", *verbs, "fi")
