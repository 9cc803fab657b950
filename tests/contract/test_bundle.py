"""A bundle from a web server on loopback: complete, checked, resumed, and then used without the server."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from provision.api.domains import load_inventory as load
from provision.cli.main import main
from provision.k3s import artifacts
from provision.kube.charts import chart_of, operator_chart
from provision.values.errors import UsageError

VERSION, ESCAPED = "v1.35.7+k3s1", "v1.35.7%2Bk3s1"
IMAGES = bytes(range(256)) * 8192
IMAGE = b"cloud image" * 1000
SITE = """
version: 1
name: cluster
access: {{ user: root }}
sources: {{ {sources} }}
k3s: {{ version: v1.35.7+k3s1 }}
images:
  debian-12: {{ url: "{url}/debian/debian.qcow2?token=hidden", sha256: {sha} }}
nodes:
  s1: {{ address: 198.51.100.1, k3s: server }}
gpu:
  operator: {{ version: v26.3.1, repository: "{url}/charts" }}
"""


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def chart() -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as packed:
        data = b"apiVersion: v2\nname: gpu-operator\nversion: v26.3.1\n"
        member = tarfile.TarInfo("gpu-operator/Chart.yaml")
        member.size = len(data)
        packed.addfile(member, io.BytesIO(data))
    return target.getvalue()


@dataclass
class Web:
    """A mirror and a chart repository; `cut` is how many bytes of a file it sends once."""

    files: dict[str, bytes]
    asked: list[str] = field(default_factory=list)
    cut: dict[str, int] = field(default_factory=dict)
    url: str = ""


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Web]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    archive = chart()
    row = f"{{ version: v26.3.1, urls: [gpu-operator-v26.3.1.tgz], digest: {sha(archive)} }}"
    sums = f"{sha(b'k3s')}  k3s\n{sha(IMAGES)}  {artifacts.IMAGES_ASSET}\n".encode()
    found = Web(
        {
            f"/k3s/{ESCAPED}/k3s": b"k3s",
            f"/k3s/{ESCAPED}/{artifacts.IMAGES_ASSET}": IMAGES,
            f"/k3s/{ESCAPED}/sha256sum-amd64.txt": sums,
            "/charts/index.yaml": f"apiVersion: v1\nentries: {{ gpu-operator: [{row}] }}\n".encode(),
            "/charts/gpu-operator-v26.3.1.tgz": archive,
            "/debian/debian.qcow2": IMAGE,
        }
    )

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            begun = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").rstrip("-"))
            found.asked.append(f"{path} from {begun}" if begun else path)
            body = found.files.get(path)
            self.send_response(404 if body is None else 206 if begun else 200)
            body = (body or b"")[begun:]
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: found.cut.pop(path, len(body))])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield found
    server.shutdown()
    server.server_close()


def site(folder: Path, web: Web, sources: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    inventory = folder / "site.yaml"
    sources = sources or f'mode: mirror, mirror: "{web.url}"'
    inventory.write_text(SITE.format(url=web.url, sha=sha(IMAGE), sources=sources))
    return inventory


def test_a_bundle_holds_all_files_and_the_second_run_fetches_nothing(web: Web, tmp_path: Path) -> None:
    inventory, bundle = site(tmp_path / "site", web), tmp_path / "bundle"
    assert main(["bundle", str(inventory), str(bundle)]) == 0
    text = (bundle / "manifest.json").read_text()
    rows = json.loads(text)["files"]
    assert {row["path"] for row in rows} == {
        f"images/{sha(IMAGE)}/debian.qcow2",
        f"k3s/{VERSION}/k3s",
        f"k3s/{VERSION}/{artifacts.IMAGES_ASSET}",
        "charts/gpu-operator-v26.3.1.tgz",
    }
    for row in rows:
        data = (bundle / row["path"]).read_bytes()
        assert (sha(data), len(data)) == (row["sha256"], row["size"])
    assert "hidden" not in text  # a query of a URL may be a token
    web.asked.clear()
    assert main(["bundle", str(inventory), str(bundle)]) == 0
    assert web.asked == []
    assert (bundle / "manifest.json").read_text() == text


def test_a_download_that_was_cut_goes_on_where_it_ended(web: Web, tmp_path: Path) -> None:
    inventory, bundle = site(tmp_path / "site", web), tmp_path / "bundle"
    path = f"/k3s/{ESCAPED}/{artifacts.IMAGES_ASSET}"
    web.cut[path] = 1024 * 1024
    assert main(["bundle", str(inventory), str(bundle)]) == 1
    assert not (bundle / "manifest.json").exists()
    web.asked.clear()
    assert main(["bundle", str(inventory), str(bundle)]) == 0
    assert (bundle / "k3s" / VERSION / artifacts.IMAGES_ASSET).read_bytes() == IMAGES
    (again,) = [line for line in web.asked if line.startswith(path)]
    assert " from " in again
    assert "/debian/debian.qcow2" not in web.asked  # what was complete stays


def test_another_file_than_the_pinned_one_is_not_kept(
    web: Web, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory, bundle = site(tmp_path / "site", web), tmp_path / "bundle"
    web.files["/debian/debian.qcow2"] = b"another one"
    assert main(["bundle", str(inventory), str(bundle)]) == 1
    assert "DOWNLOAD_WRONG" in capsys.readouterr().err
    assert list((bundle / "images" / sha(IMAGE)).iterdir()) == []


def test_a_file_that_was_changed_is_fetched_again(web: Web, tmp_path: Path) -> None:
    inventory, bundle = site(tmp_path / "site", web), tmp_path / "bundle"
    assert main(["bundle", str(inventory), str(bundle)]) == 0
    (bundle / "k3s" / VERSION / "k3s").write_bytes(b"touched")
    web.asked.clear()
    assert main(["bundle", str(inventory), str(bundle)]) == 0
    assert web.asked == [f"/k3s/{ESCAPED}/k3s"]
    assert (bundle / "k3s" / VERSION / "k3s").read_bytes() == b"k3s"


@pytest.mark.parametrize("form", ["folder", "archive"])
def test_a_site_with_a_bundle_needs_no_server(web: Web, tmp_path: Path, form: str) -> None:
    bundle, archive = tmp_path / "bundle", tmp_path / "bundle.tar"
    command = ["bundle", str(site(tmp_path / "site", web)), str(bundle), "--archive", str(archive)]
    assert main(command) == 0
    web.asked.clear()
    used = bundle if form == "folder" else archive
    inventory = load(site(tmp_path / "other", web, f'mode: bundle, bundle: "{used}"'))
    assert artifacts.binary(inventory).blob.content() == b"k3s"
    images = artifacts.images(inventory)
    assert images is not None
    assert images.blob.content() == IMAGES
    assert inventory.gpu is not None
    assert inventory.gpu.operator is not None
    declared = operator_chart("gpu-operator", inventory.gpu.operator, "", ("gpu", "operator"))
    assert chart_of(inventory, declared).content  # nodes get it inside of the HelmChart
    assert web.asked == []


def test_a_bundle_that_differs_from_its_manifest_is_refused(web: Web, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    assert main(["bundle", str(site(tmp_path / "site", web)), str(bundle)]) == 0
    (bundle / "k3s" / VERSION / "k3s").write_bytes(b"touched")
    inventory = load(site(tmp_path / "other", web, f'mode: bundle, bundle: "{bundle}"'))
    with pytest.raises(UsageError) as caught:
        artifacts.binary(inventory)
    assert caught.value.diagnostics[0].code == "BUNDLE_CHANGED"


def test_the_same_bundle_gives_the_same_archive(web: Web, tmp_path: Path) -> None:
    inventory, bundle = str(site(tmp_path / "site", web)), str(tmp_path / "bundle")
    archives = [tmp_path / "a.tar", tmp_path / "b.tar"]
    for archive in archives:
        assert main(["bundle", inventory, bundle, "--archive", str(archive)]) == 0
    assert archives[0].read_bytes() == archives[1].read_bytes()
