from __future__ import annotations

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


@pytest.fixture
def site(tmp_path: Path) -> Site:
    guests, hypervisor = FakeGuests(), FakeHypervisor()
    app = create_app(tmp_path, guests, hypervisor)
    secret = grant_token(app.state.lab.access, "provision@pve", "lab")
    make_qcow2(tmp_path / "storage" / "local" / "import" / "debian.qcow2", 2 << 30)
    root = root_client(app, tmp_path)
    return Site(tmp_path, guests, hypervisor, app, root, token_client(app, TOKEN, secret))


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
