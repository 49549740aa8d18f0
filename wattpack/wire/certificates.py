"""Certificates as values: an authority of our own and what servers show. Pure: time is an argument.

The controller's streams and the placement webhook use the same kind of identity. A serving
certificate lives 90 days and an authority five years; each is replaced after two thirds of its
life. A new authority signs nothing before clients had time to learn of it, and the old one stays in
the bundle until the next change, so that nobody meets a certificate that it cannot check.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from wattpack.errors import InputError
from wattpack.units import NS_PER_SECOND

_DAY_NS = 86_400 * NS_PER_SECOND
AUTHORITY_LIFE_NS = 5 * 365 * _DAY_NS
SERVING_LIFE_NS = 90 * _DAY_NS
AUTHORITY_NAME = "wattpack CA"
# How long a new authority is only published: a mounted ConfigMap is up to two minutes late.
SETTLE_NS = 3600 * NS_PER_SECOND
# Clocks of others differ; a certificate that starts now would be refused by one a minute behind.
BACKDATE_NS = 3600 * NS_PER_SECOND
# An X.509 common name holds 64 characters; the names that count are the alternative ones.
MAX_COMMON_NAME = 64


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate and its private key, PEM encoded."""

    certificate_pem: bytes
    key_pem: bytes


@dataclass(frozen=True, slots=True)
class ServingIdentity:
    """What a server keeps: its certificate and key, and the authority that it renews them with.

    Attributes:
        ca_bundle: PEM; may hold two authorities, the newest first.
        ca_key: PEM; empty if somebody else issues the certificates, and renews them.
        certificate: PEM, shown to clients.
        key: PEM of the certificate's key.
    """

    ca_bundle: bytes
    ca_key: bytes
    certificate: bytes
    key: bytes

    @property
    def server(self) -> Identity:
        """The part that a server shows."""
        return Identity(self.certificate, self.key)

    def to_data(self) -> dict[str, bytes]:
        """The fields of a ``kubernetes.io/tls`` Secret."""
        return {
            "ca.crt": self.ca_bundle,
            "ca.key": self.ca_key,
            "tls.crt": self.certificate,
            "tls.key": self.key,
        }


def identity_from_data(data: Mapping[str, bytes], source: str = "") -> ServingIdentity:
    """An identity from a Secret's fields; one without ``ca.key`` is renewed by somebody else.

    Raises:
        InputError: if a field is missing, is no PEM, or the parts do not belong together.
    """
    for name in ("ca.crt", "tls.crt", "tls.key"):
        if not data.get(name):
            raise InputError(f"data.{name}", "a PEM text", data.get(name), source)
    identity = ServingIdentity(
        data["ca.crt"], data.get("ca.key", b""), data["tls.crt"], data["tls.key"]
    )
    try:
        certificate = x509.load_pem_x509_certificate(identity.certificate)
        key = serialization.load_pem_private_key(identity.key, password=None)
        authorities = x509.load_pem_x509_certificates(identity.ca_bundle)
        # Others' chains may have intermediate authorities: only clients can judge those.
        if identity.ca_key:
            _check_ours(certificate, authorities, identity.ca_key)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm) as error:
        expected = "a certificate of its own authority"
        raise InputError("data", expected, type(error).__name__, source) from error
    if key.public_key() != certificate.public_key():
        raise InputError("data.tls.key", "the key of tls.crt", "another key", source)
    return identity


def _check_ours(
    certificate: x509.Certificate, authorities: Sequence[x509.Certificate], ca_key: bytes
) -> None:
    """The newest authority has this key, and one of them issued the certificate."""
    signer = serialization.load_pem_private_key(ca_key, password=None)
    if signer.public_key() != authorities[0].public_key():
        raise ValueError("ca.key is not the key of ca.crt")
    issuers = [a for a in authorities if _issued(certificate, a)]
    if not issuers:
        raise ValueError("tls.crt was issued by none of ca.crt")


