"""Keys and certificates of a lab; private files have mode 0600 from their first byte."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import ipaddress
from pathlib import Path

from provision.lab.recipe import run
from provision.lab.settings import LabSettings
from provision.values.whole_file import write_whole


def ensure_ssh_key(file: Path, comment: str) -> str:
    """Create an Ed25519 key pair if it is missing; return the public key's line."""
    public = file.with_name(file.name + ".pub")
    if not public.exists():
        file.unlink(missing_ok=True)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(file)])
    return public.read_text().strip()


def fingerprint(public_key: str) -> str:
    """Return the SHA-256 fingerprint of a public key's line, as OpenSSH prints it."""
    digest = hashlib.sha256(base64.b64decode(public_key.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def ensure_certificate(folder: Path, settings: LabSettings) -> str:
    """Create the API's self-signed certificate if it is missing; return its SHA-256 fingerprint."""
    from cryptography import x509  # noqa: PLC0415 - slow to import
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415 - slow to import
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - slow to import

    cert_file, key_file = folder / "api.pem", folder / "api.key"
    if not cert_file.exists():
        name, address = settings.hypervisor
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        now = dt.datetime.now(dt.UTC)
        names: list[x509.GeneralName] = [x509.DNSName(name), x509.DNSName("localhost")]
        names += [x509.IPAddress(ipaddress.ip_address(a)) for a in (address, settings.host_address)]
        cert = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=730))
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(key, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        form = serialization.PrivateFormat.PKCS8
        write_whole(key_file, key.private_bytes(pem, form, serialization.NoEncryption()).decode())
        write_whole(cert_file, cert.public_bytes(pem).decode())
    parsed = x509.load_pem_x509_certificate(cert_file.read_bytes())
    return parsed.fingerprint(hashes.SHA256()).hex(":").upper()
