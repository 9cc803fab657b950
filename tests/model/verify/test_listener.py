from __future__ import annotations

import pytest

from provision.api.domains import check_folders
from provision.inventory import Inventory
from provision.verify.model import CheckResult
from provision.verify.runner import run_checks
from tests.model.verify.test_runner import Host, inventory

__all__ = ["inventory"]


def test_a_listener_that_fails_is_told_by_its_error_alone(
    inventory: Inventory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    told: list[CheckResult] = []

    def listener(result: CheckResult) -> None:
        told.append(result)
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        run_checks(inventory, Host({}), check_folders(), on_result=listener)
    assert len(told) == 1
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""
