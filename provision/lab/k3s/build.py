"""Makes the stand-in: one file that every guest with Python runs, the same bytes each time."""

from __future__ import annotations

import io
import stat
import zipfile
from pathlib import Path

from provision.lab.k3s.settings import VERSION

_PACKAGES = ("kube", "k3s")
_START = "import sys\nfrom provision.lab.k3s.main import main\nsys.exit(main(sys.argv[1:]))\n"
_WHEN = (2026, 1, 1, 0, 0, 0)


def stand_in(version: str = VERSION) -> bytes:
    """Return the content of the executable, which says that it is a version of k3s."""
    lab = Path(__file__).parent.parent
    files = {"__main__.py": _START, "provision/__init__.py": "", "provision/lab/__init__.py": ""}
    for package in _PACKAGES:
        for path in sorted((lab / package).glob("*.py")):
            text = path.read_text(encoding="utf-8")
            files[f"provision/lab/{package}/{path.name}"] = text.replace(f'"{VERSION}"', f'"{version}"')
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name, _WHEN), text)
    return b"#!/usr/bin/env python3\n" + held.getvalue()


def write(path: Path, version: str = VERSION) -> Path:
    """Write the executable to a path and return it."""
    path.write_bytes(stand_in(version))
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return path
