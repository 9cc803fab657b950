"""A certificate authority for servers and clients of one test."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = dt.timedelta(days=1)


def _pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


@dataclass
class Authority:
    """One authority."""

    name: str = "test-ca"
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def __post_init__(self) -> None:
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        self._certificate = self._builder(self.name, self.key.public_key()).add_extension(
            constraints, critical=True
        )
        self.pem = self._signed(self._certificate)

    def _builder(self, name: str, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        builder = x509.CertificateBuilder().subject_name(_name(name)).issuer_name(_name(self.name))
        builder = builder.public_key(key).serial_number(x509.random_serial_number())
        return builder.not_valid_before(now - DAY).not_valid_after(now + DAY)

    def _signed(self, builder: x509.CertificateBuilder) -> str:
        certificate = builder.sign(self.key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(self, name: str, *addresses: str) -> tuple[str, str]:
        """Return certificate and private key of a name."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address(each)) for each in addresses]
        builder = self._builder(name, key.public_key())
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return self._signed(builder), _pem(key)
