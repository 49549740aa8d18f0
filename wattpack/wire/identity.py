"""A certificate authority of our own and the server identity that the controller shows its agents.

Agents trust the CA's file; the controller trusts the token that each agent sends (mutual identity).
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Clocks of nodes differ; a certificate that starts now would be refused by a node a minute behind.
BACKDATE = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate and its private key, PEM encoded."""

    certificate_pem: bytes
    key_pem: bytes

    @property
    def expires_at_ns(self) -> int:
        """When the certificate ends, nanoseconds since the Unix epoch."""
        certificate = x509.load_pem_x509_certificate(self.certificate_pem)
        return int(certificate.not_valid_after_utc.timestamp()) * 1_000_000_000


def new_authority(common_name: str, wall_time_ns: int, days: int = 3650) -> Identity:
    """A self-signed CA that may sign server certificates only."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    builder = (
        _builder(name, name, key, wall_time_ns, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(sign_certificates=True), critical=True)
    )
    return _identity(builder.sign(key, hashes.SHA256()), key)


def new_server(
    authority: Identity, names: Sequence[str], wall_time_ns: int, days: int = 90
) -> Identity:
    """A serving certificate for DNS names and IP addresses, signed by the authority."""
    issuer = x509.load_pem_x509_certificate(authority.certificate_pem)
    issuer_key = serialization.load_pem_private_key(authority.key_pem, None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise TypeError("the authority's key must be an elliptic-curve key")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    builder = (
        _builder(subject, issuer.subject, key, wall_time_ns, days)
        .add_extension(x509.SubjectAlternativeName([_general(n) for n in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(_key_usage(sign_certificates=False), critical=True)
    )
    return _identity(builder.sign(issuer_key, hashes.SHA256()), key)


def _general(name: str) -> x509.GeneralName:
    """An IP address where the text is one, else a DNS name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    wall_time_ns: int,
    days: int,
) -> x509.CertificateBuilder:
    now = datetime.datetime.fromtimestamp(wall_time_ns // 1_000_000_000, tz=datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _identity(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Identity:
    return Identity(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
