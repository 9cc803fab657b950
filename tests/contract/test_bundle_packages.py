"""Packages of hosts in a bundle: apt verifies and resolves, and installs them without a network."""

from __future__ import annotations

import json
import lzma
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from provision.api.domains import load_inventory as load
from provision.cli.main import main
from provision.contracts.remedy import Fix
from provision.contracts.resource import Resource
from provision.contracts.snapshot import Snapshot
from provision.hosts.apt_sources import KEY
from provision.hosts.protocol.script import observe_script
from provision.hosts.queries.apt import policy
from provision.hosts.queries.file import ABSENT, FileStatus
from provision.hosts.resources.apt_source import AptSource, AptSourceGone
from provision.hosts.resources.base import HostResource
from provision.hosts.resources.package import Package, PackageState, PackageStatus
from provision.hosts.roles import base_os
from provision.inventory import Inventory, Subject
from provision.testing.model_host import ModelHost, guest_state
from provision.values.errors import UsageError
from tests.contract.apt_archive import Archive, new_archive
from tests.unit.hosts.roles.test_shipped_inventories import resources_of

SUITES = ("bookworm", "bookworm-updates")
SITE = """
version: 1
name: site
access: {{ user: root }}
sources: {{ apt: "{url}/debian", apt_key: ./key.asc, {more} }}
nodes:
  n1: {{ address: 198.51.100.1, packages: [tool] }}
  n2: {{ address: 198.51.100.2, packages: [other], storage_unused: 1 }}
  n3: {{ address: 198.51.100.3, swap: "off" }}
"""


