"""Downloading an image with its checksum, inside a task; what fails leaves no file."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from provision.lab.api.errors import TaskError
from provision.lab.api.tasks import TaskLog

_CHUNK = 1 << 20
_TIMEOUT = (15.0, 120.0)
# wget's exit codes, which the real task repeats.
_NETWORK_FAILURE = 4
_TLS_FAILURE = 5
_SERVER_ERROR = 8


@dataclass(frozen=True, slots=True)
class Download:
    """One download.

    Args:
        url: http or https.
        target: the file on this machine.
        shown: the path that the real node would name.
        algorithm: hashlib name, empty without a checksum.
        checksum: expected hex digest.
        verify: check the server's certificate.
    """

    url: str
    target: Path
    shown: str
    algorithm: str
    checksum: str
    verify: bool


def file_digest(path: Path, algorithm: str) -> str:
    """Return a file's hex digest."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def run(job: Download, log: TaskLog) -> None:
    """Fetch into a file beside the target, check, and rename.

    Raises:
        TaskError: with the real texts.
    """
    log.line(f"downloading {job.url} to {job.shown}")
    if job.target.exists():
        if not job.algorithm:
            raise TaskError(f"refusing to override existing file '{job.shown}'")
        got = file_digest(job.target, job.algorithm)
        if got != job.checksum.lower():
            raise TaskError(f"checksum mismatch: got '{got}' != expect '{job.checksum}', aborting")
        log.line("calculating checksum of existing file...OK, got correct file already, no need to download")
        return
    beside = job.target.with_name(f"{job.target.name}.tmp_dwnl.{os.getpid()}")
    try:
        _fetch(job, beside, log)
        if job.algorithm:
            got = file_digest(beside, job.algorithm)
            if got != job.checksum.lower():
                log.line("calculating checksum...")
                raise TaskError(f"checksum mismatch: got '{got}' != expect '{job.checksum}'")
            log.line("calculating checksum...OK, checksum verified")
        beside.replace(job.target)
    finally:
        beside.unlink(missing_ok=True)
    log.line(f"download of '{job.url}' to '{job.shown}' finished")


def _fetch(job: Download, beside: Path, log: TaskLog) -> None:
    import requests  # noqa: PLC0415 - slow to import, and only downloads need it

    try:
        with requests.Session() as session:
            session.trust_env = False  # the lab's site has no proxy, whatever this machine has
            answer = session.get(job.url, stream=True, timeout=_TIMEOUT, verify=job.verify)
            log.line(f"HTTP request sent, awaiting response... {answer.status_code} {answer.reason}")
            if not answer.ok:
                raise TaskError(f"download failed: exit code {_SERVER_ERROR}")
            with beside.open("wb") as file:
                for chunk in answer.iter_content(_CHUNK):
                    file.write(chunk)
    except requests.exceptions.SSLError as error:
        raise TaskError(f"download failed: exit code {_TLS_FAILURE}") from error
    except requests.exceptions.RequestException as error:
        raise TaskError(f"download failed: exit code {_NETWORK_FAILURE}") from error


def metadata(url: str, *, verify: bool) -> dict[str, str | int]:
    """Return file name, type and size that a URL's server announces.

    Raises:
        TaskError: it cannot be asked, or says no.
    """
    import requests  # noqa: PLC0415 - as above

    try:
        with requests.Session() as session:
            session.trust_env = False
            answer = session.head(url, timeout=_TIMEOUT, verify=verify, allow_redirects=True)
    except requests.exceptions.RequestException as error:
        raise TaskError(f"invalid server response: '{type(error).__name__}'") from error
    if not answer.ok:
        raise TaskError(f"invalid server response: '{answer.status_code} {answer.reason}'")
    result: dict[str, str | int] = {"filename": url.rstrip("/").rpartition("/")[2]}
    if "content-type" in answer.headers:
        result["mimetype"] = answer.headers["content-type"].partition(";")[0]
    if "content-length" in answer.headers:
        result["size"] = int(answer.headers["content-length"])
    return result
