from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from provision.api.domains import load_inventory as load
from provision.cli import main
from provision.connections.download import digest_of
from provision.values.cancel import Cancel, Interrupted
from provision.values.errors import Permanent, Transient
from tests.unit.proxmox.roles.world import INVENTORY

IMAGE = bytes(range(256)) * 9000
SHA = hashlib.sha256(IMAGE).hexdigest()


@dataclass
class Web:
    """A web server on loopback."""

    content: bytes = IMAGE
    paths: list[str] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    found = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.paths.append(self.path)
            place = {"/moved.img": "/debian.img", "/file": "file:///etc/passwd", "/loop": "/loop"}.get(
                self.path
            )
            status = 302 if place else {"/missing": 404, "/sick": 503}.get(self.path, 200)
            self.send_response(status)
            if place:
                self.send_header("Location", place)
            body = found.content if status == 200 else b""
            self.send_header("Content-Length", str(len(body) + (self.path == "/cut") * 10))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield found
    server.shutdown()
    server.server_close()


@pytest.fixture
def inventory(tmp_path: Path, web: Web) -> Path:
    file = tmp_path / "site.yaml"
    text = INVENTORY.replace("https://images.example/debian.img", f"{web.url}/debian.img")
    file.write_text(text.replace("ab" * 32, "<64 hex digits>"))
    return file


def lock_of(inventory: Path) -> str:
    file = inventory.with_name("provision.lock.yaml")
    return file.read_text() if file.exists() else ""


def test_the_digest_is_of_all_that_comes(web: Web) -> None:
    seen: list[tuple[int, int]] = []
    assert digest_of(f"{web.url}/debian.img", Cancel(), lambda *each: seen.append(each)) == (SHA, len(IMAGE))
    assert seen[-1] == (len(IMAGE), len(IMAGE))
    assert digest_of(f"{web.url}/moved.img", Cancel())[0] == SHA


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        ("/missing", Permanent, "404"),
        ("/sick", Transient, "503"),
        ("/file", Permanent, "not file:"),
        ("/loop", Permanent, "redirects"),
        ("/cut", Transient, "DOWNLOAD_FAILED"),
    ],
)
def test_what_is_not_the_whole_file_has_no_digest(
    path: str, error: type[Exception], words: str, web: Web
) -> None:
    with pytest.raises(error, match=words):
        digest_of(web.url + path, Cancel())


def test_files_are_never_opened() -> None:
    with pytest.raises(Permanent, match="DOWNLOAD_REFUSED"):
        digest_of("file:///etc/passwd", Cancel())


def test_an_interrupted_download_is_left(web: Web) -> None:
    cancel = Cancel()
    cancel.drain()
    with pytest.raises(Interrupted):
        digest_of(f"{web.url}/debian.img", cancel)


def test_pin_writes_the_lock_that_plan_reads(
    inventory: Path, web: Web, capsys: pytest.CaptureFixture[str]
) -> None:
    assert load(inventory).image_pin("debian-12") is None
    assert main.main(["pin", str(inventory)]) == 0
    assert f"debian-12: pinned {SHA}" in " ".join(capsys.readouterr().out.split())
    pin = load(inventory).image_pin("debian-12")
    assert pin is not None
    assert (pin.url, pin.sha256) == (f"{web.url}/debian.img", SHA)
    assert load(inventory).placeholders() == []


def test_what_is_pinned_is_not_downloaded_again(inventory: Path, web: Web) -> None:
    main.main(["pin", str(inventory)])
    before = lock_of(inventory)
    web.content = b"other"
    assert main.main(["pin", str(inventory)]) == 0
    assert web.paths == ["/debian.img"]
    assert lock_of(inventory) == before


def test_a_digest_that_has_changed_is_refused_until_it_is_accepted(
    inventory: Path, web: Web, capsys: pytest.CaptureFixture[str]
) -> None:
    main.main(["pin", str(inventory)])
    before = lock_of(inventory)
    web.content = b"other"
    assert main.main(["image", "pin", str(inventory), "debian-12", "--refresh"]) == 4
    assert "DIGEST_CHANGED" in capsys.readouterr().err
    assert lock_of(inventory) == before
    assert main.main(["image", "pin", str(inventory), "debian-12", "--accept"]) == 0
    pin = load(inventory).image_pin("debian-12")
    assert pin is not None
    assert pin.sha256 == hashlib.sha256(b"other").hexdigest()


def test_a_digest_of_the_inventory_is_not_overruled(inventory: Path, web: Web) -> None:
    inventory.write_text(inventory.read_text().replace("<64 hex digits>", "ab" * 32))
    assert main.main(["pin", str(inventory)]) == 0
    assert web.paths == []
    assert "ab" * 32 in lock_of(inventory)
    assert main.main(["pin", str(inventory), "--accept"]) == 4
    assert "ab" * 32 in lock_of(inventory)


def test_pin_keeps_other_entries_and_quotes_digests_that_look_like_numbers(inventory: Path, web: Web) -> None:
    number = "1e" + "5" * 62
    charts = f'version: 1\ncharts:\n  "gpu-operator": {{ url: "https://x/y.tgz", sha256: "{number}" }}\n'
    inventory.with_name("provision.lock.yaml").write_text(charts)
    assert main.main(["pin", str(inventory)]) == 0
    lock = load(inventory).lock
    assert lock.charts["gpu-operator"].sha256 == number
    assert set(lock.images) == {"debian-12"}
    del web


@pytest.mark.parametrize("path", ["/missing", "/sick"])
def test_a_failed_download_leaves_no_lock(inventory: Path, path: str) -> None:
    inventory.write_text(inventory.read_text().replace("/debian.img", path))
    assert main.main(["pin", str(inventory)]) == 1
    assert lock_of(inventory) == ""


def test_an_unknown_image_is_wrong_usage(inventory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["image", "pin", str(inventory), "nothing"]) == 64
    assert "Valid names: debian-12" in capsys.readouterr().err
