"""Downloads and their SHA-256, over HTTP, or over HTTPS with certificate checks."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit, urlunsplit

from provision.connections.deadline import within
from provision.connections.http_text import can_be_sent
from provision.values.cancel import Cancel, Interrupted
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, Transient

if TYPE_CHECKING:
    import requests

CHUNK = 1024 * 1024
CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 60.0
HEAD_SECONDS = 120.0
"""How long a server may take until its answer begins, with all headers."""
CHUNK_SECONDS = 300.0
"""How long one chunk may take: a server that sends less than 3.5 KiB a second is given up."""
DOCUMENT_SECONDS = 600.0
"""How long a document may take that is kept in memory."""
LARGEST = 128 * 1024**3
"""Bytes of a file that is downloaded to a disk or only digested."""
LARGEST_IN_MEMORY = 4 * 1024**3
"""Bytes of a file that a plan reads whole: programs, charts, packages."""
LEAST_FREE = 64 * 1024**2
"""Bytes that a download leaves free on its disk."""
REDIRECTS = 10
LONGEST_NUMBER = 20
"""Digits of a number of 64 bits; Python refuses to read some thousands of them."""
REDIRECTED = frozenset({301, 302, 303, 307, 308})
OK, PARTIAL, UNSATISFIABLE = 200, 206, 416
SERVER_ERROR = 500
"""Statuses from here on are failures of the server, which a later try may not meet."""


def digest_of(
    url: str,
    cancel: Cancel,
    progress: Callable[[int, int], None] = lambda _read, _all: None,
    keep: Callable[[bytes], object] = lambda _chunk: None,
) -> tuple[str, int]:
    """Return SHA-256 (hex) and size (bytes) of the file at a URL; nothing is stored.

    Args:
        url: http or https; a redirect from https to http is refused.
        cancel: ends it early.
        progress: called with the bytes read and the size, which is 0 if the server does not send it.
        keep: called with each piece.

    Raises:
        Permanent: `DOWNLOAD_REFUSED`: another scheme, an invalid certificate, a client error.
        Transient: `DOWNLOAD_FAILED`: not reached, not complete, or a server error.
        Interrupted: the run must leave.
    """
    pieces = _Pieces(url, cancel, progress, keep)
    _request(url, pieces, {}, {}, (OK,))
    return pieces.digest.hexdigest(), pieces.read


def document(url: str, cancel: Cancel, limit: int) -> bytes:
    """Return the content of a URL.

    Raises:
        Permanent, Transient, Interrupted: as `digest_of`; Permanent where it has more bytes than `limit`.
    """
    return answer_of(url, cancel, limit, {})[2]


def answer_of(
    url: str,
    cancel: Cancel,
    limit: int,
    headers: Mapping[str, str],
    *,
    query: Mapping[str, str] | None = None,
    form: Mapping[str, str] | None = None,
    accepted: Collection[int] = (OK,),
) -> tuple[int, Mapping[str, str], bytes]:
    """Return status, headers (lower case) and content of a URL.

    Args:
        url: http or https.
        cancel: ends it early.
        limit: bytes that it may have.
        headers: sent to the host of the URL alone: a redirect to another one gets no credentials.
        query: parameters of the URL.
        form: what is posted to it, and to no other place.
        accepted: statuses that are an answer.

    Raises:
        Permanent, Transient, Interrupted: as `document`.
    """
    content = bytearray()
    deadline = time.monotonic() + DOCUMENT_SECONDS

    def keep(chunk: bytes) -> None:
        content.extend(chunk)
        if time.monotonic() > deadline:
            raise Transient(_failed(url, f"it took longer than {DOCUMENT_SECONDS:g} s"))

    pieces = _Pieces(url, cancel, lambda _read, _all: None, keep, limit)
    status, sent = _request(url, pieces, headers, query or {}, accepted, form=form)
    return status, sent, bytes(content)


def cached(sha256: str) -> bytes | None:
    """Return a file that this machine has downloaded; None where it has not, or has another one there."""
    try:
        data = (download_folder() / sha256).read_bytes()
    except OSError:
        return None
    return data if hashlib.sha256(data).hexdigest() == sha256 else None


def download_folder() -> Path:
    """Return where this machine keeps what it has downloaded, by digest."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "provision" / "downloads"


