"""What a role is, and what it may look at."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from provision.contracts.generated import Generated, GeneratedValue
from provision.contracts.query import Unknown
from provision.contracts.resource import Resource, meaning
from provision.contracts.snapshot import Snapshot
from provision.contracts.system import InventoryValue
from provision.inventory import Inventory, Subject
from provision.values.diagnostics import Diagnostic, Source
from provision.values.errors import Permanent, ProvisionError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Context:
    """All that a role may look at.

    Args:
        inventory: what the user declared.
        subject: whom the step is about.
        snapshots: answers by system; holds at least what `questions` asked for.
        generated: values made by the engine.
        preview: whether answers of systems to come are left out, to show what needs none of them.
    """

    inventory: Inventory
    subject: Subject
    snapshots: Mapping[str, Snapshot]
    generated: Generated
    preview: bool = False

    def seen(self, system: str) -> Snapshot:
        """Return the answers of a system; an empty snapshot when it was not asked."""
        return self.snapshots.get(system, Snapshot(system))

    def answer(self, system: str, query: Any) -> Any:
        """Return an answer, which may be Unknown, or None for nothing there.

        Raises:
            UnaskedError: `questions` does not name the query.
        """
        snapshot = self.snapshots.get(system)
        return Unknown(f"{system} was not asked") if snapshot is None else snapshot[query]

    def known(self, read: Callable[[], T], otherwise: T) -> T:
        """Return what `read` returns; in a preview, where an answer is missing, `otherwise`.

        Raises:
            NotYet: an answer is missing, and this is no preview.
        """
        try:
            return read()
        except NotYet:
            if self.preview:
                return otherwise
            raise

    def require(
        self,
        system: str,
        query: Any,
        what: str = "",
        source: Source | None = None,
        *,
        may_be_absent: bool = False,
    ) -> Any:
        """Return an answer without which the role cannot say what it wants.

        Args:
            system: whose answer.
            query: one of `questions`.
            what: what is not possible without it, as the user reads it (`cannot read the cards of node-1`).
            source: inventory line.
            may_be_absent: whether nothing there (None) is an answer, too.

        Raises:
            NotYet: it is Unknown, or nothing is there.
            UnaskedError: `questions` does not name the query.
        """
        answer = self.answer(system, query)
        if not isinstance(answer, Unknown) and (answer is not None or may_be_absent):
            return answer
        reason = answer.reason if isinstance(answer, Unknown) else "there is nothing yet"
        code = "UNKNOWN" if isinstance(answer, Unknown) else "ANSWER_MISSING"
        summary = f"{what or f'{system} has no answer to {meaning(query)}'}: {reason}"
        raise NotYet(system, query, Diagnostic(code, summary, self.subject.name, source=source))


class NotYet(Permanent):
    """A role cannot say what it wants before a system has an answer.

    Args:
        system: which system.
        query: to which query.
        diagnostic: the problem, should the answer never come.
        silence: why the system gives no answers at all, if that is why; the step is unreached by it.
    """

    def __init__(
        self, system: str, query: Any, diagnostic: Diagnostic, silence: ProvisionError | None = None
    ) -> None:
        super().__init__(diagnostic)
        self.system = system
        self.query = query
        self.silence = silence


Count = Literal["all", "any"] | int
"""How many of several steps."""


@dataclass(frozen=True, slots=True)
class Need:
    """Steps of another role that must have ended before a step begins, and how many of them well.

    A number larger than the steps of this run (`--target`) means all of them; no steps are no need.

    Args:
        role: name of the other role.
        count: how many must have ended well; with fewer, the step is blocked.
        scope: `own` is the step's subject, `near` that and its parents, `site` is every subject.
    """

    role: str
    count: Count = "all"
    scope: Literal["own", "near", "site"] = "near"

    def least(self, available: int) -> int:
        """Return how many of the available steps must have ended well."""
        wished = {"all": available, "any": 1}.get(str(self.count))
        return min(available, int(self.count) if wished is None else wished)


Questions = Mapping[str, tuple[Any, ...]]
"""Queries by system."""


def _none_optional(_inventory: Inventory, _subject: Subject) -> Collection[str]:
    return ()


def _no_inputs(_inventory: Inventory, _subject: Subject) -> Sequence[InventoryValue]:
    return ()


@dataclass(frozen=True, slots=True)
class Role:
    """What knows one part of a domain: pure functions from inventory and answers to desired states.

    Args:
        name: as playbooks call it.
        declared: whether a subject declares anything for this role; without it there is no step.
        questions: the answers that `resources` and `retired` read.
        resources: desired states in the order in which they are brought about, absent ones among them.
        optional: systems that the role asks and can do without: where one is silent, `answer` says Unknown
            and `require` raises NotYet; the step does not wait for it otherwise.
        generates: the generated values that the role reads.
        needs: other roles whose steps must have ended well; a bare name is `Need(name)`.
        needs_of: what a subject needs, where not all need the same; `needs` names all that any may need.
        needs_new_boot: its answers are true only after the pending reboots of its systems.
        unreached_stops: where the playbook says `stop_on_failure`, an unreached subject counts as failed.
        retired: what destroy removes, as absent.
        retires: whether destroy has anything to remove of a subject; what goes as a whole is not asked.
        unchosen: alternatives that the role did not choose, as absent: removed before what it chose comes.
        unchosen_on: subjects that may have them, whether or not the role is still declared there, and what
            to ask them.
        unchosen_optional: systems among these that the removal can do without, as in `optional`.
        orphan_owners: subjects that may hold what left the inventory, and what to ask them for it.
        orphans: what left the inventory, as absent; `context.subject` is an owner. It is called again once
            what it named was asked, and raises where a system that answers does not list what it has.
        local_inputs: values of the inventory whose secrets and files on the controller must be readable
            before the step: what it writes to hosts, beside what opens its systems.
    """

    name: str
    declared: Callable[[Inventory, Subject], bool]
    questions: Callable[[Inventory, Subject], Questions]
    resources: Callable[[Context], Sequence[Resource]]
    optional: Callable[[Inventory, Subject], Collection[str]] = _none_optional
    generates: Callable[[Inventory], Sequence[GeneratedValue]] | None = None
    needs: tuple[str | Need, ...] = ()
    needs_of: Callable[[Inventory, Subject], tuple[str | Need, ...]] | None = None
    needs_new_boot: bool = False
    unreached_stops: bool = False
    retired: Callable[[Context], Sequence[Resource]] | None = None
    retires: Callable[[Inventory, Subject], bool] = lambda _inventory, _subject: True
    unchosen: Callable[[Context], Sequence[Resource]] | None = None
    unchosen_on: Callable[[Inventory], Mapping[Subject, Questions]] | None = None
    unchosen_optional: Callable[[Inventory, Subject], Collection[str]] = _none_optional
    orphan_owners: Callable[[Inventory], Mapping[Subject, Questions]] | None = None
    orphans: Callable[[Context], Sequence[Resource]] | None = None
    local_inputs: Callable[[Inventory, Subject], Sequence[InventoryValue]] = _no_inputs


@dataclass(frozen=True, slots=True)
class Parent:
    """A subject whose steps come first.

    Args:
        name: the subject.
        needed: whether its failure blocks; otherwise only the order counts.
        any_of: a word that several parents share of which one that ended well is enough, or empty.
    """

    name: str
    needed: bool = True
    any_of: str = ""