def _issued(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except InvalidSignature:
        return False
    return True


def new_identity(names: Sequence[str], wall_time_ns: int) -> ServingIdentity:
    """A new authority and a serving certificate for these DNS names and addresses."""
    authority = new_authority(AUTHORITY_NAME, wall_time_ns)
    server = new_server(authority, names, wall_time_ns)
    return ServingIdentity(
        authority.certificate_pem, authority.key_pem, server.certificate_pem, server.key_pem
    )


def renewed(identity: ServingIdentity, names: Sequence[str], wall_time_ns: int) -> ServingIdentity:
    """The identity, or a newer one if two thirds of a life are over or the names changed.

    One that begins in the future was made by somebody whose clock ran ahead: nobody takes it until
    then, so it is made anew.
    """
    if not identity.ca_key:
        return identity
    authority = _first(identity.ca_bundle)
    if wall_time_ns >= _renew_at_ns(authority) or _is_early(authority, wall_time_ns):
        fresh = new_authority(AUTHORITY_NAME, wall_time_ns)
        bundle = fresh.certificate_pem + _pem(authority)
        identity = replace(identity, ca_bundle=bundle, ca_key=fresh.key_pem)
        authority = _first(bundle)
    certificate = x509.load_pem_x509_certificate(identity.certificate)
    known_ns = wall_time_ns - _ns(authority.not_valid_before_utc) - BACKDATE_NS
    due = wall_time_ns >= _renew_at_ns(certificate) and known_ns >= SETTLE_NS
    expired = wall_time_ns >= _ns(certificate.not_valid_after_utc)
    unusable = expired or _is_early(certificate, wall_time_ns)
    if due or unusable or _names(certificate) != {_canonical(name) for name in names}:
        signer = Identity(_pem(authority), identity.ca_key)
        server = new_server(signer, names, wall_time_ns)
        return replace(identity, certificate=server.certificate_pem, key=server.key_pem)
    return identity


def expires_at_seconds(certificate_pem: bytes) -> float:
    """When clients stop taking a certificate, Unix time."""
    return x509.load_pem_x509_certificate(certificate_pem).not_valid_after_utc.timestamp()


def new_authority(
    common_name: str, wall_time_ns: int, life_ns: int = AUTHORITY_LIFE_NS
) -> Identity:
    """A self-signed CA that may sign server certificates only."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    builder = (
        _builder(name, name, key, wall_time_ns, life_ns)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(sign_certificates=True), critical=True)
    )
    return _identity(builder.sign(key, hashes.SHA256()), key)


def new_server(
    authority: Identity, names: Sequence[str], wall_time_ns: int, life_ns: int = SERVING_LIFE_NS
) -> Identity:
    """A serving certificate for DNS names and IP addresses, signed by the authority.

    Raises:
        InputError: if the authority's key is of another kind than ours, or a name is none.
    """
    issuer = x509.load_pem_x509_certificate(authority.certificate_pem)
    signer = serialization.load_pem_private_key(authority.key_pem, None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise InputError("ca.key", "an elliptic-curve key", type(signer).__name__)
    key = ec.generate_private_key(ec.SECP256R1())
    alternatives = [_general(name) for name in names]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:MAX_COMMON_NAME])])
    issued_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = (
        _builder(subject, issuer.subject, key, wall_time_ns, life_ns)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(_key_usage(sign_certificates=False), critical=True)
        .add_extension(issued_by, critical=False)
    )
    return _identity(builder.sign(signer, hashes.SHA256()), key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    wall_time_ns: int,
    life_ns: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_moment(wall_time_ns - BACKDATE_NS))
        .not_valid_after(_moment(wall_time_ns + life_ns))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
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


def _general(name: str) -> x509.GeneralName:
    """An IP address where the text is one, else a DNS name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        if not name or not name.isascii():
            raise InputError("names", "an address or an ASCII DNS name", name) from None
        return x509.DNSName(name)


def _canonical(name: str) -> str:
    """The name as ``_names`` gives it: IPv6 addresses have many spellings."""
    return str(_general(name).value)


def _names(certificate: x509.Certificate) -> set[str]:
    """Alternative names; somebody else's certificate may have none."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    addresses = {str(address) for address in found.get_values_for_type(x509.IPAddress)}
    return set(found.get_values_for_type(x509.DNSName)) | addresses


def _renew_at_ns(certificate: x509.Certificate) -> int:
    start_ns, end_ns = _ns(certificate.not_valid_before_utc), _ns(certificate.not_valid_after_utc)
    return start_ns + (end_ns - start_ns) * 2 // 3


def _is_early(certificate: x509.Certificate, wall_time_ns: int) -> bool:
    return wall_time_ns < _ns(certificate.not_valid_before_utc)


def _moment(wall_time_ns: int) -> datetime.datetime:
    """A moment for certificates, whole seconds."""
    return datetime.datetime.fromtimestamp(wall_time_ns // NS_PER_SECOND, tz=datetime.UTC)


def _ns(moment: datetime.datetime) -> int:
    return int(moment.timestamp()) * NS_PER_SECOND


def _first(bundle: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificates(bundle)[0]


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _identity(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Identity:
    return Identity(
        _pem(certificate),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
