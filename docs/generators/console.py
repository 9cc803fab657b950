"""Runs the commands of the pages against models of the sites in `inventories/`, so that no output is invented."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import provision.api
from provision.cli import main
from provision.inventory import load
from tests.model.model_site import ModelSite

ROOT = Path(__file__).parents[2]
WIDTH = "96"
"""Columns of the terminal: what a page of the site shows without scrolling."""


@dataclass
class Rehearsal:
    """A folder with an inventory, and the models of its systems.

    Args:
        folder: current folder of the commands.
        models: hypervisors, router and nodes in memory.
    """

    folder: Path
    models: ModelSite

    def run(self, command: str) -> str:
        """Run one `provision` command line and return what it writes to standard output."""
        words = shlex.split(command)
        if words[0] != "provision":
            raise ValueError(f"not a provision command: {command}")
        output = io.StringIO()
        with self._environment(), contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
            main.main(words[1:])
        return output.getvalue()

    @contextmanager
    def _environment(self) -> Iterator[None]:
        before = Path.cwd()
        environ = {
            "HOME": str(self.folder),
            "COLUMNS": WIDTH,
            "NO_COLOR": "1",
            "PROVISION_STATE": str(self.folder / ".state"),
        }

        try:
            os.chdir(self.folder)
            with mock.patch.dict(os.environ, environ), mock.patch.object(
                provision.api, "Site", partial(_site, provision.api.Site, self.models)
            ):
                yield
        finally:
            os.chdir(before)


def _site(make: Callable[..., Any], models: ModelSite, inventory: Any, **settings: Any) -> Any:
    return make(inventory, open_driver=models.open, verifier=models.verifier, **settings)


def prepare(name: str, state: str, folder: Path) -> Rehearsal:
    """Return the rehearsal of a shipped inventory.

    Args:
        name: of the file in `inventories/`, without its ending.
        state: `fresh` before the first apply, `applied` after it, `drifted` after somebody changed two things.
        folder: where files are written.
    """
    shutil.copy(ROOT / "inventories" / f"{name}.yaml", folder)
    (folder / ".ssh").mkdir()
    (folder / ".ssh/id_ed25519").write_text("a private key\n")
    (folder / ".ssh/id_ed25519.pub").write_text("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample you@laptop\n")
    (folder / ".config/provision").mkdir(parents=True)
    (folder / f".config/provision/{name}.token").write_text("11111111-2222-3333-4444-555555555555\n")
    with mock.patch.dict(os.environ, {"HOME": str(folder)}):
        inventory = load(folder / f"{name}.yaml")
        _pin(inventory, folder)
        inventory = load(folder / f"{name}.yaml")
        rehearsal = Rehearsal(folder, ModelSite(inventory, folder / ".state"))
    if state != "fresh":
        rehearsal.run(f"provision apply {name}.yaml --yes")
    if state == "drifted":
        host = rehearsal.models.hosts["web/ssh"].state
        host.files["/etc/motd"].content = b"Hello\n"
        host.packages.pop("curl")
    return rehearsal


def _pin(inventory: Any, folder: Path) -> None:
    """Write the lock file that `provision pin` writes; the digests are examples."""
    lines = ["version: 1", "images:"]
    for name, image in inventory.images.items():
        digest = image.sha256 or hashlib.sha256(name.encode()).hexdigest()
        lines += [f"  {name}:", f"    url: {image.url}", f'    sha256: "{digest}"']
    (folder / "provision.lock.yaml").write_text("\n".join(lines) + "\n")


@contextmanager
def rehearsal(name: str, state: str) -> Iterator[Rehearsal]:
    """Yield the rehearsal of a shipped inventory in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        yield prepare(name, state, Path(folder))


if __name__ == "__main__":
    import sys

    with rehearsal(sys.argv[1], sys.argv[2]) as stage:
        for line in sys.argv[3:]:
            print("$", line)
            print(stage.run(line))
