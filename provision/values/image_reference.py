"""Names of container images, and what they mean: the rules that Docker, containerd and Kubernetes share.

Source: the reference grammar of the distribution project; containerd (reference/docker): a name without a
registry is one of docker.io, and one without a folder is in its folder `library`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DOCKER, DOCKER_HOST = "docker.io", "registry-1.docker.io"
LONGEST = 512
"""Characters of a name; registries take 255 of its path."""
_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_PART = "[a-z0-9]+(?:(?:[.]|__?|-+)[a-z0-9]+)*"
_PATH = f"(?:{_LABEL}(?:[.]{_LABEL})*(?::[0-9]{{1,5}})?/)?{_PART}(?:/{_PART})*"
_TAG = "[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"
IMAGE = f"{_PATH}(?::{_TAG})?(?:@sha256:[0-9a-f]{{64}})?"
"""How names are written."""
_NAME = re.compile(f"(?P<path>{_PATH})(?::(?P<tag>{_TAG}))?(?:@sha256:(?P<digest>[0-9a-f]{{64}}))?")


@dataclass(frozen=True, slots=True)
class ImageReference:
    """One image.

    Args:
        registry: as names have it (`docker.io`).
        path: of the repository in it.
        tag: empty where the name has only a digest.
        sha256: digest of its manifest in hex; empty where the name has none.
    """

    registry: str
    path: str
    tag: str
    sha256: str = ""

    @property
    def host(self) -> str:
        """Where the registry is reached."""
        return host_of(self.registry)

    @property
    def name(self) -> str:
        """The name as containerd keeps it: with the tag, or else with the digest."""
        return f"{self.registry}/{self.path}" + (f":{self.tag}" if self.tag else f"@sha256:{self.sha256}")

    def names(self, sha256: str) -> tuple[str, ...]:
        """Return all names by which pods find the image of a digest."""
        return tuple(dict.fromkeys((self.name, f"{self.registry}/{self.path}@sha256:{sha256}")))


def host_of(registry: str) -> str:
    """Return where the registry is reached that images name."""
    return DOCKER_HOST if registry in {DOCKER, f"index.{DOCKER}"} else registry


def parse_image(text: str) -> ImageReference | None:
    """Return the image of a name; None where it is no such name."""
    match = _NAME.fullmatch(text) if len(text) <= LONGEST else None
    if match is None:
        return None
    first, _, rest = match["path"].partition("/")
    is_registry = bool(rest) and ("." in first or ":" in first or first == "localhost")
    registry, path = (first, rest) if is_registry else (DOCKER, match["path"])
    if registry == DOCKER and "/" not in path:
        path = f"library/{path}"
    if ":" in path or path != path.lower():
        return None
    sha256 = match["digest"] or ""
    return ImageReference(registry, path, match["tag"] or ("" if sha256 else "latest"), sha256)
