"""download-url against a real HTTP server on loopback."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from provision.lab.api.app import create_app
from tests.unit.lab_api.client import Client, root_client
from tests.unit.lab_api.fakes import FakeGuests, FakeHypervisor

IMAGE = b"QFI\xfb" + bytes(100_000)
GOOD = hashlib.sha256(IMAGE).hexdigest()
PATH = "/nodes/pve/storage/local/download-url"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/missing":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(IMAGE)))
        self.end_headers()
        # The short answer ends before its announced length.
        self.wfile.write(IMAGE[:1000] if self.path == "/short" else IMAGE)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    found = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{found.server_address[1]}"
    found.shutdown()
    found.server_close()


@pytest.fixture
def root(tmp_path: Path) -> Client:
    return root_client(create_app(tmp_path, FakeGuests(), FakeHypervisor()), tmp_path)


def fetch(root: Client, url: str, checksum: str | None = None, name: str = "a.qcow2") -> str:
    form = {"url": url, "content": "import", "filename": name}
    if checksum is not None:
        form |= {"checksum": checksum, "checksum-algorithm": "sha256"}
    return root.task("POST", PATH, **form)


def files(root: Client) -> list[str]:
    return sorted(path.name for path in (root.lab.folder / "storage/local/import").iterdir())


def test_a_right_checksum_makes_the_file_and_repeats_without_a_download(root: Client, server: str) -> None:
    assert fetch(root, f"{server}/a", GOOD) == "OK"
    assert (root.lab.folder / "storage/local/import/a.qcow2").read_bytes() == IMAGE
    assert fetch(root, f"{server}/missing", GOOD.upper()) == "OK"
    assert files(root) == ["a.qcow2"]


@pytest.mark.parametrize(
    ("path", "checksum", "status"),
    [
        ("/a", "0" * 64, f"checksum mismatch: got '{GOOD}' != expect '{'0' * 64}'"),
        ("/missing", GOOD, "download failed: exit code 8"),
        ("/short", None, "download failed: exit code 4"),
    ],
)
def test_what_fails_is_a_failed_task_that_leaves_no_file(
    root: Client, server: str, path: str, checksum: str | None, status: str
) -> None:
    assert fetch(root, server + path, checksum) == status
    assert files(root) == []


def test_an_unreachable_server_is_a_failed_task(root: Client, server: str) -> None:
    closed = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    closed.server_close()
    assert server
    status = fetch(root, f"http://127.0.0.1:{closed.server_address[1]}/a")
    assert status == "download failed: exit code 4"


def test_an_existing_file_is_never_replaced(root: Client, server: str) -> None:
    target = root.lab.folder / "storage/local/import/a.qcow2"
    target.write_bytes(b"other")
    refused = "refusing to override existing file '/var/lib/vz/import/a.qcow2'"
    assert fetch(root, f"{server}/a") == refused
    other = hashlib.sha256(b"other").hexdigest()
    wanted = f"checksum mismatch: got '{other}' != expect '{GOOD}', aborting"
    assert fetch(root, f"{server}/a", GOOD) == wanted
    assert target.read_bytes() == b"other"