class _Pieces:
    """What becomes of the pieces of one answer, which has at most so many bytes."""

    def __init__(
        self,
        url: str,
        cancel: Cancel,
        progress: Callable[[int, int], None],
        keep: Callable[[bytes], object],
        most: int | None = None,
    ) -> None:
        self._url, self._cancel, self._progress, self._keep = url, cancel, progress, keep
        self._most = LARGEST if most is None else most
        self.digest, self.read = hashlib.sha256(), 0

    def take(self, chunk: bytes, size: int) -> None:
        """Take one piece of a file of a size, which is 0 if it is not known."""
        if self._cancel.draining:
            raise Interrupted
        if max(size, self.read + len(chunk)) > self._most:
            raise Permanent(
                Diagnostic("DOWNLOAD_REFUSED", f"{self._url}: it has more than {self._most} bytes")
            )
        self.digest.update(chunk)
        self._keep(chunk)
        self.read += len(chunk)
        self._progress(self.read, size)


def continued(
    url: str,
    begun: int,
    cancel: Cancel,
    progress: Callable[[int, int], None],
    keep: Callable[[bytes], object],
    restart: Callable[[], None],
    headers: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Read the rest of a file whose beginning is there already.

    Args:
        url: http or https.
        begun: bytes that are there.
        cancel: ends it early.
        progress: as for `digest_of`; it counts what is read now.
        keep: called with each piece.
        restart: called before the first piece, if the server sends the file from its beginning.
        headers: sent to the host of the URL alone.

    Raises:
        Permanent, Transient, Interrupted: as `digest_of`.
    """
    pieces = _Pieces(url, cancel, progress, keep)
    accepted = (OK, PARTIAL, UNSATISFIABLE) if begun else (OK,)
    _request(url, pieces, headers, {}, accepted, begun, restart)


def _request(
    url: str,
    pieces: _Pieces,
    headers: Mapping[str, str],
    query: Mapping[str, str],
    accepted: Collection[int],
    begun: int = 0,
    restart: Callable[[], None] = lambda: None,
    form: Mapping[str, str] | None = None,
) -> tuple[int, Mapping[str, str]]:
    import requests  # noqa: PLC0415 - slow: only when something is downloaded

    _require_sendable(url, headers)
    with requests.Session() as session:
        location = url
        for _ in range(REDIRECTS):
            try:
                _check_scheme(location, url)
                own = headers if urlsplit(location).netloc == urlsplit(url).netloc else {}
                posted = dict(form) if form and location == url else None
                send = partial(
                    session.request,
                    "POST" if posted else "GET",
                    location,
                    data=posted,
                    params=dict(query) if location == url else {},
                    stream=True,
                    allow_redirects=False,
                    timeout=(CONNECT_SECONDS, SILENCE_SECONDS),
                    headers={"Accept-Encoding": "identity", **_range(begun), **own},
                    auth=_credentials(location),
                )
                with _closed(within(HEAD_SECONDS, send)) as answer:
                    if answer.status_code in REDIRECTED and "location" in answer.headers:
                        location = urljoin(location, answer.headers["location"])
                        continue
                    if answer.status_code not in accepted:
                        raise _status(url, answer.status_code, answer.reason)
                    if answer.status_code == OK and begun:
                        restart()
                    if answer.status_code != UNSATISFIABLE:  # nothing is left to be read
                        _read(answer, pieces)
                    return answer.status_code, {key.lower(): text for key, text in answer.headers.items()}
            except TimeoutError as error:
                raise Transient(_failed(url, str(error))) from None
            except requests.exceptions.SSLError as error:
                summary = f"{url}: invalid certificate: {_cause(error)}"
                raise Permanent(Diagnostic("DOWNLOAD_REFUSED", summary)) from None
            except requests.exceptions.RequestException as error:
                raise Transient(_failed(url, _plain(_cause(error)))) from None
            except ValueError:  # of urllib and urllib3: an address or a header that is none
                summary = f"{url}: it leads to {location!r:.200}, which is not an address"
                raise Permanent(Diagnostic("DOWNLOAD_REFUSED", summary)) from None
    raise Permanent(Diagnostic("DOWNLOAD_REFUSED", f"{url}: more than {REDIRECTS} redirects"))


@contextmanager
def _closed(answer: requests.Response) -> Iterator[requests.Response]:
    """Close an answer in the end; one that another thread still reads, after a deadline, is left to it."""
    try:
        yield answer
    except TimeoutError:
        raise
    except BaseException:
        answer.close()
        raise
    answer.close()


def _require_sendable(url: str, headers: Mapping[str, str]) -> None:
    if not all(map(can_be_sent, headers.values())):
        summary = f"the login of {plain_url(url)} has characters that cannot be sent"
        remedy = "Check the secret of that login: it must be one line."
        raise Permanent(Diagnostic("DOWNLOAD_REFUSED", summary, remedy=remedy))


def _failed(url: str, why: str) -> Diagnostic:
    return Diagnostic("DOWNLOAD_FAILED", f"{url}: {why}")


def _credentials(url: str) -> Any:
    """Return those of the URL or none: left open, requests would send what `~/.netrc` has, to any host."""
    import requests  # noqa: PLC0415 - slow: only when something is downloaded

    own = requests.utils.get_auth_from_url(url)
    return own if any(own) else lambda request: request


def _range(begun: int) -> dict[str, str]:
    return {"Range": f"bytes={begun}-"} if begun else {}


def stored(url: str, sha256: str) -> bytes:
    """Return the file at a URL, from the cache of the controller where it is there already.

    Args:
        url: http or https.
        sha256: what it must be, in hex.

    Raises:
        Permanent, Transient: as `digest_of`; DOWNLOAD_WRONG where the file is another one, which is not kept.
    """

    def fetch(keep: Callable[[bytes], object]) -> str:
        pieces = _Pieces(url, Cancel(), lambda _read, _all: None, keep, LARGEST_IN_MEMORY)
        _request(url, pieces, {}, {}, (OK,))
        return pieces.digest.hexdigest()

    return kept(url, sha256, fetch)


def kept(url: str, sha256: str, fetch: Callable[[Callable[[bytes], object]], str]) -> bytes:
    """Return a file of the cache; where it is not there, it is fetched.

    Args:
        url: where it comes from, for messages.
        sha256: what it must be, in hex.
        fetch: hands out each piece of the file, and returns its SHA-256.

    Raises:
        Permanent, Transient: see `stored`.
    """
    folder = download_folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = folder / sha256
    with (folder / f"{sha256}.lock").open("w") as lock:  # many nodes want the same file at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if file.is_file():
            data = file.read_bytes()
            if hashlib.sha256(data).hexdigest() == sha256:
                return data
        part = folder / f"{sha256}.part"
        try:
            with part.open("wb") as target:
                digest = fetch(leaving_room(url, folder, target.write))
            if digest != sha256:
                raise not_pinned(url, sha256, digest)
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)
        return file.read_bytes()


def leaving_room(url: str, folder: Path, keep: Callable[[bytes], object]) -> Callable[[bytes], None]:
    """Return what keeps pieces on a disk until it is nearly full: servers need not say how much comes.

    Args:
        url: where they come from, for messages.
        folder: on that disk.
        keep: called with each piece.
    """

    def checked(chunk: bytes) -> None:
        free = shutil.disk_usage(folder).free
        if free < LEAST_FREE + len(chunk):
            summary = f"{plain_url(url)}: the disk of {folder} has only {free // 1024**2} MiB left"
            raise Permanent(
                Diagnostic("DOWNLOAD_NO_SPACE", summary, remedy="free space there, then run it again")
            )
        keep(chunk)

    return checked


def not_pinned(url: str, sha256: str, digest: str) -> Permanent:
    """Return the error of a file with another digest than the pinned one."""
    return Permanent(
        Diagnostic(
            "DOWNLOAD_WRONG",
            f"{plain_url(url)} is not the file that is pinned",
            evidence=(f"pinned: {sha256}", f"is:     {digest}"),
            untouched="the file was not kept",
            remedy="find out why it changed, then accept it: `provision pin INVENTORY --accept`",
        )
    )


def plain_url(url: str) -> str:
    """Return a URL without user, password and query: what is shown or kept of it."""
    split = urlsplit(url)
    return urlunsplit((split.scheme, split.netloc.rpartition("@")[2], split.path, "", ""))


def _read(answer: object, pieces: _Pieces) -> None:
    import requests  # noqa: PLC0415 - slow: only when something is downloaded

    assert isinstance(answer, requests.Response)  # noqa: S101 - narrows the type
    declared = answer.headers.get("content-length", "")
    size = int(declared) if declared.isdecimal() and len(declared) < LONGEST_NUMBER else 0
    chunks = iter(answer.iter_content(CHUNK))

    def gather() -> bytes:
        """Return about a chunk, or what came in a second: a server may send single bytes."""
        gathered, until = bytearray(), time.monotonic() + 1.0
        for chunk in chunks:
            gathered += chunk
            if len(gathered) >= CHUNK or time.monotonic() > until:
                break
        return bytes(gathered)

    while chunk := within(CHUNK_SECONDS, gather):
        pieces.take(chunk, size)
    if size and pieces.read != size:
        raise requests.exceptions.ConnectionError(f"the connection broke after {pieces.read} of {size} bytes")


def _check_scheme(url: str, first: str) -> None:
    scheme = urlsplit(url).scheme
    if scheme not in {"http", "https"}:
        summary = f"{first}: expected an http or https address, not {scheme}:"
        raise Permanent(Diagnostic("DOWNLOAD_REFUSED", summary))
    if scheme == "http" and urlsplit(first).scheme == "https":
        raise Permanent(Diagnostic("DOWNLOAD_REFUSED", f"{first}: it redirects to plain http: {url}"))


def _status(url: str, status: int, reason: str) -> Permanent | Transient:
    diagnostic = Diagnostic(
        "DOWNLOAD_FAILED" if status >= SERVER_ERROR else "DOWNLOAD_REFUSED", f"{url}: {status} {reason}"
    )
    return Transient(diagnostic) if status >= SERVER_ERROR else Permanent(diagnostic)


def _cause(error: Exception) -> str:
    """Return the text of the innermost exception."""
    inner: object = error
    while isinstance(inner, Exception):
        nested = getattr(inner, "reason", None) or next(iter(inner.args), None)
        if not isinstance(nested, Exception):
            break
        inner = nested
    return str(inner) or type(error).__name__


_OBJECT = re.compile(r"^HTTPS?Connection(?:Pool)?\([^)]*\): |^<[^>]*>: ")
_CUT = re.compile(r"IncompleteRead\(([0-9]+) bytes read, ([0-9]+) more expected\)")
_NUMBER = re.compile(r".*\[Errno -?[0-9]+\] ([^)]*)\)?")


def _plain(cause: str) -> str:
    """Return the text of an error without the names of Python's objects in it."""
    text = _OBJECT.sub("", cause)
    number = _NUMBER.fullmatch(text)
    cut = _CUT.search(text)
    if cut is not None:
        return f"the connection broke after {cut[1]} of {int(cut[1]) + int(cut[2])} bytes"
    if text.startswith("Failed to resolve"):
        return f"the name of the host cannot be resolved{f': {number[1]}' if number else ''}"
    if text.startswith("Failed to establish") and number is not None:
        return f"no connection: {number[1]}"
    return text
