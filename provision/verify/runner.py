"""Run the checks in this process and return their results."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from provision.inventory import Inventory, select
from provision.values.cancel import Interrupted
from provision.verify.backend import Answers
from provision.verify.model import CheckOutcome, CheckResult, VerifyReport
from provision.verify.plugin import Site, Trials, VerifyPlugin
from provision.verify.rehearsal import NoRequests, rehearse

# Hermetic and safe beside other threads: no capture of file descriptors, no user plugins or ini files.
OPTIONS = (
    "--capture=no",
    "--disable-plugin-autoload",
    "--import-mode=importlib",
    "-pno:cacheprovider",
    "-pno:faulthandler",
    "-pno:unraisableexception",
    "-pno:threadexception",
    "-pno:warnings",
    "-pno:logging",
)


CHECKED = "Something that is declared is proven"
"""The claim of a subject without any check."""
LEFT_OUT = "left out by the targets"


def subjects(inventory: Inventory, targets: Collection[str] = ()) -> dict[str, tuple[str, ...]]:
    """Return the names that parametrise checks, by the argument that asks for them; all without targets.

    Of what is not managed (`manage: false`) nothing is claimed: no role would bring it about.
    """
    chosen = {
        "hypervisor": "hypervisors",
        "vm": "nodes.virtual",
        "gpu_vm": "nodes.gpu",
        "node": "nodes",
        "cluster": "cluster",
    }
    names = {
        kind: tuple(each.name for each in select(inventory, what) if inventory.manages(each.name))
        for kind, what in chosen.items()
    }
    names["machine"] = (*names["hypervisor"], *names["node"])
    gpu_nodes = names["gpu_vm"]
    names["gpu_vm"] = tuple(name for name in names["vm"] if name in gpu_nodes or inventory.nodes[name].pci)
    if targets:
        names = {kind: tuple(each for each in found if each in targets) for kind, found in names.items()}
    return names


def run_checks(
    inventory: Inventory,
    answers: Answers,
    folders: Sequence[Path],
    *,
    excused: frozenset[str] = frozenset(),
    targets: Collection[str] = (),
    on_result: Callable[[CheckResult], None] = lambda _: None,
    trials: Trials | None = None,
    is_whole: bool = True,
) -> VerifyReport:
    """Run every check that the inventory gives a reason for.

    Args:
        inventory: what was declared.
        answers: the session.
        folders: where the checks are.
        excused: subjects that are away without fault (off by hand).
        targets: subjects that the checks are about; empty for all.
        on_result: called with each result as it comes.
        trials: for checks that make something for a time, as pods; None leaves them out.
        is_whole: whether a subject without any check gets a result of its own.

    Raises:
        Interrupted: the run must leave.
    """
    began = time.monotonic()
    errors: list[Exception] = []

    def tell(result: CheckResult) -> None:
        """Keep errors of the listener (a closed pipe) out of pytest, which would show its own insides."""
        try:
            if not errors:
                on_result(result)
        except Exception as error:  # noqa: BLE001 - raised again as soon as pytest has ended
            errors.append(error)

    named = subjects(inventory, targets)
    arguments = [*map(str, folders), f"--rootdir={os.path.commonpath(folders)}", "-c/dev/null", *OPTIONS]

    def rehearsal(prepared: Answers) -> None:
        idle = Trials(NoRequests(), trials.run) if trials is not None else None
        silent = VerifyPlugin(Site(inventory, prepared), named, excused, lambda _: None, idle)
        pytest.main(arguments, plugins=[silent])

    rehearse(answers, [f"{name}/ssh" for name in named["machine"]], rehearsal)
    plugin = VerifyPlugin(Site(inventory, answers), named, excused, tell, trials)
    try:
        code = pytest.main(arguments, plugins=[plugin])
    finally:
        remains = list(trials.end()) if trials is not None else []
    if plugin.interrupted:
        raise Interrupted
    for result in remains:
        tell(result)
    results = [*plugin.results, *remains]
    if plugin.broken or code not in (
        pytest.ExitCode.OK,
        pytest.ExitCode.TESTS_FAILED,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    ):
        text = "; ".join(plugin.broken) or f"pytest ended with {code}"
        broken = CheckResult("checks can be run", inventory.name, CheckOutcome.FAILED, text)
        results.append(broken)
        tell(broken)
    for result in _without_checks(inventory, named, targets, results) if is_whole else ():
        results.append(result)
        tell(result)
    if errors:
        raise errors[0]
    return VerifyReport(tuple(results), time.monotonic() - began)


def _without_checks(
    inventory: Inventory,
    named: Mapping[str, Collection[str]],
    targets: Collection[str],
    results: Sequence[CheckResult],
) -> Iterator[CheckResult]:
    """Yield a result for each managed subject of which no check says anything: none is passed over."""
    answered = {result.subject for result in results}
    chosen = {name for names in named.values() for name in names}
    everybody = dict.fromkeys(name for names in subjects(inventory).values() for name in names)
    for name in everybody:
        if name not in chosen and targets:
            yield CheckResult(CHECKED, name, CheckOutcome.NOT_RUN, LEFT_OUT, excused=True)
        elif name not in answered:
            yield CheckResult(CHECKED, name, CheckOutcome.TRIVIAL, "nothing is declared that a check proves")
