"""`verify --break`: one thing of a lab is damaged, and its check must turn red."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from provision.api.defaults import ignore
from provision.api.domains import check_folders, domains
from provision.api.run_identity import new_run_id
from provision.api.site import Site
from provision.contracts.check import Damage
from provision.contracts.driver import Action, Verdict
from provision.contracts.remedy import ApiCall, Fix, Request
from provision.engine.environment import Options
from provision.inventory import Inventory
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, UsageError
from provision.values.events import Emitter
from provision.values.suggestions import known_names
from provision.verify.claims import check_names
from provision.verify.model import CheckOutcome, VerifyReport

Make = Callable[[Inventory, str], Damage | None]


@dataclass(frozen=True, slots=True)
class Broken:
    """What was damaged, and what verification then found.

    Args:
        check: name of the check.
        subject: of whom something was damaged.
        what: the command or request that did it.
        report: the verification afterwards.
    """

    check: str
    subject: str
    what: str
    report: VerifyReport

    @property
    def is_red(self) -> bool:
        """Whether the check failed for this subject."""
        return any(
            (result.check, result.subject) == (self.check, self.subject)
            and result.outcome is CheckOutcome.FAILED
            for result in self.report.checks
        )


def break_check(site: Site, check: str, emit: Emitter = ignore, cancel: Cancel | None = None) -> Broken:
    """Damage what a check looks at, once it is proven, and verify again.

    Args:
        site: a lab, or models.
        check: name of the check.
        emit: receives all events of both verifications.
        cancel: ends it early.

    Raises:
        UsageError: this is no lab, there is no such check, or nothing damages what it looks at.
        Permanent: the check is not proven before, or the damage fails.
    """
    cancel = cancel or Cancel()
    make = _maker(site, check)
    before = site.verify(Options(), emit, cancel)
    proven = [
        result.subject
        for result in before.checks
        if result.check == check and result.outcome is CheckOutcome.PROVEN
    ]
    made = ((subject, make(site.inventory, subject)) for subject in proven)
    subject, damage = next(((subject, damage) for subject, damage in made if damage is not None), ("", None))
    if damage is None:
        summary = f"{check} is not proven of anything that can be damaged"
        remedy = "apply the inventory first, and see `provision verify`"
        raise Permanent(Diagnostic("CHECK_NOT_PROVEN", summary, remedy=remedy))
    _do(site, check, damage, cancel)
    for name in site.session.systems:
        site.session.reset(name, cancel, close=False)
    what = damage.script or f"{damage.method} {damage.path}"
    return Broken(check, subject, what, site.verify(Options(), emit, cancel))


def breakable() -> Mapping[str, Make]:
    """Return what damages the things that checks look at, by name of the check."""
    makers: dict[str, Make] = {}
    for module in _modules():
        makers |= import_module(module).DAMAGES
    return makers


def _modules() -> Iterator[str]:
    packages = (package for domain in domains() for package in domain.checks)
    return (module for package in packages if find_spec(module := f"{package}.damages") is not None)


def _maker(site: Site, check: str) -> Make:
    if site.inventory.lab is None and site.open_driver is None:
        summary = "`--break` damages machines, and this inventory declares no lab"
        remedy = "use it with an inventory that has a lab: section"
        raise UsageError(Diagnostic("BREAK_OUTSIDE_LAB", summary, site.inventory.name, remedy=remedy))
    makers = breakable()
    if check in makers:
        return makers[check]
    if check in check_names(check_folders()):
        summary = f"nothing damages what {check} looks at"
    else:
        summary = f"there is no check {check!r}"
    remedy = known_names(check, sorted(makers))
    raise UsageError(Diagnostic("CHECK_NOT_BREAKABLE", summary, remedy=remedy))


def _do(site: Site, check: str, damage: Damage, cancel: Cancel) -> None:
    """Do the damage.

    Raises:
        Permanent: it did not work.
    """
    remedy = (
        Fix(damage.script) if damage.script else ApiCall((Request(damage.method, damage.path, damage.data),))
    )
    action = Action(None, f"break {check}", remedy)
    system = site.session.systems[damage.system]
    with system.lock.held(cancel):
        (result,) = site.session.call(
            damage.system,
            lambda driver: driver.act(new_run_id(), [action], (), lambda _line: None, cancel),
            cancel,
        )
    if result.verdict is not Verdict.DONE:
        reason = result.diagnostic or Diagnostic("BREAK_FAILED", f"{check}: {result.verdict}", damage.system)
        raise Permanent(reason)
