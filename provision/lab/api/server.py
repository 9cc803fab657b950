"""Serves the API over HTTPS with reason phrases of our own.

uvicorn takes the phrase from the status code, but Proxmox VE's message *is* the reason phrase and clients
read it from there. The application names it in a header that never leaves this process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

REASON_HEADER = b"x-lab-reason"


class _Connection(h11.Connection):
    """An h11 connection that turns the private header into the reason phrase."""

    def send(self, event: Any) -> Any:
        if isinstance(event, h11.Response):
            headers = list(event.headers)
            reason = next((value for name, value in headers if name == REASON_HEADER), event.reason)
            event = h11.Response(
                status_code=event.status_code,
                headers=[header for header in headers if header[0] != REASON_HEADER],
                reason=reason,
            )
        return super().send(event)


class ReasonProtocol(H11Protocol):
    """uvicorn's HTTP protocol on such a connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = _Connection(h11.SERVER, 64 * 1024)


def make_server(
    app: ASGIApp, host: str, port: int, certfile: Path | None = None, keyfile: Path | None = None
) -> uvicorn.Server:
    """Return a server that is not started yet; without a certificate it speaks plain HTTP."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=ReasonProtocol,
        ws="none",
        lifespan="off",
        ssl_certfile=certfile,
        ssl_keyfile=str(keyfile) if keyfile is not None else None,
        server_header=False,
        log_config=None,
        access_log=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


def serve(app: ASGIApp, host: str, port: int, certfile: Path, keyfile: Path) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        app: the application.
        host: address to listen on.
        port: TCP port; Proxmox VE's is 8006.
        certfile: PEM certificate.
        keyfile: PEM key.
    """
    make_server(app, host, port, certfile, keyfile).run()
