"""`repositories:` on a hypervisor: scripts by a real shell, judged by a real apt-get on their own folder."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from provision.inventory import Subject
from provision.proxmox.repositories import guard, script
from provision.proxmox.roles import hypervisor_host
from tests.unit.proxmox.roles.world import INVENTORY, World

NINE = {
    "sources.list.d/pve-enterprise.sources": """\
# of the installer
Types: deb
URIs: https://enterprise.proxmox.com/debian/pve
Suites: trixie
Components: pve-enterprise
Signed-By: /usr/share/keyrings/proxmox-archive-keyring.gpg

Types: deb
URIs: http://deb.debian.org/debian
Suites: trixie
Components: main
""",
    "sources.list.d/ceph.sources": """\
Enabled: yes
Types: deb
URIs: https://enterprise.proxmox.com/debian/ceph-squid
Suites: trixie
Components: enterprise
""",
}
BY_HAND = {
    "sources.list.d/all.sources": """\
Types: deb
URIs: https://enterprise.proxmox.com/debian/pve
Suites: trixie
Components: pve-enterprise
enabled: true

# no subscription for this one:
#Types: deb
#URIs: https://enterprise.proxmox.com/debian/ceph-squid
#Suites: trixie
#Components: enterprise

# not from enterprise.proxmox.com
Types: deb
URIs: http://deb.debian.org/debian
Suites: trixie
Components: main
""",
}
EIGHT = {
    "sources.list": "deb http://deb.debian.org/debian bookworm main\n",
    "sources.list.d/pve-enterprise.list": "deb https://enterprise.proxmox.com/debian/pve bookworm "
    "pve-enterprise\n",
    "sources.list.d/ceph.list": "# deb https://enterprise.proxmox.com/debian/ceph-quincy bookworm "
    "enterprise\n",
}
FREE = {
    "sources.list": "deb http://download.proxmox.com/debian/pve bookworm pve-no-subscription\n",
    **{path: text for path, text in EIGHT.items() if path != "sources.list"},
}


@dataclass
class Apt:
    """A folder that stands for /etc/apt, and what apt-get says of it."""

    folder: Path
    release: Path

    def run(self, text: str) -> int:
        text = text.replace("/etc/apt", str(self.folder)).replace("/etc/os-release", str(self.release))
        text = text.replace("/usr/share/keyrings/", f"{self.folder}/keyrings/")
        environment = {**os.environ, "APT_CONFIG": str(self.folder / "apt.conf")}
        return subprocess.run(
            ["/bin/sh", "-c", text], check=False, capture_output=True, env=environment
        ).returncode

    def components(self) -> set[str]:
        environment = {**os.environ, "APT_CONFIG": str(self.folder / "apt.conf")}
        text = subprocess.check_output(["apt-get", "update", "--print-uris"], env=environment, text=True)
        return {row.split("/dists/")[1].split("/")[1] for row in text.splitlines() if "binary-" in row}

    def content(self) -> dict[str, str]:
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_text() for path in files}


def apt_of(folder: Path, files: dict[str, str], codename: str) -> Apt:
    for path, text in files.items():
        file = folder / "apt" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    if codename == "trixie":
        key = folder / "apt" / "keyrings" / "proxmox-archive-keyring.gpg"
        key.parent.mkdir()
        key.write_text("key\n")
    release = folder / "os-release"
    release.write_text(f"ID=debian\nVERSION_CODENAME={codename}\n")
    apt = folder / "apt"
    (apt / "apt.conf").write_text(
        f'Dir::Etc::sourcelist "{apt}/sources.list";\nDir::Etc::sourceparts "{apt}/sources.list.d";\n'
        f'Dir::State "{folder}";\n'
    )
    return Apt(apt, release)


CASES = [(NINE, "trixie"), (BY_HAND, "trixie"), (EIGHT, "bookworm"), (FREE, "bookworm")]


@pytest.mark.parametrize(("files", "codename"), CASES, ids=["9", "9 by hand", "8", "8 as guides have it"])
def test_a_host_without_a_subscription_reads_what_it_may(
    tmp_path: Path, files: dict[str, str], codename: str
) -> None:
    apt = apt_of(tmp_path, files, codename)
    assert apt.run(guard("no_subscription")) != 0
    assert apt.run(script("no_subscription")) == 0
    assert apt.run(guard("no_subscription")) == 0
    assert "pve-no-subscription" in apt.components()
    assert not {"pve-enterprise", "enterprise"} & apt.components()
    assert "main" in apt.components() or files is FREE, "what is no business of ours stays"
    after = apt.content()
    assert apt.run(script("no_subscription")) == 0
    assert apt.content() == after, "again it changes nothing"
    assert not [path for path in after if path.endswith(".new")]


@pytest.mark.parametrize(("files", "codename"), CASES, ids=["9", "9 by hand", "8", "8 as guides have it"])
def test_a_host_that_gets_a_subscription_goes_back(
    tmp_path: Path, files: dict[str, str], codename: str
) -> None:
    apt = apt_of(tmp_path, files, codename)
    assert apt.run(script("no_subscription")) == 0
    assert apt.run(guard("enterprise")) != 0
    assert apt.run(script("enterprise")) == 0
    assert apt.run(guard("enterprise")) == 0
    assert "pve-enterprise" in apt.components()
    assert not list((tmp_path / "apt" / "sources.list.d").glob("provision-pve.*"))


def test_a_host_whose_files_are_gone_gets_ours(tmp_path: Path) -> None:
    apt = apt_of(tmp_path, {"sources.list.d/x.list": ""}, "trixie")
    for wanted in ("enterprise", "no_subscription"):
        assert apt.run(script(wanted)) == 0
        assert apt.run(guard(wanted)) == 0
        assert "Signed-By:" in (tmp_path / "apt" / "sources.list.d" / "provision-pve.sources").read_text()


def test_apt_that_fails_is_no_proof(tmp_path: Path) -> None:
    apt = apt_of(tmp_path, NINE, "trixie")
    (tmp_path / "apt" / "sources.list.d" / "broken.list").write_text("deb [\n")
    for wanted in ("enterprise", "no_subscription"):
        assert apt.run(guard(wanted)) != 0


def test_only_a_declared_repository_is_changed(tmp_path: Path) -> None:
    world = World(tmp_path)
    pve = Subject("hypervisor", "pve")
    head = INVENTORY.partition("    cards:\n")[0]
    world.write(head + "    repositories: no_subscription\n")
    assert hypervisor_host.declared(world.site().inventory, pve)
    world.write(head)
    assert not hypervisor_host.declared(world.site().inventory, pve)
