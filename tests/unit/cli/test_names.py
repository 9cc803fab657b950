from __future__ import annotations

from pathlib import Path

import pytest

from provision.cli.names import find_inventory
from provision.values.errors import UsageError
from provision.values.shipped import shipped_folder


def test_a_file_wins_over_a_shipped_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("inventories").mkdir()
    Path("inventories/lab.yaml").write_text("")
    assert find_inventory("inventories/lab.yaml") == Path("inventories/lab.yaml")


@pytest.mark.parametrize("name", ["inventories/lab.yaml", "./inventories/lab.yaml", "lab.yaml", "lab"])
def test_a_shipped_one_is_found_from_anywhere(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_inventory(name) == shipped_folder("inventories") / "lab.yaml"


@pytest.mark.parametrize(
    "name", ["labb", "/lab.yaml", "../pyproject", "inventories/../../pyproject.toml", ""]
)
def test_an_unknown_inventory_is_refused_with_the_known_ones(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        find_inventory(name)
    assert "inventories/lab.yaml" in caught.value.diagnostics[0].remedy
