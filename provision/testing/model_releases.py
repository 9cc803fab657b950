"""How fresh machines of each supported distribution differ, as far as provision meets it: a table.

Sources: names of kernels in public listings (`6.12.43+deb13-cloud-amd64`); release notes of Ubuntu 25.10:
chrony takes the place of systemd-timesyncd. Some images have no /etc/timezone. Ubuntu was not run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from provision.testing.model_host import guest_state
from provision.testing.model_state import HostState, ModelFile, ModelUnit


@dataclass(frozen=True, slots=True)
class Release:
    """What a fresh machine has.

    Args:
        id: of os-release(5).
        version: of os-release(5).
        kernel: release of the kernel.
        image: kernel meta package of its cloud image.
        headers: header package that follows that kernel.
        daemon: package of its time daemon.
        sources: where apt's archives are.
        has_timezone_file: whether it has /etc/timezone.
    """

    id: str
    version: str
    kernel: str
    image: str
    headers: str
    daemon: str
    sources: str
    has_timezone_file: bool = True


_DEB822 = "/etc/apt/sources.list.d"
RELEASES: Mapping[str, Release] = {
    "debian-12": Release(
        "debian", "12", "6.1.0-37-cloud-amd64", "linux-image-cloud-amd64", "linux-headers-cloud-amd64",
        "systemd-timesyncd", f"{_DEB822}/debian.sources",
    ),
    "debian-13": Release(
        "debian", "13", "6.12.43+deb13-cloud-amd64", "linux-image-cloud-amd64", "linux-headers-cloud-amd64",
        "systemd-timesyncd", f"{_DEB822}/debian.sources", has_timezone_file=False,
    ),
    "ubuntu-22.04": Release(
        "ubuntu", "22.04", "5.15.0-151-generic", "linux-image-virtual", "linux-headers-generic",
        "systemd-timesyncd", "/etc/apt/sources.list",
    ),
    "ubuntu-24.04": Release(
        "ubuntu", "24.04", "6.8.0-79-generic", "linux-image-virtual", "linux-headers-generic",
        "systemd-timesyncd", f"{_DEB822}/ubuntu.sources",
    ),
    "ubuntu-26.04": Release(
        "ubuntu", "26.04", "7.0.0-14-generic", "linux-image-virtual", "linux-headers-generic",
        "chrony", f"{_DEB822}/ubuntu.sources", has_timezone_file=False,
    ),
}  # fmt: skip


def release_state(name: str) -> HostState:
    """Return a freshly booted guest of a release.

    Args:
        name: key of `RELEASES`.
    """
    release = RELEASES[name]
    state = guest_state()
    text = f'ID={release.id}\nVERSION_ID="{release.version}"\n'
    state.files["/etc/os-release"] = ModelFile(text.encode())
    state.files[release.sources] = ModelFile(b"# archives of the release\n")
    if not release.has_timezone_file:
        del state.files["/etc/timezone"]
    state.kernels, state.running = (release.kernel,), release.kernel
    state.initramfs = {release.kernel: frozenset()}
    state.packages[release.image] = "1"
    if release.daemon == "chrony":
        del state.packages["systemd-timesyncd"], state.units["systemd-timesyncd.service"]
        state.packages["chrony"] = "4.6"
        state.units["chrony.service"] = ModelUnit(config=("/etc/chrony/",))
        state.units["chrony.service"].read = state.config_digest(state.units["chrony.service"])
    return state
