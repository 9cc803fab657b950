"""A file as it was before provision first changed it, put back on its host."""

from __future__ import annotations

from provision.api.run_identity import new_run_id, who
from provision.api.site import Site
from provision.contracts.driver import Action, Verdict
from provision.contracts.query import Unknown
from provision.contracts.remedy import Fix, Impossible
from provision.engine.run_lock import run_lock
from provision.hosts import names
from provision.hosts.queries.saved import ABSENT, FILE, RESTORED, SavedFile
from provision.hosts.resources.file import File
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, UsageError
from provision.values.suggestions import known_names


def restore(site: Site, host: str, path: str, cancel: Cancel) -> bool:
    """Put back what a path held before provision first changed it, with its mode and owner.

    Args:
        site: whose host.
        host: a host of the inventory that is reached by SSH.
        path: absolute path on it.
        cancel: ends it early.

    Returns:
        Whether it was put back now; False if it had been before.

    Raises:
        UsageError: there is no such host, or the path is not absolute.
        Permanent: nothing is kept of the path, or it cannot be written.
        ProvisionError: a run goes on (exit 6), or the host does not answer.
    """
    system = _system_of(site, host)
    gone = _as_before(system, path)
    run = new_run_id()
    with run_lock(site.folder / "lock", run, who()), site.session.systems[system].lock.held(cancel):
        snapshot = site.session.ask(system, gone.queries(), cancel, fresh=True)
        unknown = next(
            (snapshot[query] for query in gone.queries() if isinstance(snapshot[query], Unknown)), None
        )
        if unknown is not None:
            raise Permanent(Diagnostic("UNKNOWN", f"{path} on {host}: {unknown.reason}", host))
        kept = snapshot[SavedFile(path)]
        if kept == RESTORED:
            return False
        if kept != FILE:
            raise Permanent(_nothing_kept(host, path, was_absent=kept == ABSENT))
        remedy = gone.fix(snapshot)
        if isinstance(remedy, Impossible):
            raise Permanent(remedy.diagnostic)
        if not isinstance(remedy, Fix):
            raise Permanent(Diagnostic("FIX_FAILED", f"{path} on {host} cannot be written", host))
        driver = site.session.driver(system, cancel)
        (result,) = driver.act(run, [Action(gone.key, str(gone.key), remedy)], (), lambda _line: None, cancel)
    site.session.forget(system, gone.queries(), cancel)
    if result.verdict is not Verdict.DONE:
        summary = f"{path} on {host} was not put back"
        raise Permanent(result.diagnostic or Diagnostic("FIX_FAILED", summary, host))
    return True


def _system_of(site: Site, host: str) -> str:
    system = names.ssh(host)
    if system in site.environment.systems:
        return system
    hosts = [name.removesuffix("/ssh") for name in site.environment.systems if name.endswith("/ssh")]
    summary = f"{site.inventory.file} has no host {host}"
    raise UsageError(Diagnostic("NODE_UNKNOWN", summary, remedy=known_names(host, hosts)))


def _as_before(system: str, path: str) -> File:
    try:
        return File(system, path, absent=True, restores=True)
    except ValueError as error:
        remedy = "name the file by its absolute path, like /etc/hosts"
        raise UsageError(Diagnostic("PATH_WRONG", str(error), remedy=remedy)) from None


def _nothing_kept(host: str, path: str, *, was_absent: bool) -> Diagnostic:
    summary = f"nothing is kept of {path} on {host}: this tool has never replaced or removed it"
    remedy = f"list what is kept there: `sudo head -n 1 {_FOLDER}/*.entry`"
    if was_absent:
        summary = f"{path} on {host} did not exist before it was made here"
        remedy = "take it out of the inventory, and remove it on the host"
    return Diagnostic("NOTHING_SAVED", summary, host, untouched="Nothing was changed.", remedy=remedy)


_FOLDER = "/var/lib/provision/saved"
