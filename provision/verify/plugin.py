"""The pytest plugin: parametrises checks by subject and collects results instead of printing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar, cast

import pytest
from testinfra.host import Host

from provision.contracts.check import Figure, NotDeclared, NotRun, Trivial
from provision.contracts.query import ApiGet, ApiReply, Unknown
from provision.hosts.queries.shell import Shell
from provision.inventory import Inventory
from provision.values.cancel import Interrupted
from provision.values.errors import ProvisionError
from provision.verify.backend import Answers, Requests, host_for, within
from provision.verify.model import CheckOutcome, CheckResult

T = TypeVar("T")
SETTLING = 60.0
"""Seconds that a restarted time daemon gets until its clock is synchronised; a burst takes about ten."""
PAUSE = 1.0
"""Seconds between two looks at what settles."""
SKIPPED = "left out by the inventory (verify.skip)"
NO_PODS = "left out by the command line (--no-pods) or the inventory (verify.pods)"
_NOTE = pytest.StashKey[str]()
_FIGURES = pytest.StashKey[list[Figure]]()
NOBODY = "-"
"""Stands for a kind of subject that the inventory does not have: such checks are dropped."""


@dataclass(frozen=True)
class Site:
    """What checks may look at: the inventory, and the session's answers."""

    inventory: Inventory
    answers: Answers
    _hosts: dict[str, Host] = field(default_factory=dict, repr=False)

    @property
    def timeout(self) -> int | None:
        """Seconds that a command of a check may take (`verify.timeout`)."""
        return self.inventory.verify.timeout

    def is_away(self, system: str) -> bool:
        """Return whether a system cannot be reached now."""
        return bool(self.answers.away(system))

    def host(self, system: str) -> Host:
        """Return testinfra's view of a system; the check is skipped when it is away."""
        if reason := self.answers.away(system):
            pytest.skip(f"unknown: {reason}")
        if system not in self._hosts:  # testinfra keeps what it learnt of a system in its Host
            self._hosts[system] = host_for(system, self.answers, self.timeout)
        return self._hosts[system]

    def get(self, system: str, path: str) -> ApiReply:
        """Return what an API answers; the check is skipped when it is away, and nobody waits for it again.

        Raises:
            ProvisionError: it gives no answers, though it did before.
        """
        if reason := self.answers.away(system):
            pytest.skip(f"unknown: {reason}")
        query = ApiGet(path)
        answer = self.answers.ask(system, (query,))[query]
        if isinstance(answer, Unknown):
            pytest.skip(f"unknown: {answer.reason}")
        if not isinstance(answer, ApiReply):
            raise TypeError(f"unexpected answer {answer!r}")
        return answer

    def skew(self, system: str) -> float:
        """Return a host's clock minus the controller's, in seconds, when the host last answered."""
        return self.answers.held(system).skew

    def again(self, system: str, *commands: str) -> Iterator[None]:
        """Ask commands again until SETTLING has passed, for what is true only some time after a change."""
        end = time.monotonic() + min(SETTLING, self.timeout or SETTLING)
        while time.monotonic() < end:
            time.sleep(PAUSE)
            self.answers.ask(system, [Shell(within(each, self.timeout)) for each in commands], fresh=True)
            yield


