"""OCI registries, read with or without a login, and archives of container images that containerd imports.

Sources: the distribution specification of the Open Container Initiative (pulling manifests and blobs), its
image specification (image index, image layout), the token specifications of the distribution project (that of
OAuth2 for identity tokens), and containerd (images/archive: an image gets the name in
`io.containerd.image.name`). k3s imports such an archive from `agent/images`; it leaves out manifests that an
index names and the archive lacks since v1.30.2 (#10132).
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from provision.connections.download import answer_of
from provision.connections.fetch import fetch_file
from provision.connections.http_text import can_be_sent
from provision.connections.registry_logins import Login, Logins
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent
from provision.values.image_reference import ImageReference

LARGEST = 32 * 1024 * 1024
"""Bytes of one manifest."""
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
TYPES = (INDEX, DOCKER_INDEX, MANIFEST, DOCKER_MANIFEST)
TOKEN_SECONDS = 45.0
"""How long a token is used: one without `expires_in` lives 60 seconds."""
OK, BAD_REQUEST, UNAUTHORIZED, FORBIDDEN = 200, 400, 401, 403
_PARAMETER = re.compile(r'([a-z]+)="([^"]*)"').findall
_DIGEST = re.compile("sha256:([0-9a-f]{64})").fullmatch


@dataclass(frozen=True, slots=True)
class Part:
    """A manifest or a blob.

    Args:
        sha256: its digest in hex.
        size: bytes.
        type: its media type.
    """

    sha256: str
    size: int
    type: str = ""


@dataclass(slots=True)
class Repository:
    """One repository of a registry.

    Args:
        url: `https://REGISTRY/v2/PATH`.
        cancel: ends what runs.
        logins: which logins there are; they are sent over https alone.
    """

    url: str
    cancel: Cancel
    logins: Logins
    _challenge: str = field(default="", init=False)
    _token: str = field(default="", init=False, repr=False)
    _until: float = field(default=0.0, init=False)

    def read(self, place: str, accept: str) -> bytes:
        """Return a manifest, or a small blob.

        Args:
            place: `manifests/TAG`, `manifests/sha256:...` or `blobs/sha256:...`.
            accept: types of it.

        Raises:
            Permanent, Transient: it cannot be read without a login, or not at all.
        """
        url = f"{self.url}/{place}"
        for _ in range(2):  # the first answer says where a token is to be had
            headers = {"Accept": accept, **self._authorization()}
            status, sent, body = answer_of(url, self.cancel, LARGEST, headers, accepted=(OK, UNAUTHORIZED))
            if status == OK:
                return body
            self._challenge, self._until = sent.get("www-authenticate", ""), 0.0
        raise self._refused()

    def download(self, part: Part, target: Path, progress: Callable[[int, int], None]) -> None:
        """Write a blob to a file; what was cut goes on.

        Raises:
            Permanent, Transient, Interrupted: see `fetch_file`.
        """
        url = f"{self.url}/blobs/sha256:{part.sha256}"
        fetch_file(url, part.sha256, target, self.cancel, progress, self._authorization(), part.size)

    def _authorization(self) -> dict[str, str]:
        if not self._challenge:
            return {}
        if time.monotonic() >= self._until:
            self._token = self._new_token()
            self._until = time.monotonic() + TOKEN_SECONDS
        return {"Authorization": self._token}

    def _login(self) -> Login | None:
        split = urlsplit(self.url)
        return self.logins.of(split.netloc.rpartition("@")[2]) if split.scheme == "https" else None

    def _new_token(self) -> str:
        scheme, _, rest = self._challenge.partition(" ")
        login = self._login()
        if scheme.lower() == "basic" and login is not None and login.user:
            return login.basic
        parameters = dict(_PARAMETER(rest)) if scheme.lower() == "bearer" else {}
        realm = parameters.pop("realm", "")
        if not realm.startswith("https://"):
            raise self._refused()
        query = {key: parameters[key] for key in ("service", "scope") if key in parameters}
        status, _, body = self._ask_token(realm, query, login)
        data = _parsed(body)
        token = _inner(data, "token") or _inner(data, "access_token")
        if status != OK or not isinstance(token, str) or not token or not can_be_sent(token):
            raise self._refused()
        return f"Bearer {token}"

    def _ask_token(
        self, realm: str, query: Mapping[str, str], login: Login | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        accepted = (OK, BAD_REQUEST, UNAUTHORIZED, FORBIDDEN)
        if login is not None and not login.user:
            secret = login.password.get_secret_value()
            form = {"grant_type": "refresh_token", "client_id": "provision", **query, "refresh_token": secret}
            return answer_of(realm, self.cancel, LARGEST, {}, form=form, accepted=accepted)
        headers = {"Authorization": login.basic} if login is not None else {}
        return answer_of(realm, self.cancel, LARGEST, headers, query=query, accepted=accepted)

    def _refused(self) -> Permanent:
        login, host = self._login(), urlsplit(self.url).netloc.rpartition("@")[2]
        if login is not None:
            summary = f"{self.url} refuses the login {login.user or 'by its identity token'}"
            remedy = f"correct `sources.logins.{host}`, or log in again: docker login {host}"
        else:
            summary = f"{self.url} needs a login"
            remedy = f"declare `sources.logins.{host}`, or log in: docker login {host}"
            if not self.url.startswith("https://"):
                remedy = "serve the registry by https: a login is never sent over plain http"
        return Permanent(Diagnostic("DOWNLOAD_REFUSED", summary, remedy=remedy))


def repository_of(
    reference: ImageReference, mirrors: Mapping[str, str], cancel: Cancel, logins: Logins
) -> Repository:
    """Return where an image is read.

    Args:
        reference: the image.
        mirrors: URLs by registry, which are asked instead.
        cancel: ends what runs.
        logins: which logins there are.
    """
    base = mirrors.get(reference.registry, f"https://{reference.host}").rstrip("/")
    base = base if base.endswith("/v2") else f"{base}/v2"
    return Repository(f"{base}/{reference.path}", cancel, logins)


def digest_of_image(repository: Repository, reference: ImageReference) -> str:
    """Return the digest (hex) of what a registry has under a tag now.

    Raises:
        Permanent, Transient: it cannot be read.
    """
    return hashlib.sha256(repository.read(f"manifests/{reference.tag}", ", ".join(TYPES))).hexdigest()


def write_image(
    repository: Repository,
    names: Sequence[str],
    sha256: str,
    architecture: str,
    blobs: Path,
    target: Path,
    progress: Callable[[int, int], None] = lambda _read, _all: None,
) -> None:
    """Write the image of one platform as an archive; the same image always gives the same archive.

    Args:
        repository: where it is.
        names: under which containerd keeps it.
        sha256: digest of its manifest, or of the index of its platforms, in hex.
        architecture: of linux, as images name it (`amd64`).
        blobs: folder for its parts, where an attempt that was cut goes on.
        target: the archive.
        progress: receives how far a part is.

    Raises:
        Permanent: IMAGE_UNFIT: it is none of this platform, or no image; or it cannot be read.
        Transient, Interrupted: it was not fetched as a whole.
    """
    blobs.mkdir(parents=True, exist_ok=True)
    top, data = _manifest(repository, sha256, blobs)
    parts = [top]
    if top.type in (INDEX, DOCKER_INDEX):
        chosen = _of_platform(data, architecture)
        if chosen is None:
            raise _unfit(names[0], f"it has no image for linux/{architecture}")
        inner, data = _manifest(repository, chosen, blobs)
        parts.append(inner)
    layers = _inner(data, "layers")
    content = [_part(_inner(data, "config")), *map(_part, layers if isinstance(layers, list) else [None])]
    digests = {part.sha256 for part in parts}
    for part in content:
        if part is None:
            raise _unfit(names[0], "its manifest is not one of a container image")
        if part.sha256 not in digests:
            repository.download(part, blobs / part.sha256, progress)
            digests.add(part.sha256)
    _write_archive(target, top, names, [(sha256, blobs / sha256) for sha256 in digests])


def _manifest(repository: Repository, sha256: str, blobs: Path) -> tuple[Part, object]:
    # Always read: the answer says where a token is to be had, which the blobs need, too.
    body = repository.read(f"manifests/sha256:{sha256}", ", ".join(TYPES))
    if hashlib.sha256(body).hexdigest() != sha256:
        raise _unfit(f"{repository.url}@sha256:{sha256}", "the registry sends another manifest")
    (blobs / sha256).write_bytes(body)
    data = _parsed(body)
    # Manifests of OCI may leave their type out; only an index has manifests.
    is_index = isinstance(_inner(data, "manifests"), list)
    type_ = _inner(data, "mediaType")
    media_type = type_ if isinstance(type_, str) and type_ else INDEX if is_index else MANIFEST
    if media_type not in TYPES:
        raise _unfit(f"{repository.url}@sha256:{sha256}", f"it is of type {media_type[:80]}")
    return Part(sha256, len(body), media_type), data


def _of_platform(index: object, architecture: str) -> str | None:
    rows = _inner(index, "manifests")
    for row in rows if isinstance(rows, list) else []:
        platform = _inner(row, "platform")
        match = _DIGEST(str(_inner(row, "digest")))
        ours = ("linux", architecture)
        if match is not None and (_inner(platform, "os"), _inner(platform, "architecture")) == ours:
            return match[1]
    return None


def _part(descriptor: object) -> Part | None:
    match, size = _DIGEST(str(_inner(descriptor, "digest"))), _inner(descriptor, "size")
    if match is None or not isinstance(size, int) or size < 0:
        return None
    return Part(match[1], size)


def _write_archive(target: Path, top: Part, names: Sequence[str], files: list[tuple[str, Path]]) -> None:
    descriptor = {"mediaType": top.type, "digest": f"sha256:{top.sha256}", "size": top.size}
    rows = [
        {
            **descriptor,
            "annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name},
        }
        for name in names
    ]
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": rows}
    part = target.with_name(f"{target.name}.part")
    with tarfile.open(part, "w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in _descriptions(index):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
        for sha256, file in sorted(files):
            member = tarfile.TarInfo(f"blobs/sha256/{sha256}")
            member.size, member.mode = file.stat().st_size, 0o644
            with file.open("rb") as stream:
                archive.addfile(member, stream)
    part.replace(target)


def _descriptions(index: Mapping[str, object]) -> Iterator[tuple[str, bytes]]:
    yield "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode()
    yield "index.json", json.dumps(index, sort_keys=True).encode()


def _parsed(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _inner(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, Mapping) else None


def _unfit(name: str, reason: str) -> Permanent:
    summary = f"the container image {name} cannot be used: {reason}"
    return Permanent(Diagnostic("IMAGE_UNFIT", summary, remedy="correct its name, or its digest"))
