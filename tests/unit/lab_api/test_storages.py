from __future__ import annotations

from pathlib import Path

import pytest

from provision.lab.api.errors import ApiError
from provision.lab.api.storages import Storage, Storages, format_size, parse_size, virtual_size
from tests.unit.lab_api.fakes import make_qcow2, make_raw


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (528 * 1024, "528K"),
        (1 << 20, "1M"),
        (3_000_000, "2930K"),
        (300 << 20, "300M"),
        (200 << 30, "200G"),
        (2 << 40, "2T"),
    ],
)
def test_sizes_print_in_the_largest_whole_unit(size: int, text: str) -> None:
    assert format_size(size) == text
    assert parse_size(text) >= size


def test_the_virtual_size_of_an_image_is_in_its_header(tmp_path: Path) -> None:
    make_qcow2(tmp_path / "a.qcow2", 10 << 30)
    make_raw(tmp_path / "b.raw", 1 << 20)
    assert virtual_size(tmp_path / "a.qcow2") == 10 << 30
    assert virtual_size(tmp_path / "b.raw") == 1 << 20


def test_volumes_are_rounded_up_to_what_their_storage_type_allocates(tmp_path: Path) -> None:
    for kind, size in (("zfspool", 1 << 20), ("lvmthin", 4 << 20)):
        storage = Storage(kind, kind, ("images",))
        storages = Storages(tmp_path, (storage,))
        make_raw(storages.image_path(storage, "vm-100-disk-0", ".raw"), 528 * 1024)
        (volume,) = storages.volumes(storage)
        assert (volume.volid, volume.vmid, volume.size) == (f"{kind}:vm-100-disk-0", 100, size)


def test_a_cut_off_download_is_swept_away_at_the_next_start(tmp_path: Path) -> None:
    storage = Storage("local", "dir", ("iso", "import"))
    storages = Storages(tmp_path, (storage,))
    leftover = storages.files(storage, "import") / "a.qcow2.tmp_dwnl.77"
    leftover.write_bytes(b"x")
    assert list(storages.volumes(storage)) == []
    Storages(tmp_path, (storage,))
    assert not leftover.exists()


def test_unknown_storages_are_500(tmp_path: Path) -> None:
    with pytest.raises(ApiError, match="storage 'nope' does not exist"):
        Storages(tmp_path, ()).find("nope:iso/x.iso")
