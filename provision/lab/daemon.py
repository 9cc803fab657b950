"""The lab's daemon: the Proxmox API and the image server, inside the lab's network namespace.

`python -m provision.lab.daemon FOLDER` may be killed and started again at any time: all state is in files.
"""

from __future__ import annotations

import functools
import http.server
import importlib
import logging
import sys
import threading
from pathlib import Path
from typing import Any

from provision.lab import netns, record
from provision.lab.container import ContainerGuests
from provision.lab.contracts import Guests
from provision.lab.hypervisor import SshHypervisor
from provision.lab.images import Image
from provision.lab.qemu import QemuGuests
from provision.lab.record import Record
from provision.lab.settings import API_PORT, IMAGE_PORT, LabError, namespace
from provision.values.whole_file import write_whole

TOKEN_USER = "provision@pve"  # noqa: S105 - the user's name
TOKEN_NAME = "lab"  # noqa: S105 - the token's name, not its secret
TOKEN_ID = f"{TOKEN_USER}!{TOKEN_NAME}"
_LOG = logging.getLogger("provision.lab")


def make_guests(lab: Record) -> Guests:
    """Return the guests of the lab's driver."""
    folder = lab.settings.folder
    if lab.settings.driver == "qemu":
        return QemuGuests(folder, lab.accelerator)
    return ContainerGuests(folder, lab.images.rootfs)


class _ImageHandler(http.server.BaseHTTPRequestHandler):
    """Serves `/images/NAME.qcow2` and nothing else."""

    def __init__(self, served: dict[str, Image], *args: Any) -> None:
        self._served = served
        super().__init__(*args)

    def do_GET(self) -> None:
        """Answer with the image."""
        self._answer(body=True)

    def do_HEAD(self) -> None:
        """Answer with the image's length."""
        self._answer(body=False)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log through logging."""
        _LOG.info("images: " + format, *args)

    def _answer(self, *, body: bool) -> None:
        image = self._served.get(self.path)
        if image is None or not image.path.is_file():
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(image.path.stat().st_size))
        self.end_headers()
        if body:
            with image.path.open("rb") as file:
                while block := file.read(1 << 20):
                    self.wfile.write(block)


def serve_images(lab: Record) -> http.server.ThreadingHTTPServer:
    """Start the image server in a thread of its own."""
    served = {f"/images/{image.name}.qcow2": image for image in lab.images.served}
    handler = functools.partial(_ImageHandler, served)
    server = http.server.ThreadingHTTPServer((lab.settings.host_address, IMAGE_PORT), handler)
    threading.Thread(target=server.serve_forever, name="images", daemon=True).start()
    return server


def ensure_token(folder: Path, access: Any) -> None:
    """Create the privilege-separated API token of the lab's inventory; its secret goes to `keys/token`."""
    file = folder / "keys" / "token"
    if file.exists() and TOKEN_NAME in access.tokens(TOKEN_USER):
        return
    if TOKEN_USER not in access.users():
        access.add_user(TOKEN_USER, None)
    if TOKEN_NAME in access.tokens(TOKEN_USER):
        access.delete_token(TOKEN_USER, TOKEN_NAME)
    secret = access.add_token(TOKEN_USER, TOKEN_NAME, privsep=True)
    for kind, who in (("user", TOKEN_USER), ("token", TOKEN_ID)):
        access.set_acl("/", kind, who, "Administrator", propagate=True, delete=False)
    write_whole(file, secret + "\n")


def main(folder: Path) -> None:
    """Serve until killed."""
    logging.basicConfig(
        filename=folder / "daemon.log", level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    lab = record.load(folder)
    settings = lab.settings
    netns.join(namespace(folder))
    serve_images(lab)
    name, address = settings.hypervisor
    try:
        app_module = importlib.import_module("provision.lab.api.app")
        server_module = importlib.import_module("provision.lab.api.server")
    except ModuleNotFoundError as error:
        raise LabError(
            f"the lab's API needs the extra `lab` of this package: the module {error.name} is missing"
        ) from error
    hypervisor = SshHypervisor(folder, address, stand_in=settings.driver == "container")
    app = app_module.create_app(
        folder / "api",
        make_guests(lab),
        hypervisor,
        node=name,
        address=f"{address}/{settings.network.prefixlen}",
    )
    ensure_token(folder, app.state.lab.access)
    _LOG.info("serving the API of %s", settings.name)
    server_module.serve(
        app, settings.host_address, API_PORT, folder / "keys/api.pem", folder / "keys/api.key"
    )


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]).absolute())
    except LabError as problem:
        sys.exit(f"lab daemon: {problem}")
