"""apt-get of this machine with folders of its own, as another release and with nothing installed.

It resolves for hosts that it never sees, and alters nothing of this machine. With an empty list of installed
packages, the result has all that a package needs, whatever a host has installed already. Sources:
apt.conf(5), apt-get(8) (`--print-uris`, `Acquire::ForceHash`), apt-secure(8).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent

SECONDS = 600
_URI = re.compile(r"'(file:[^']+)' \S+ ([0-9]{1,15}) SHA256:([0-9a-f]{64})")
_NOTHING = ("Etc::Main", "Etc::Parts", "Etc::SourceParts", "Etc::Preferences", "Etc::PreferencesParts")
_MAY_MOVE = ("--allow-change-held-packages", "--allow-downgrades")
"""As roles install a driver."""
_NO_KEYS = ("Etc::Trusted", "Etc::TrustedParts")


@dataclass(frozen=True, slots=True)
class PackageFile:
    """One package of a transaction.

    Args:
        file: where the source has it.
        size: bytes.
        sha256: of the signed index, in hex.
    """

    file: Path
    size: int
    sha256: str


def is_there() -> bool:
    """Whether this machine has apt."""
    return shutil.which("apt-get") is not None and shutil.which("apt-cache") is not None


@dataclass(frozen=True, slots=True)
class AptRoot:
    """One apt.

    Args:
        folder: of its own; removed by who made it.
        architecture: of the hosts (`amd64`).
    """

    folder: Path
    architecture: str

    def open(self, sources: str) -> None:
        """Verify the indexes of sources, which are folders of this machine, and read them.

        Args:
            sources: in the format deb822.

        Raises:
            Permanent: PACKAGES_UNREADABLE: a signature or an index is wrong.
        """
        (self.folder / "lists").mkdir()
        (self.folder / "status").touch()
        (self.folder / "provision.sources").write_text(sources)
        nothing = "".join(f'Dir::{name} "/dev/null";\n' for name in (*_NOTHING, *_NO_KEYS))
        (self.folder / "apt.conf").write_text(
            f'{nothing}Dir::Etc::SourceList "{self.folder}/provision.sources";\n'
            f'Dir::State "{self.folder}";\nDir::State::Lists "{self.folder}/lists/";\n'
            f'Dir::State::status "{self.folder}/status";\nDir::Cache "{self.folder}/cache";\n'
            f'Dir::Log "{self.folder}/log";\n'
            f'APT::Architecture "{self.architecture}";\nAPT::Architectures {{ "{self.architecture}"; }};\n'
            'APT::Sandbox::User "root";\nAPT::Update::Error-Mode "any";\n'
            'Acquire::Languages "none";\nAcquire::CompressionTypes::Order { "xz"; "gz"; };\n'
            'Acquire::ForceHash "SHA256";\nDebug::NoLocking "true";\n'
        )
        code, output = self._run("apt-get", "-q", "update")
        if code:
            raise _failed("PACKAGES_UNREADABLE", "apt does not accept the package indexes", output)

    def policy(self, names: Sequence[str]) -> str:
        """Return what `apt-cache policy` prints of archives, then a line `@packages`, then of packages.

        Raises:
            Permanent: PACKAGES_UNREADABLE.
        """
        texts: list[str] = []
        for more in ((), ("--", *names)):
            code, output = self._run("apt-cache", "policy", *more)
            if code:
                raise _failed("PACKAGES_UNREADABLE", "apt-cache cannot read the package indexes", output)
            texts.append(output)
        return "@packages\n".join(texts)

    def transaction(
        self, requests: Sequence[str], status: Path | None = None, *, recommends: bool = True
    ) -> tuple[PackageFile, ...] | str:
        """Return what packages need, themselves included; the words of apt where it refuses.

        Args:
            requests: `NAME` or `NAME=VERSION`.
            status: what a host has installed, as dpkg's file `status`; None for nothing.
            recommends: whether recommended packages come with them.
        """
        installed = () if status is None else ("-o", f"Dir::State::status={status}", *_MAY_MOVE)
        more = () if recommends else ("--no-install-recommends",)
        command = ("apt-get", *installed, *more, "-qq", "-y", "--print-uris", "install", "--", *requests)
        code, output = self._run(*command)
        if code:
            words = [line.strip() for line in output.splitlines() if "E: " in line or " Depends: " in line]
            return "; ".join(words)[:500] or "apt-get refuses, and does not say why"
        files: list[PackageFile] = []
        for line in output.splitlines():
            match = _URI.fullmatch(line.strip())
            if match is not None:
                place = Path(unquote(match[1].removeprefix("file:")))
                files.append(PackageFile(place, int(match[2]), match[3]))
            elif line.startswith("'"):
                return f"it has no SHA256, or no plain name: {line[:300]}"
        return tuple(files)

    def _run(self, *command: str) -> tuple[int, str]:
        environment = {
            "APT_CONFIG": str(self.folder / "apt.conf"),
            "PATH": os.environ.get("PATH", os.defpath),
            "LC_ALL": "C",
        }
        try:
            process = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _failed("PACKAGES_UNREADABLE", f"{command[0]} does not answer", str(error)) from None
        return process.returncode, process.stdout.decode("utf-8", "replace")


def _failed(code: str, summary: str, output: str) -> Permanent:
    rows = tuple(line for line in output.splitlines() if line.startswith(("E:", "W:")))[:5]
    remedy = (
        "install the key ring of the distribution here, or declare `sources.apt_key`; else look at the mirror"
    )
    return Permanent(Diagnostic(code, summary, evidence=rows or (output[-300:],), remedy=remedy))
