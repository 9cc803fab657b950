from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from starlette.applications import Starlette

from provision.lab.api.access import grant_token
from provision.lab.api.app import create_app
from provision.lab.api.core import Lab
from tests.unit.lab_api.client import Client, root_client, token_client
from tests.unit.lab_api.fakes import FakeGuests, FakeHypervisor, make_qcow2

TOKEN = "provision@pve!lab"


@dataclass
class Site:
    """A lab with its API, and clients of it."""

    folder: Path
    guests: FakeGuests
    hypervisor: FakeHypervisor
    app: Starlette
    root: Client
    token: Client

    @property
    def lab(self) -> Lab:
        return self.root.lab

    def restarted(self) -> Site:
        """Start the API anew on the same files, as after a kill."""
        app = create_app(self.folder, self.guests, self.hypervisor)
        return Site(
            self.folder,
            self.guests,
            self.hypervisor,
            app,
            Client(app, self.root.headers),
            Client(app, self.token.headers),
        )


@dataclass(frozen=True)
class Prepared:
    """A state folder with a user and its token, and the headers that log in to every copy of it."""

    folder: Path
    root: dict[str, str]
    token: dict[str, str]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Hash passwords and sign tickets once: their keys are in the folder."""
    folder = tmp_path_factory.mktemp("lab")
    app = create_app(folder, FakeGuests(), FakeHypervisor())
    secret = grant_token(app.state.lab.access, "provision@pve", "lab")
    make_qcow2(folder / "storage" / "local" / "import" / "debian.qcow2", 2 << 30)
    return Prepared(folder, root_client(app, folder).headers, token_client(app, TOKEN, secret).headers)


@pytest.fixture
def site(tmp_path: Path, prepared: Prepared) -> Site:
    guests, hypervisor = FakeGuests(), FakeHypervisor()
    folder = tmp_path / "lab"
    shutil.copytree(prepared.folder, folder)
    app = create_app(folder, guests, hypervisor)
    return Site(folder, guests, hypervisor, app, Client(app, prepared.root), Client(app, prepared.token))


@pytest.fixture
def with_card(site: Site) -> Callable[..., int]:
    """Make mapping gpu0 (card 01:00) once, and VMs that use it."""

    def make(vmid: int, **more: str) -> int:
        if "gpu0" not in site.lab.mappings():
            text = "node=pve,path=0000:01:00,id=1234:1111,iommugroup=7,subsystem-id=1af4:1100"
            assert site.token("POST", "/cluster/mapping/pci", id="gpu0", map=text).status == 200
        form = {"machine": "q35", "hostpci0": "mapping=gpu0,pcie=1", **more}
        assert site.token.task("POST", "/nodes/pve/qemu", vmid=str(vmid), **form) == "OK"
        return vmid

    return make
