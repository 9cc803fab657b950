"""The lab's API over HTTPS on loopback, with the client library that the tool uses."""

from __future__ import annotations

import datetime as dt
import hashlib
import ipaddress
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from proxmoxer import ProxmoxAPI
from proxmoxer.core import AuthenticationError, ResourceException

from provision.lab.api.access import bootstrap_token
from provision.lab.api.app import create_app
from provision.lab.api.core import Lab
from provision.lab.api.server import make_server
from tests.unit.lab_api.fakes import FakeGuests, FakeHypervisor, make_qcow2

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGfm0mBzqYyqfm0mBzqYyqfm0mBzqYyqfm0mBzqYyqfm a@b"


def make_certificate(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pve")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    cert_path, key_path = folder / "pve.pem", folder / "pve.key"
    cert_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return cert_path, key_path


@dataclass
class Site:
    port: int
    ca: Path
    token: str
    password: str
    lab: Lab
    guests: FakeGuests
    image_url: str
    image_sum: str

    def api(self, **login: Any) -> Any:
        return ProxmoxAPI("127.0.0.1", port=self.port, verify_ssl=str(self.ca), timeout=20, **login)

    def by_token(self) -> Any:
        return self.api(user="provision@pve", token_name="lab", token_value=self.token)

    def finished(self, api: Any, upid: str) -> str:
        self.lab.tasks.wait(upid, 20)
        return str(api.nodes("pve").tasks(upid).status.get()["exitstatus"])


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    state, web = tmp_path / "state", tmp_path / "web"
    state.mkdir()
    web.mkdir()
    make_qcow2(web / "debian.qcow2", 2 << 30)

    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(web))

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            """Say nothing."""

    images = ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=images.serve_forever, daemon=True).start()
    cert, key = make_certificate(tmp_path)
    token = bootstrap_token(state, "provision@pve", "lab")
    guests = FakeGuests()
    app = create_app(state, guests, FakeHypervisor())
    # Listening before the server's thread runs, so no client comes too early.
    listener = socket.create_server(("127.0.0.1", 0))
    server = make_server(app, "127.0.0.1", 0, cert, key)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield Site(
        port=listener.getsockname()[1],
        ca=cert,
        token=token,
        password=(state / "root-password").read_text().strip(),
        lab=app.state.lab,
        guests=guests,
        image_url=f"http://127.0.0.1:{images.server_address[1]}/debian.qcow2",
        image_sum=hashlib.sha256((web / "debian.qcow2").read_bytes()).hexdigest(),
    )
    server.should_exit = True
    thread.join(10)
    images.shutdown()
    images.server_close()


def test_a_token_brings_up_a_vm_from_an_image_and_removes_it(site: Site) -> None:
    api = site.by_token()
    node = api.nodes("pve")
    upid = node.storage("local").post(
        "download-url",
        content="import",
        filename="debian.qcow2",
        url=site.image_url,
        checksum=site.image_sum,
        **{"checksum-algorithm": "sha256"},
    )
    assert site.finished(api, upid) == "OK"
    assert [each["volid"] for each in node.storage("local").content.get(content="import")] == [
        "local:import/debian.qcow2"
    ]
    api.cluster.mapping.pci.post(
        id="gpu0", map="node=pve,path=0000:01:00,id=1234:1111,iommugroup=7,subsystem-id=1af4:1100"
    )
    vmid = api.cluster.nextid.get()
    upid = node.qemu.post(
        vmid=vmid,
        name="gpu",
        machine="q35",
        bios="ovmf",
        cores=2,
        memory=1024,
        balloon=0,
        onboot=0,
        scsihw="virtio-scsi-single",
        efidisk0="local-disks:1,efitype=4m,pre-enrolled-keys=0",
        scsi0="local-disks:0,import-from=local:import/debian.qcow2,iothread=1",
        ide2="local-disks:cloudinit",
        net0="virtio,bridge=vmbr0",
        hostpci0="mapping=gpu0,pcie=1",
        ciuser="admin",
        ipconfig0="ip=dhcp",
        sshkeys=quote(KEY, safe=""),
    )
    assert site.finished(api, upid) == "OK"
    assert site.finished(api, node.qemu(vmid).resize.put(disk="scsi0", size="8G")) == "OK"
    assert site.finished(api, node.qemu(vmid).status.start.post()) == "OK"
    assert node.qemu(vmid).status.current.get()["status"] == "running"
    assert site.guests.started[0].cards == 1
    config = node.qemu(vmid).config.get()
    assert config["scsi0"] == f"local-disks:vm-{vmid}-disk-1,iothread=1,size=8G"
    assert config["net0"].startswith("virtio=BC:24:11:")
    assert site.finished(api, node.qemu(vmid).status.stop.post()) == "OK"
    assert site.finished(api, node.qemu(vmid).delete(purge=1)) == "OK"
    assert api.cluster.resources.get(type="vm") == []
    assert node.storage("local-disks").content.get() == []


def test_a_password_logs_in_and_may_pass_raw_devices(site: Site) -> None:
    api = site.api(user="root@pam", password=site.password)
    upid = api.nodes("pve").qemu.post(vmid=100, hostpci0="0000:01:00,pcie=1", machine="q35")
    assert site.finished(api, upid) == "OK"
    with pytest.raises(AuthenticationError):
        site.api(user="root@pam", password="wrong")


def test_the_reason_phrase_on_the_wire_is_the_message(site: Site) -> None:
    api = site.by_token()
    with pytest.raises(ResourceException) as caught:
        api.nodes("pve").qemu.post(vmid=100, hostpci0="0000:01:00,pcie=1", machine="q35")
    assert caught.value.status_code == 500
    assert caught.value.content == "only root can set 'hostpci0' config for non-mapped devices"
    with pytest.raises(ResourceException) as caught:
        api.nodes("pve").qemu.post(vmid=100, onboot=True)
    assert caught.value.errors == {"onboot": "type check ('boolean') failed - got 'True'"}
    answer = requests.get(f"https://127.0.0.1:{site.port}/api2/json/version", verify=str(site.ca), timeout=20)
    assert (answer.status_code, answer.reason, answer.content) == (401, "No ticket", b"")
    assert "x-lab-reason" not in answer.headers
