"""What of a driver a bundle must have: by the archive's offers, for all cards and kernels that may come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from provision.api.domains import load_inventory as load
from provision.gpu.package_needs import packages
from provision.hosts.queries.apt import Offer, Offers
from provision.inventory import Inventory
from provision.values.errors import Permanent

VERSION = "535.247.01-1~deb12u1"
DEBIAN = {
    **dict.fromkeys(("nvidia-smi", "libcuda1", "nvidia-kernel-dkms", "nvidia-open-kernel-dkms"), VERSION),
    "linux-headers-amd64": "6.1.148-1",
    "linux-headers-cloud-amd64": "6.1.148-1",
    "nvidia-persistenced": "535.171.04-1~deb12u1",
}


def site(tmp_path: Path, driver: str, more: str = "") -> Inventory:
    file = tmp_path / "site.yaml"
    file.write_text(
        f"version: 1\nname: site\naccess: {{ user: root }}\n{more}"
        f"nodes:\n  n1: {{ address: 198.51.100.1, driver: {{ {driver} }} }}\n"
    )
    return load(file)


def needs(inventory: Inventory, offered: Mapping[str, str] = DEBIAN) -> list[tuple[str, ...]]:
    def archive(names: Sequence[str]) -> Mapping[str, Offers]:
        return {name: Offers("", (Offer(offered[name], ("Debian",)),)) for name in names if name in offered}

    requests = list(packages(inventory, inventory.nodes["n1"], archive))
    assert not any(request.recommends for request in requests if len(request.words) > 1)
    return [request.words for request in requests]


def test_one_kind_of_modules_comes_with_the_headers_of_both_usual_kernels(tmp_path: Path) -> None:
    assert needs(site(tmp_path, "origin: debian, kind: proprietary")) == [
        (
            f"nvidia-smi={VERSION}",
            f"libcuda1={VERSION}",
            f"nvidia-kernel-dkms={VERSION}",
            f"linux-headers-{kernel}",
            "nvidia-persistenced",
        )
        for kernel in ("cloud-amd64", "amd64")
    ]


def test_both_kinds_come_where_the_cards_decide(tmp_path: Path) -> None:
    modules = {request[2].partition("=")[0] for request in needs(site(tmp_path, "origin: debian"))}
    assert modules == {"nvidia-kernel-dkms", "nvidia-open-kernel-dkms"}


def test_a_version_that_the_archive_lost_is_refused_with_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(Permanent) as caught:
        needs(site(tmp_path, "origin: debian, branch: '535', version: 535.1.1"))
    (problem,) = caught.value.diagnostics
    assert problem.code == "DRIVER_VERSION_GONE"
    assert problem.evidence == (f"nvidia-smi {VERSION}",)


def test_a_driver_of_the_node_itself_needs_nothing(tmp_path: Path) -> None:
    assert needs(site(tmp_path, "manage: false")) == []


def test_packages_of_nvidia_s_archive_are_asked_for_and_so_named(tmp_path: Path) -> None:
    assert needs(site(tmp_path, "origin: nvidia, branch: '580'")) == [("nvidia-open",)]
