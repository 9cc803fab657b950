"""The certificates of a cluster, made by openssl(1), which every guest of the lab has."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import subprocess
from collections.abc import Iterable
from pathlib import Path

_DAYS = "3650"
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def token_prefix(certificate: bytes) -> str:
    """Return how a full token names a CA: `K10` and the digest of its PEM text."""
    return f"K10{hashlib.sha256(certificate).hexdigest()}"


class Authority:
    """A cluster's own CA, in the folder where k3s keeps it.

    Args:
        folder: `/var/lib/rancher/k3s/server/tls`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate = folder / "server-ca.crt"
        self.key = folder / "server-ca.key"

    def make(self) -> None:
        """Make the CA unless it is there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.certificate.exists():
            return
        _openssl(
            "req", "-x509", *_KEY, "-days", _DAYS, "-subj", "/CN=k3s-server-ca@stand-in",
            "-keyout", str(self.key), "-out", str(self.certificate),
        )  # fmt: skip

    def take(self, certificate: bytes, key: bytes) -> None:
        """Use the CA of the server that was joined."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.certificate.write_bytes(certificate)
        self.key.touch(mode=0o600)
        self.key.write_bytes(key)

    def issue(self, name: str, subject: str, hosts: Iterable[str] = ()) -> tuple[Path, Path]:
        """Return certificate and key of a server (with hosts) or a client, made new each time."""
        certificate, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        names = [f"IP:{host}" if _is_address(host) else f"DNS:{host}" for host in dict.fromkeys(hosts)]
        usage = "serverAuth" if names else "clientAuth"
        extensions = self.folder / f"{name}.ext"
        lines = [f"extendedKeyUsage={usage}", *([f"subjectAltName={','.join(names)}"] if names else [])]
        extensions.write_text("\n".join(lines) + "\n")
        request = self.folder / f"{name}.csr"
        _openssl(
            "req", *_KEY, "-subj", subject,
            "-keyout", str(key), "-out", str(request),
        )  # fmt: skip
        _openssl(
            "x509", "-req", "-in", str(request), "-CA", str(self.certificate), "-CAkey", str(self.key),
            "-CAcreateserial", "-days", "365", "-extfile", str(extensions), "-out", str(certificate),
        )  # fmt: skip
        return certificate, key

    def kubeconfig(self, port: int) -> str:
        """Return the administrator's access, with the names that k3s gives to everything."""
        certificate, key = self.issue("client-admin", "/O=system:masters/CN=system:admin")
        ca, crt, private = (
            base64.b64encode(path.read_bytes()).decode() for path in (self.certificate, certificate, key)
        )
        return f"""apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: {ca}
    server: https://127.0.0.1:{port}
  name: default
contexts:
- context:
    cluster: default
    user: default
  name: default
current-context: default
kind: Config
preferences: {{}}
users:
- name: default
  user:
    client-certificate-data: {crt}
    client-key-data: {private}
"""


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True, umask=0o077)