@dataclass
class Trials:
    """What checks need that make something for a time; see the contract.

    Args:
        requests: sends them.
        run: identifies the verification.
    """

    requests: Requests
    run: str
    _removals: dict[str, Callable[[], None]] = field(default_factory=dict)
    _made: dict[str, tuple[object, BaseException | None]] = field(default_factory=dict)

    def send(self, system: str, method: str, path: str, body: Mapping[str, object] | None = None) -> ApiReply:
        """Send one request to an API; the check is skipped when it is away.

        Raises:
            ProvisionError: no answer.
        """
        if reason := self.requests.away(system):
            pytest.skip(f"unknown: {reason}")
        return self.requests.send(system, method, path, body)

    def pause(self, seconds: float, *, final: bool = False) -> None:
        """Wait.

        Raises:
            Interrupted: the run must leave.
        """
        self.requests.pause(seconds, final=final)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Return what was made the first time for this name, or raise what was raised."""
        if name not in self._made:
            try:
                self._made[name] = (make(), None)
            except (AssertionError, NotRun, ProvisionError, pytest.skip.Exception) as error:
                self._made[name] = (None, error)
        made, problem = self._made[name]
        if problem is not None:
            raise problem
        return cast("T", made)

    def at_end(self, name: str, remove: Callable[[], None]) -> None:
        """Call this once after all checks."""
        self._removals.setdefault(name, remove)

    def end(self) -> Iterator[CheckResult]:
        """Remove what is left; yield a failed check for each removal that did not work."""
        while self._removals:
            name, remove = self._removals.popitem()
            try:
                remove()
            except (ProvisionError, AssertionError, pytest.skip.Exception) as error:
                yield CheckResult(name, "cluster", CheckOutcome.FAILED, str(error).removeprefix("unknown: "))


class VerifyPlugin:
    """Give `site` and subject fixtures to checks, keep their results.

    Args:
        site: inventory and answers.
        subjects: names by fixture (`vm`, `node`, `hypervisor`, ...).
        excused: subjects that are away without fault.
        on_result: called with every result as it comes.
        trials: for checks that make something; None where they are left out.
    """

    def __init__(
        self,
        site: Site,
        subjects: dict[str, tuple[str, ...]],
        excused: frozenset[str],
        on_result: Callable[[CheckResult], None],
        trials: Trials | None = None,
    ) -> None:
        self._site = site
        self._trials = trials
        self._subjects = subjects
        self._excused = excused
        self._on_result = on_result
        self.results: list[CheckResult] = []
        self.broken: list[str] = []
        self.interrupted = False
        self._total = 0
        self._skip = frozenset(site.inventory.verify.skip)

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Take pytest's own reporter out: the renderers of `report` speak to the user."""
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            config.pluginmanager.unregister(reporter)

    @pytest.fixture
    def site(self) -> Site:
        """The site under verification."""
        return self._site

    @pytest.fixture
    def trials(self) -> Trials:
        """What a check needs that makes something for a time; without it the check is not run."""
        if self._trials is None:
            raise NotRun(NO_PODS)
        return self._trials

    @pytest.fixture
    def measured(self, request: pytest.FixtureRequest) -> Callable[[Figure], None]:
        """Take a figure that is shown with the check, however that ends."""
        figures: list[Figure] = request.node.stash.setdefault(_FIGURES, [])
        return figures.append

    @pytest.fixture
    def note(self, request: pytest.FixtureRequest) -> Callable[[str], None]:
        """Take a remark that is shown with a check that passes, and fails nothing."""

        def noted(text: str) -> None:
            request.node.stash[_NOTE] = text

        return noted

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One check per subject of the kind that its argument names."""
        for kind, names in self._subjects.items():
            if kind in metafunc.fixturenames:
                metafunc.parametrize(kind, names or (NOBODY,))

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Drop checks about subjects that the inventory does not have; skip what it says to skip."""
        items[:] = [each for each in items if _subject(each, self._subjects) != NOBODY]
        self._total = len(items)
        for each in items:
            if _name(each) in self._skip:
                each.add_marker(pytest.mark.skip(reason=SKIPPED))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> pytest.TestReport:
        """Replace pytest's own report, whose traceback nobody sees and costs more than most checks."""
        self._keep_result(item, call)
        outcome: Literal["passed", "failed"] = "passed" if call.excinfo is None else "failed"
        stage = call.when if call.when != "collect" else "setup"
        return pytest.TestReport(item.nodeid, item.location, {}, outcome, None, stage)

    def _keep_result(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Turn the outcome of a check's call (or of its failed set-up) into a result."""
        if call.when == "teardown" or (call.when == "setup" and call.excinfo is None):
            return
        if call.excinfo is not None and isinstance(call.excinfo.value, NotDeclared):
            self._total -= 1
            return
        if call.excinfo is not None and isinstance(call.excinfo.value, Interrupted):
            self.interrupted = True
            item.session.shouldstop = "interrupted"
            return
        outcome, message = CheckOutcome.PROVEN, item.stash.get(_NOTE, "")
        subject = _subject(item, self._subjects)
        if call.excinfo is not None:
            outcome = self._outcome(call.excinfo.value, item)
            message = str(call.excinfo.value).removeprefix("unknown: ").strip() or call.excinfo.typename
            if outcome is CheckOutcome.FAILED and not call.excinfo.errisinstance(AssertionError):
                message = f"{call.excinfo.typename}: {message}"
        figures: list[Figure] = item.stash.get(_FIGURES, [])
        message = "\n".join(filter(None, (message.partition("\nassert ")[0].strip(), *map(str, figures))))
        is_away = outcome is CheckOutcome.UNKNOWN and subject in self._excused
        result = CheckResult(
            name=_claim(item),
            subject=subject,
            outcome=outcome,
            message=message,
            excused=is_away or outcome is CheckOutcome.NOT_RUN,
            seconds=call.duration,
            total=self._total,
            check=_name(item),
            figures=tuple(figures),
        )
        self.results.append(result)
        self._on_result(result)

    def _outcome(self, error: BaseException, item: pytest.Item) -> CheckOutcome:
        """Return how a check ended that raised."""
        if isinstance(error, Trivial):
            return CheckOutcome.TRIVIAL
        if isinstance(error, NotRun):
            return CheckOutcome.NOT_RUN
        if isinstance(error, pytest.skip.Exception):
            return CheckOutcome.NOT_RUN if _name(item) in self._skip else CheckOutcome.UNKNOWN
        return CheckOutcome.UNKNOWN if isinstance(error, ProvisionError) else CheckOutcome.FAILED

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A check file that cannot be imported is a failure, never silence."""
        if report.failed:
            self.broken.append(f"{report.nodeid}: {report.longreprtext.splitlines()[-1]}")


def _name(item: pytest.Item) -> str:
    """Return the name of a check as `verify.skip` and docs/verify.md have it."""
    return str(getattr(item, "originalname", item.name))


def _claim(item: pytest.Item) -> str:
    function = getattr(item, "function", None)
    return ((function.__doc__ if function else "") or item.name).strip().splitlines()[0].rstrip(".")


def _subject(item: pytest.Item, subjects: dict[str, tuple[str, ...]]) -> str:
    spec = getattr(item, "callspec", None)
    params = spec.params if spec else {}
    return next((str(params[kind]) for kind in subjects if kind in params), "")
