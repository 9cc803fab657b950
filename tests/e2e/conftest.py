"""Order and choice of the end-to-end tests, their stages with times before the runner's last line, and what
their labs said where one fails.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.e2e.evidence import evidence

FULL = ("test_lab_qemu.py", "test_lvm_guest.py", "test_containers_story.py", "test_containers_sweep.py")
"""Files of `make story-full` only: the core story proves most of it on virtual machines."""
FIRST = "test_story.py"
"""The story on virtual machines takes longest."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name in FULL:
            item.add_marker(pytest.mark.full)
    items.sort(key=lambda item: item.path.name != FIRST)  # stable: files keep their own order


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections += evidence()
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [
        each
        for found in terminalreporter.stats.values()
        for each in found
        if isinstance(each, pytest.TestReport)
    ]
    for line in (*stages(reports), *chosen(reports)):
        terminalreporter.write_line(line)


def stages(reports: list[pytest.TestReport]) -> Iterator[str]:
    """Yield each file's stages in their order with seconds, the story's first."""
    files: dict[str, dict[str, list[pytest.TestReport]]] = {}
    for each in sorted(reports, key=lambda report: report.start):
        name, _, stage = each.nodeid.partition("::")
        files.setdefault(Path(name).name, {}).setdefault(stage, []).append(each)
    for name in sorted(files, key=lambda name: name != FIRST):
        total = sum(each.duration for found in files[name].values() for each in found)
        yield f"{total:7.1f} s  {name}"
        for stage, found in files[name].items():
            worst = next((each.outcome for each in found if each.outcome != "passed"), "")
            words = stage.removeprefix("test_").replace("_", " ")
            yield f"{sum(each.duration for each in found):9.1f} s  {words}{worst and f'  ({worst})'}"


def chosen(reports: list[pytest.TestReport]) -> list[str]:
    """Return what chance decided, for a run alike: `NAME=value`."""
    return sorted(
        {f"{name}={value}" for each in reports for name, value in each.user_properties if name.isupper()}
    )
