"""A way from a lab to Debian's archive: an HTTP proxy that gets packages from there and nowhere else."""

from __future__ import annotations

import shutil
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError

from provision.lab import netns
from tests.e2e.site import Site

ADDRESS, PORT = "198.18.0.254", 3142
"""The controller's own address in the lab's network."""
ARCHIVE = "http://deb.debian.org/"
SOURCES = "".join(
    f"deb {ARCHIVE}{archive} {suite} main contrib non-free non-free-firmware\n"
    for archive, suite in (("debian", "bookworm"), ("debian-security", "bookworm-security"))
)


def is_reachable() -> bool:
    """Whether this machine reaches the archive."""
    try:
        with urllib.request.urlopen(f"{ARCHIVE}debian/dists/bookworm/Release", timeout=20):  # noqa: S310 - http
            return True
    except OSError:
        return False


class _Proxy(BaseHTTPRequestHandler):
    """Answers a GET of apt with what the archive says."""

    def do_GET(self) -> None:
        if not self.path.startswith(ARCHIVE):
            self.send_error(403)
            return
        kept = {key: value for key, value in self.headers.items() if key.startswith(("If-", "Range"))}
        try:
            with urllib.request.urlopen(urllib.request.Request(self.path, headers=kept), timeout=60) as got:  # noqa: S310 - http, by the line above
                self.send_response(got.status)
                for key in ("Content-Length", "Last-Modified", "Content-Range"):
                    if got.headers[key]:
                        self.send_header(key, got.headers[key])
                self.end_headers()
                shutil.copyfileobj(got, self.wfile)
        except HTTPError as error:
            self.send_error(error.code)

    def log_message(self, *_words: object) -> None:
        """Say nothing."""


@contextmanager
def archive(site: Site) -> Iterator[str]:
    """Let a lab's machines reach the archive through an HTTP proxy; yield its address."""
    listening: list[socket.socket] = []

    def listen() -> None:  # a socket stays in the network in which it was made
        netns.join(site.namespace)
        listening.append(socket.create_server((ADDRESS, PORT)))

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    server = ThreadingHTTPServer((ADDRESS, PORT), _Proxy, bind_and_activate=False)
    server.socket.close()
    server.socket = listening[0]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://{ADDRESS}:{PORT}"
    server.shutdown()
    server.server_close()
