from pathlib import Path

import pytest

from provision.lab.site import make_room


@pytest.mark.parametrize(
    ("before", "after", "lines"), [("128\n", "4096\n", 1), ("8192\n", "8192\n", 0), ("what?\n", "what?\n", 0)]
)
def test_a_low_limit_is_raised_and_said_and_a_high_one_is_kept(
    tmp_path: Path, before: str, after: str, lines: int
) -> None:
    file = tmp_path / "max_user_instances"
    file.write_text(before)
    said: list[str] = []
    make_room(said.append, file)
    assert (file.read_text(), len(said)) == (after, lines)


def test_a_machine_without_the_setting_is_no_error(tmp_path: Path) -> None:
    make_room(print, tmp_path / "absent")
