"""What a host key's fingerprint looks like."""

from __future__ import annotations

import re

HOST_KEY = r"SHA256:[A-Za-z0-9+/]{43}"
"""A host key's fingerprint as OpenSSH writes it (ssh-keygen(1), -l): base64 without padding."""

OWN_KEY = "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub"
"""What shows a host's own key, on its console."""

_HOST_KEY = re.compile(HOST_KEY)


def is_host_key(text: str) -> bool:
    """Whether a text is the fingerprint of a host key, and nothing more."""
    return _HOST_KEY.fullmatch(text) is not None
