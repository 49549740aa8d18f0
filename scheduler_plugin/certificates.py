"""The webhook's own authority and serving certificate, as values. Pure: time is an argument.

The serving certificate lives 90 days and the authority five years; each is replaced after two
thirds of its life. After a new authority the old one stays in the bundle until the next change, so
that no API server ever meets a certificate that it cannot check.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from wattpack.errors import InputError

AUTHORITY_LIFE = timedelta(days=5 * 365)
SERVING_LIFE = timedelta(days=90)
#: Clocks of API servers may be behind ours by this much.
BACKDATED = timedelta(hours=1)
_FIELDS = ("ca.crt", "ca.key", "tls.crt", "tls.key")


@dataclass(frozen=True, slots=True)
class Identity:
    """PEM texts. ``ca_bundle`` may hold two authorities, the newest first."""

    ca_bundle: bytes
    ca_key: bytes
    certificate: bytes
    key: bytes

    def to_data(self) -> dict[str, bytes]:
        """The fields of a ``kubernetes.io/tls`` Secret."""
        return dict(
            zip(_FIELDS, (self.ca_bundle, self.ca_key, self.certificate, self.key), strict=True)
        )


def identity_from_data(data: Mapping[str, bytes], source: str = "") -> Identity:
    """An identity from a Secret's fields.

    Raises:
        InputError: if a field is missing, is no PEM, or the parts do not belong together.
    """
    for name in _FIELDS:
        if not data.get(name):
            raise InputError(f"data.{name}", "a PEM text", data.get(name), source)
    identity = Identity(*(data[name] for name in _FIELDS))
    try:
        authority = _first(identity.ca_bundle)
        certificate = x509.load_pem_x509_certificate(identity.certificate)
        certificate.verify_directly_issued_by(authority)
        key = serialization.load_pem_private_key(identity.key, password=None)
        serialization.load_pem_private_key(identity.ca_key, password=None)
    except Exception as error:
        raise InputError(
            "data", "a certificate of its own authority", type(error).__name__, source
        ) from error
    if key.public_key() != certificate.public_key():
        raise InputError("data.tls.key", "the key of tls.crt", "another key", source)
    return identity


def new_identity(names: Sequence[str], now: datetime) -> Identity:
    """A new authority and a serving certificate for these DNS names and addresses."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "wattpack placement webhook CA")])
    authority = (
        _builder(subject, subject, key.public_key(), now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(certifies=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _serve(_pem(authority), _key_pem(key), names, now)


def renewed(identity: Identity, names: Sequence[str], now: datetime) -> Identity:
    """The identity, or a newer one if two thirds of a life are over or the names changed."""
    authority = _first(identity.ca_bundle)
    if now >= _renew_at(authority):
        fresh = new_identity(names, now)
        bundle = fresh.ca_bundle + _pem(authority)
        return Identity(bundle, fresh.ca_key, fresh.certificate, fresh.key)
    certificate = x509.load_pem_x509_certificate(identity.certificate)
    if now >= _renew_at(certificate) or _names(certificate) != set(names):
        return _serve(identity.ca_bundle, identity.ca_key, names, now)
    return identity


def _serve(ca_bundle: bytes, ca_key: bytes, names: Sequence[str], now: datetime) -> Identity:
    authority = _first(ca_bundle)
    signer = serialization.load_pem_private_key(ca_key, password=None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise InputError("data.ca.key", "an elliptic curve key", type(signer).__name__)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    certificate = (
        _builder(authority.subject, subject, key.public_key(), now, SERVING_LIFE)
        .add_extension(alternatives, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=False)
        .add_extension(identifier, critical=False)
        .sign(signer, hashes.SHA256())
    )
    return Identity(ca_bundle, ca_key, _pem(certificate), _key_pem(key))


def _builder(
    issuer: x509.Name,
    subject: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    life: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, certifies: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certifies,
        crl_sign=certifies,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _names(certificate: x509.Certificate) -> set[str]:
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = {str(address) for address in found.get_values_for_type(x509.IPAddress)}
    return set(found.get_values_for_type(x509.DNSName)) | addresses


def _renew_at(certificate: x509.Certificate) -> datetime:
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return start + (end - start) * 2 / 3


def _first(bundle: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificates(bundle)[0]


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def from_wall_ns(wall_time_ns: int) -> datetime:
    """A moment for certificates, whole seconds."""
    return datetime.fromtimestamp(wall_time_ns // 1_000_000_000, UTC)
