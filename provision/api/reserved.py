"""A person's word that an address is reserved: written to the hypervisor, where every controller finds it."""

from __future__ import annotations

from collections.abc import Collection

from provision.api.run_identity import new_run_id, who
from provision.api.site import Site
from provision.contracts.driver import Action, Verdict
from provision.contracts.remedy import Fix
from provision.dhcp.backends.manual import ManualReservation
from provision.engine.run_lock import run_lock
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, UsageError


def confirm_reserved(site: Site, nodes: Collection[str], cancel: Cancel) -> tuple[tuple[str, bool], ...]:
    """Note that a person has reserved the addresses of some nodes, for the MAC that each has now.

    Args:
        site: whose nodes.
        nodes: their names; all that wait for a person if empty.
        cancel: ends it early.

    Returns:
        The rows (MAC, address, name), and whether each was noted only now.

    Raises:
        UsageError: a node has no reservation that a person makes.
        Permanent: a hypervisor did not take the note.
        ProvisionError: a run goes on (exit 6), or a hypervisor does not answer.
    """
    run = new_run_id()
    with run_lock(site.folder / "lock", run, who()):
        reservations = {
            resource.reservation.name: resource
            for resources in site.resources(cancel).values()
            for resource in resources
            if isinstance(resource, ManualReservation)
        }
        names = {node.managed_hostname or node.name: node.name for node in site.inventory.nodes.values()}
        by_node = {names.get(name, name): resource for name, resource in reservations.items()}
        unknown = [node for node in nodes if node not in by_node]
        if unknown:
            waiting = ", ".join(by_node) or "none"
            raise UsageError(
                Diagnostic(
                    "RESERVATION_NOT_BY_HAND",
                    f"no reservation of {unknown[0]} waits for a person",
                    unknown[0],
                    remedy=f"name nodes whose reservation a person makes now: {waiting}",
                )
            )
        chosen = [resource for node, resource in by_node.items() if not nodes or node in nodes]
        return tuple((str(each.reservation), _note(site, each, run, cancel)) for each in chosen)


def _note(site: Site, reservation: ManualReservation, run: str, cancel: Cancel) -> bool:
    file = reservation.word
    with site.session.systems[file.system].lock.held(cancel):
        snapshot = site.session.ask(file.system, file.queries(), cancel, fresh=True)
        if not file.changes(snapshot):
            return False
        remedy = file.fix(snapshot)
        if not isinstance(remedy, Fix):
            raise Permanent(Diagnostic("FIX_FAILED", f"{file.path} cannot be written", file.system))
        driver = site.session.driver(file.system, cancel)
        (result,) = driver.act(run, [Action(file.key, str(file.key), remedy)], (), lambda _line: None, cancel)
    site.session.forget(file.system, reservation.queries(), cancel)
    if result.verdict is not Verdict.DONE:
        summary = f"{file.path} was not written"
        raise Permanent(result.diagnostic or Diagnostic("FIX_FAILED", summary, file.system))
    return True