class Quiet(SimpleHTTPRequestHandler):
    asked: list[str]

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[str]]]:
    (tmp_path / "web").mkdir()
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    asked: list[str] = []
    handler = type("Handler", (Quiet,), {"asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(tmp_path / "web")))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    archive = new_archive(tmp_path)
    archive.add("library")
    archive.add("library", "1.1", suite="bookworm-updates")
    archive.add("tool", depends="library (>= 1.0)")
    archive.add("other", depends="library", more="Recommends: recommended\n")
    archive.add("recommended")
    archive.add("unneeded")
    archive.publish(*SUITES)
    security = Archive(tmp_path / "web" / "debian-security", archive.home)
    security.publish("bookworm-security")
    archive.key(tmp_path / "key.asc")
    yield archive
    archive.end()


@pytest.fixture
def site(tmp_path: Path, web: tuple[str, list[str]], archive: Archive) -> Path:
    del archive
    file = tmp_path / "site.yaml"
    file.write_text(_text(web[0], "releases: [debian-12]"))
    return file


def _text(url: str, more: str) -> str:
    return SITE.format(url=url, more=more).replace(", storage_unused: 1", "")


def rows(bundle: Path) -> dict[str, dict[str, Any]]:
    return {row["path"]: row for row in json.loads((bundle / "manifest.json").read_text())["files"]}


def make(site: Path) -> Path:
    bundle = site.parent / "bundle"
    assert main(["bundle", str(site), str(bundle)]) == 0
    return bundle


def test_a_bundle_has_what_the_roles_install_with_all_that_it_needs(site: Path, archive: Archive) -> None:
    bundle = make(site)
    listed = rows(bundle)
    debs = {Path(path).name: row["hosts"] for path, row in listed.items() if path.endswith(".deb")}
    assert debs == {
        "tool_1.0_amd64.deb": ["n1"],
        "library_1.1_amd64.deb": ["n1", "n2"],
        "other_1.0_amd64.deb": ["n2"],
        "recommended_1.0_amd64.deb": ["n2"],
    }
    signed = {path: row["release"] for path, row in listed.items() if path.endswith("/InRelease")}
    assert signed == {
        f"apt/{name}/dists/{suite}/InRelease": "debian-12"
        for name, suite in (
            *(("debian", suite) for suite in SUITES),
            ("debian-security", "bookworm-security"),
        )
    }
    for path in signed:  # as the archive has signed them
        assert (bundle / path).read_bytes() == (
            archive.folder.parent / path.removeprefix("apt/")
        ).read_bytes()


def test_a_second_run_fetches_nothing_and_keeps_its_index(
    site: Path, web: tuple[str, list[str]], archive: Archive
) -> None:
    bundle = make(site)
    before = (bundle / "manifest.json").read_bytes()
    archive.add("library", "1.2", suite="bookworm-updates")
    archive.publish(*SUITES)
    web[1].clear()
    assert make(site) == bundle
    assert web[1] == []
    assert (bundle / "manifest.json").read_bytes() == before


def test_what_a_node_has_installed_may_need_upgrades_that_come_too(site: Path, archive: Archive) -> None:
    archive.add("lonely", "2.0")
    archive.add("tool", "2.0", more="Breaks: lonely (<< 2.0)\n")
    archive.publish(*SUITES)
    status = "Package: lonely\nStatus: install ok installed\nVersion: 1.0\nArchitecture: amd64\n"
    (site.parent / "installed").mkdir()
    (site.parent / "installed" / "n1").write_text(f"{status}Maintainer: A <a@example.org>\nDescription: x\n")
    bundle = site.parent / "bundle"
    assert main(["bundle", str(site), str(bundle), "--installed", str(site.parent / "installed")]) == 0
    debs = {Path(path).name: row["hosts"] for path, row in rows(bundle).items() if path.endswith(".deb")}
    assert debs["lonely_2.0_amd64.deb"] == ["n1"]
    assert debs["tool_2.0_amd64.deb"] == ["n1"]


@pytest.mark.parametrize("damage", ["key", "index", "package"])
def test_what_the_signed_index_does_not_name_is_refused(
    site: Path, archive: Archive, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if damage == "key":
        stranger = Archive(archive.folder, site.parent / "stranger")
        stranger.home.mkdir(mode=0o700)
        stranger.gpg("--quick-gen-key", "Stranger <a@example.org>", "rsa2048", "sign", "never")
        stranger.key(site.parent / "key.asc")
        stranger.end()
    elif damage == "index":
        file = archive.folder / "dists/bookworm/main/binary-amd64/Packages.xz"
        file.write_bytes(lzma.compress(lzma.decompress(file.read_bytes()) + b"\n"))
    else:
        file = archive.folder / "pool/main/tool_1.0_amd64.deb"
        file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert main(["bundle", str(site), str(site.parent / "bundle")]) == 1
    expected = "PACKAGES_UNREADABLE" if damage == "key" else "DOWNLOAD_WRONG"
    assert expected in capsys.readouterr().err
    assert not (site.parent / "bundle" / "manifest.json").exists()


def _listed_at(archive: Archive, place: str) -> None:
    """List `tool` at another place of the archive, in an index that is signed."""
    own = "Filename: pool/main/tool_1.0_amd64.deb"
    rows = archive.packages["bookworm"]
    archive.packages["bookworm"] = [row.replace(own, f"Filename: {place}") for row in rows]
    file = (archive.folder / place).resolve()
    file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(archive.folder / "pool/main/tool_1.0_amd64.deb", file)
    archive.publish("bookworm")


@pytest.mark.parametrize("place", ["../x.deb", "pool/../../debian-security/x.deb", "dists/bookworm/x.deb"])
def test_a_package_outside_of_the_pool_of_its_archive_is_refused(
    site: Path, archive: Archive, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _listed_at(archive, place)
    assert main(["bundle", str(site), str(site.parent / "bundle")]) == 1
    assert "no place for a package" in capsys.readouterr().err
    assert list((site.parent / "bundle").rglob("x.deb")) == []


def test_a_package_whose_name_is_not_read_is_left_out_by_name(
    site: Path, archive: Archive, capsys: pytest.CaptureFixture[str]
) -> None:
    _listed_at(archive, "pool/to'ol.deb")
    make(site)
    assert "packages tool of n1: left out: it has no SHA256, or no plain name" in capsys.readouterr().err


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe no text",
        b"<html>log in first</html>",
        f" {'a' * 64} {'9' * 6000} main/binary-amd64/Packages.xz\n".encode(),
        f" {'a' * 64} 99 main/binary-amd64/Packages.xz\n".encode(),
    ],
    ids=["bytes", "page", "digits", "unsigned"],
)
def test_an_index_that_is_none_is_refused_and_not_kept(
    site: Path, archive: Archive, data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    signed = archive.folder / "dists/bookworm/InRelease"
    right = signed.read_bytes()
    signed.write_bytes(data)
    assert main(["bundle", str(site), str(site.parent / "bundle")]) == 1
    error = capsys.readouterr().err
    assert "look at the mirror" in error
    assert "provision pin" not in error
    signed.write_bytes(right)
    make(site)


def test_a_bundle_that_was_cut_takes_the_mirror_as_it_is_now(site: Path, archive: Archive) -> None:
    bundle = make(site)
    (bundle / "apt/debian/dists/bookworm/main/binary-amd64/Packages.xz").unlink()
    (bundle / "manifest.json").unlink()
    archive.add("tool", "1.1", depends="library (>= 1.0)")
    archive.publish(*SUITES)
    make(site)
    assert "apt/debian/pool/main/tool_1.1_amd64.deb" in rows(bundle)


@pytest.mark.parametrize(
    "place", ["elsewhere/x.deb", "apt/debian/a\nb.deb", "apt/debian/\x1b[2J.deb", "apt/a\\b"]
)
def test_a_manifest_names_no_other_place_for_packages(
    site: Path, web: tuple[str, list[str]], place: str
) -> None:
    bundle = make(site)
    manifest = json.loads((bundle / "manifest.json").read_text())
    row = next(row for row in manifest["files"] if row["path"].endswith("tool_1.0_amd64.deb"))
    file = bundle / place
    file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(bundle / row["path"], file)
    site.write_text(_text(web[0], f'mode: bundle, bundle: "{bundle}"'))
    assert _resources(load(site), "n1")
    row["path"] = place
    (bundle / "manifest.json").write_text(json.dumps(manifest, indent=1))
    with pytest.raises(UsageError, match="BUNDLE_UNREADABLE"):
        _resources(load(site), "n1")


def test_a_package_that_the_archive_does_not_have_is_named(
    site: Path, web: tuple[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    site.write_text(_text(web[0], "releases: [debian-12]").replace("[other]", "[nowhere]"))
    bundle = make(site)
    assert "packages nowhere of n2: left out: E: Unable to locate package nowhere" in capsys.readouterr().err
    assert {row["hosts"][0] for path, row in rows(bundle).items() if path.endswith(".deb")} == {"n1"}


def test_a_node_of_an_unknown_release_is_named(
    site: Path, web: tuple[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    site.write_text(_text(web[0], ""))
    bundle = make(site)
    assert "packages of n1, n2: left out, as their release is not known" in capsys.readouterr().err
    assert rows(bundle) == {}
    assert load(site).sources.releases == ()


PRIVATE = """set -eu
mkdir -p {root}/dpkg/info {root}/dpkg/updates {root}/dpkg/triggers
touch {root}/dpkg/status {root}/dpkg/available
mount --make-rprivate /
mount --bind {root}/dpkg /var/lib/dpkg
for folder in /var/lib/apt /var/cache/apt /var/log /usr/share/doc; do mount -t tmpfs none "$folder"; done
mkdir -p /var/lib/apt/lists/partial /var/cache/apt/archives/partial
sh {root}/first.sh
sh {root}/second.sh
dpkg-query -W -f '${{Package}} ${{Version}}\\n' >{root}/installed
find /var/lib/apt/lists -type f >{root}/foreign
sh {root}/third.sh
find /var/lib/apt -path '*provision*' >{root}/left
"""
"""This machine's apt and dpkg in mounts of their own, without any package and without a network."""


def _installed(site: Path, root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Install a package with the source of a node, then remove the source, as its fixes do."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root for mounts of its own")
    (made,) = [one for one in _resources(load(site), "n1") if isinstance(one, AptSource)]
    blobs = root / "state" / "blobs"
    blobs.mkdir(parents=True)
    for _, blob in made.blobs:
        (blobs / blob.sha256).write_bytes(blob.content())
    gone = AptSourceGone("n1/ssh")
    scripts = {
        "first": [_fix(made, dict.fromkeys(made.queries(), ABSENT))],
        "second": [
            policy(("tool",)).command,
            _fix(Package("n1/ssh", ("tool",)), {PackageState("tool"): PackageStatus()}),
        ],
        "third": [_fix(gone, dict.fromkeys(gone.queries(), FileStatus("directory")))],
    }
    for name, fragments in scripts.items():
        script = observe_script("nonce", fragments, state=str(root / "state"))
        (root / f"{name}.sh").write_bytes(script)
    private = ["unshare", "-m", *options, "sh", "-c", PRIVATE.format(root=root)]
    return subprocess.run(private, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("kind", ["bundle", "mirror", "bundle on a web server"])
def test_a_host_installs_from_our_source_alone_and_nothing_of_it_is_left(
    site: Path, web: tuple[str, list[str]], tmp_path: Path, kind: str
) -> None:
    root, options = tmp_path / "private", ["-n"] if kind == "bundle" else []
    if kind != "mirror":
        bundle = make(site)
        (tmp_path / "web" / "bundle").symlink_to(bundle)
        served = f'mode: mirror, mirror: "{web[0]}/bundle"'
        site.write_text(_text(web[0], f'mode: bundle, bundle: "{bundle}"' if options else served))
    if kind == "bundle on a web server":
        site.write_text(site.read_text().replace("/debian", "/bundle/apt/debian"))
    if kind == "mirror":  # with a package of another archive beside it
        driver = Archive(tmp_path / "web" / "driver", tmp_path / "gpg")
        driver.add("library", "9.0")
        driver.publish("bookworm", origin="NVIDIA")
        line = f"deb [signed-by={KEY}] {web[0]}/driver bookworm main"
        site.write_text(_text(web[0], f"apt_more: ['{line}']"))
    web[1].clear()
    done = _installed(site, root, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    newest = "9.0" if kind == "mirror" else "1.1"
    assert (root / "installed").read_text() == f"library {newest}\ntool 1.0\n", done.stdout + done.stderr
    assert "o=Debian" in done.stdout  # as signed: drivers are told apart by it
    assert (root / "foreign").read_text() == ""
    assert (root / "left").read_text() == ""
    assert any("-security/dists/bookworm-security/InRelease" in path for path in web[1]) != bool(options)


def _resources(inventory: Inventory, name: str) -> list[Resource]:
    host = ModelHost(f"{name}/ssh", guest_state())
    return list(resources_of(base_os, inventory, Subject("node", name), host))


def _fix(resource: HostResource, answers: dict[Any, Any]) -> str:
    fix = resource.fix(Snapshot("n1/ssh", answers=answers))
    assert isinstance(fix, Fix)
    return fix.script
