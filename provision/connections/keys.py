"""Generated SSH host keys, and fingerprints as OpenSSH writes them."""

from __future__ import annotations

import base64
import binascii
import hashlib

from pydantic import SecretStr

from provision.connections.contracts import KeyPair


def new_host_key(comment: str = "provision") -> KeyPair:
    """Return a new Ed25519 host key: an unencrypted OpenSSH private key and its public line.

    Args:
        comment: last word of the public line; no blanks.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - slow
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - slow
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode("ascii")
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode("ascii")
    return KeyPair(SecretStr(private), f"{public} {comment}", fingerprint(public))


def fingerprint(public: str) -> str:
    """Return `SHA256:...` for a public key line (`ssh-ed25519 AAAA... comment`).

    Raises:
        ValueError: an invalid line.
    """
    parts = public.split()
    if len(parts) < 2:  # noqa: PLR2004 - type and key
        raise ValueError("expected a public key line: type, key in base64, comment")
    try:
        blob = base64.b64decode(parts[1], validate=True)
    except binascii.Error as error:
        raise ValueError(f"invalid base64 in the key: {error}") from error
    return fingerprint_of(blob)


def fingerprint_of(blob: bytes) -> str:
    """Return `SHA256:...` for a public key in its wire form."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode("ascii").rstrip("=")
