"""A signed archive of Debian packages in a folder, made of nothing but dpkg-deb and gpg."""

from __future__ import annotations

import hashlib
import lzma
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

COMPONENTS = ("main", "contrib", "non-free", "non-free-firmware")


@dataclass
class Archive:
    """One archive.

    Args:
        folder: what a web server gives out.
        home: of gpg, with its key.
    """

    folder: Path
    home: Path
    packages: dict[str, list[str]] = field(default_factory=dict)

    def add(
        self, name: str, version: str = "1.0", depends: str = "", suite: str = "bookworm", more: str = ""
    ) -> Path:
        """Build a package and list it in a suite; `publish` comes after all of them."""
        tree = self.home / f"{name}-{version}"
        (tree / "DEBIAN").mkdir(parents=True, exist_ok=True)
        (tree / "usr/share/doc").joinpath(name).mkdir(parents=True, exist_ok=True)
        (tree / "usr/share/doc" / name / "what").write_text(f"{name} {version}\n")
        control = f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: A <a@example.org>\n"
        control += f"Depends: {depends}\n" if depends else ""
        control += more
        (tree / "DEBIAN/control").write_text(f"{control}Description: {name}\n")
        place = f"pool/main/{name}_{version}_amd64.deb"
        file = self.folder / place
        file.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["dpkg-deb", "-Znone", "-b", str(tree), str(file)], check=True, capture_output=True)
        data = file.read_bytes()
        rows = f"Filename: {place}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
        self.packages.setdefault(suite, []).append(f"{control}{rows}Description: {name}\n")
        return file

    def publish(self, *suites: str, origin: str = "Debian") -> None:
        """Write and sign the indexes of suites."""
        for suite in suites:
            dists = self.folder / "dists" / suite
            sums: list[str] = []
            for component in COMPONENTS:
                listed = self.packages.get(suite, []) if component == "main" else []
                text = "\n".join(listed).encode()
                place = f"{component}/binary-amd64/Packages"
                (dists / place).parent.mkdir(parents=True, exist_ok=True)
                packed = lzma.compress(text)
                (dists / f"{place}.xz").write_bytes(packed)
                for name, data in ((place, text), (f"{place}.xz", packed)):
                    sums.append(f" {hashlib.sha256(data).hexdigest()} {len(data)} {name}")
            date = time.strftime("%a, %d %b %Y %H:%M:%S UTC", time.gmtime())
            head = f"Origin: {origin}\nSuite: stable\nCodename: {suite}\nDate: {date}\n"
            head += f"Architectures: amd64\nComponents: {' '.join(COMPONENTS)}\n"
            (dists / "Release").write_text(f"{head}SHA256:\n" + "\n".join(sums) + "\n")
            (dists / "InRelease").unlink(missing_ok=True)
            self.gpg("--clearsign", "-o", str(dists / "InRelease"), str(dists / "Release"))

    def key(self, file: Path) -> Path:
        """Write the public key that the archive is signed with."""
        file.write_bytes(self.gpg("--armor", "--export"))
        return file

    def gpg(self, *words: str) -> bytes:
        """Run gpg with the archive's own key ring."""
        command = ["gpg", "--homedir", str(self.home), "--batch", "--yes", "--pinentry-mode", "loopback"]
        return subprocess.run([*command, "--passphrase", "", *words], check=True, capture_output=True).stdout

    def end(self) -> None:
        """End the agent that gpg started."""
        subprocess.run(["gpgconf", "--homedir", str(self.home), "--kill", "all"], check=False)


def new_archive(folder: Path) -> Archive:
    """Return an archive without packages, and its key."""
    for program in ("dpkg-deb", "gpg", "gpgv", "apt-get"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    home = folder / "gpg"
    home.mkdir(mode=0o700)
    archive = Archive(folder / "web" / "debian", home)
    archive.gpg("--quick-gen-key", "Archive <archive@example.org>", "rsa2048", "sign", "never")
    return archive
