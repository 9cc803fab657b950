"""Runs the commands of the pages against models of sites, so that no output is invented.

A block is run if the comment above it says on what: `<!-- run: INVENTORY STATE -->`. A number after the
state limits the lines that are shown.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import provision.api
from provision.api.domains import load_inventory
from provision.cli import main
from provision.inventory import Inventory
from provision.testing.model_host import ModelFile
from tests.model.model_site import ModelSite

FOLDERS = (Path(__file__).parents[2] / "inventories", Path(__file__).parent)
PROGRESS = re.compile(r"\d\d:\d\d:\d\d ")
BLOCK = re.compile(
    r"(<!-- run: (\S+) (\S+)(?: (\d+))? -->\n```console\n)(.*?)(^```$)", re.MULTILINE | re.DOTALL
)
SCRIPT = re.compile(
    r"(<!-- run: (\S+) (\S+) -->\n```python\n(.*?)^```\n\nprints\n\n```text\n)(.*?)(^```$)",
    re.MULTILINE | re.DOTALL,
)
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
    models: ModelSite | None

    def run(self, command: str) -> str:
        """Run one `provision` command line and return what a person sees of it, without passing progress."""
        words = shlex.split(command)
        if words[0] != "provision":
            raise ValueError(f"not a provision command: {command}")
        output = io.StringIO()
        with self.environment(), contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            main.main(words[1:])
        lines = (line.rstrip() for line in output.getvalue().splitlines())
        return "\n".join(line for line in lines if not PROGRESS.match(line)).strip("\n")

    def run_script(self, code: str) -> str:
        """Run Python that uses the library and return what it prints."""
        models = self.models
        if models is None:
            raise ValueError("a script needs models")
        load = provision.api.load

        def load_with_models(path: str) -> provision.api.Site:
            site = load(path, open_driver=models.open)
            site.verifier = models.verifier
            return site

        output = io.StringIO()
        with (
            self.environment(),
            mock.patch.object(provision.api, "load", load_with_models),
            contextlib.redirect_stdout(output),
        ):
            exec(compile(code, "page", "exec"), {})  # noqa: S102 - a page of ours
        return output.getvalue().strip("\n")

    @contextmanager
    def environment(self) -> Iterator[None]:
        """Have the commands of the block find the models, and a home of their own."""
        environ = {
            "HOME": str(self.folder),
            "COLUMNS": WIDTH,
            "NO_COLOR": "1",
            "PROVISION_STATE": str(self.folder / ".state"),
        }
        make = provision.api.Site

        def site(inventory: Inventory, **settings: Any) -> provision.api.Site:
            models = self.models
            if models is None:
                return make(inventory, **settings)
            return make(inventory, open_driver=models.open, verifier=models.verifier, **settings)

        with (
            contextlib.chdir(self.folder),
            mock.patch.dict(os.environ, environ),
            mock.patch.object(provision.api, "Site", site),
        ):
            yield


def prepare(name: str, state: str, folder: Path) -> Rehearsal:
    """Return the rehearsal of an inventory.

    Args:
        name: of a shipped inventory, or of one beside this file, without its ending.
        state: `fresh` before the first apply, `applied` after it, `drifted` with two things changed by hand.
        folder: where files are written.
    """
    for inventory in {name, "starter"}:
        source = next(each for each in FOLDERS if (each / f"{inventory}.yaml").exists())
        shutil.copy(source / f"{inventory}.yaml", folder)
    (folder / ".ssh").mkdir()
    (folder / ".ssh/id_ed25519").write_text("a private key\n")
    (folder / ".ssh/id_ed25519.pub").write_text("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample you@laptop\n")
    (folder / ".config/provision").mkdir(parents=True)
    for token in (name, "starter"):
        (folder / f".config/provision/{token}.token").write_text("11111111-2222-3333-4444-555555555555\n")
    if name == "mistakes":
        return Rehearsal(folder, None)
    with mock.patch.dict(os.environ, {"HOME": str(folder)}):
        _pin(load_inventory(folder / f"{name}.yaml"), folder)
        models = ModelSite(load_inventory(folder / f"{name}.yaml"), folder / ".state")
    rehearsal = Rehearsal(folder, models)
    if state != "fresh":
        with rehearsal.environment():
            models.apply(ask=models.person)
    if state == "drifted":
        models.apis["pve/api"].vms[111].config["memory"] = "8192"
        models.hosts["web/ssh"].state.files["/etc/motd"] = ModelFile(b"Hello\n")
        models.hosts["web/ssh"].state.packages.pop("curl", "")
    return rehearsal


def _pin(inventory: Inventory, folder: Path) -> None:
    """Write the lock file that `provision pin` writes; the digests are examples."""
    lines = ["version: 1", "images:"]
    for name, image in inventory.images.items():
        digest = image.sha256 or hashlib.sha256(name.encode()).hexdigest()
        lines += [f"  {name}:", f"    url: {image.url}", f'    sha256: "{digest}"']
    (folder / "provision.lock.yaml").write_text("\n".join(lines) + "\n")


def refreshed(text: str) -> str:
    """Return a page with the outputs of its commands as they are now."""
    text = SCRIPT.sub(lambda match: f"{match[1]}{_printed(match[2], match[3], match[4])}\n{match[6]}", text)
    return BLOCK.sub(lambda match: _block(match, _outputs), text)


def without_outputs(text: str) -> str:
    """Return a page with commands and no outputs of theirs."""
    return BLOCK.sub(lambda match: _block(match, lambda *_: ""), text)


def _block(match: re.Match[str], output_of: Callable[[str, str, str], str]) -> str:
    head, name, state, limit, body, end = match.groups()
    commands = re.findall(r"^\$ .+$", body, re.MULTILINE)
    parts = []
    for command in commands:
        lines = output_of(name, state, command.removeprefix("$ ")).splitlines()
        if limit is not None and len(lines) > int(limit):
            lines = [*lines[: int(limit)], "[...]"]
        parts.append("\n".join([command, *lines]))
    shown = "\n\n".join(parts)
    return f"{head}{shown}\n{end}"


@cache
def _outputs(name: str, state: str, command: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return prepare(name, state, Path(folder)).run(command).replace(folder, "/home/you")


def _printed(name: str, state: str, code: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return prepare(name, state, Path(folder)).run_script(code)
