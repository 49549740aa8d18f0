"""The real kube-apiserver of ``KUBEBUILDER_ASSETS``, started with credentials made here."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from wattpack.clock import SystemClock
from wattpack.units import NS_PER_SECOND

VALID_DAYS = 30
ISSUER = "https://kubernetes.default.svc"
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "rules": [
        {"level": "None", "users": ["system:apiserver"]},
        {"level": "Metadata", "omitStages": ["RequestReceived"]},
    ],
}


def kube_apiserver_command(
    assets: Path, directory: Path, etcd_port: int, port: int, prefix: str
) -> list[str]:
    """Write credentials into the directory; return how to start kube-apiserver with them."""
    _write_credentials(directory, f"https://127.0.0.1:{port}")
    (directory / "audit-policy.yaml").write_text(yaml.safe_dump(AUDIT_POLICY))
    return [
        str(assets / "kube-apiserver"),
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        f"--etcd-prefix={prefix}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={directory / 'kube-apiserver'}",
        f"--tls-cert-file={directory / 'server.crt'}",
        f"--tls-private-key-file={directory / 'server.key'}",
        f"--client-ca-file={directory / 'ca.crt'}",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.96.0.0/16",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={directory / 'sa.key'}",
        f"--service-account-signing-key-file={directory / 'sa.key'}",
        # Without kube-controller-manager nobody makes the default accounts that this asks for.
        "--disable-admission-plugins=ServiceAccount",
        f"--audit-policy-file={directory / 'audit-policy.yaml'}",
        f"--audit-log-path={directory / 'audit.log'}",
    ]


def write_serving_certificate(directory: Path, *names: str) -> None:
    """Write ca.crt, server.crt and server.key for a server on 127.0.0.1 with these DNS names."""
    authority_key, authority = _authority(directory)
    _issue(directory / "server", _name("wattpack-test", ""), authority, authority_key, names)


def _write_credentials(directory: Path, server_url: str) -> None:
    if (directory / "ca.crt").exists():  # a second start keeps every credential valid
        return
    authority_key, authority = _authority(directory)
    _write_key(directory / "sa.key")
    server, admin = _name("wattpack-test", ""), _name("admin", "system:masters")
    _issue(directory / "server", server, authority, authority_key, ("localhost",))
    _issue(directory / "admin", admin, authority, authority_key, ())
    _write_admin_kubeconfig(directory, server_url)


def _authority(directory: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = _write_key(directory / "ca.key")
    name = _name("wattpack-test-ca", "")
    certificate = (
        _certificate(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    _write_certificate(directory / "ca.crt", certificate)
    return key, certificate


def _issue(
    path: Path,
    subject: x509.Name,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    dns_names: Sequence[str],
) -> None:
    """Write path.key and path.crt: a server's with DNS names, a client's without."""
    key = _write_key(path.with_suffix(".key"))
    builder = _certificate(subject, authority.subject, key)
    usage = ExtendedKeyUsageOID.CLIENT_AUTH
    if dns_names:
        usage = ExtendedKeyUsageOID.SERVER_AUTH
        loopback = x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))
        names = x509.SubjectAlternativeName([*map(x509.DNSName, dns_names), loopback])
        builder = builder.add_extension(names, critical=False)
    certificate = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False).sign(
        authority_key, hashes.SHA256()
    )
    _write_certificate(path.with_suffix(".crt"), certificate)


def _write_admin_kubeconfig(directory: Path, server_url: str) -> None:
    user = {"client-certificate": "admin.crt", "client-key": "admin.key"}
    cluster = {"server": server_url, "certificate-authority": "ca.crt"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "admin", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "current-context": "test",
    }
    (directory / "admin.kubeconfig").write_text(yaml.safe_dump(config))


def _name(common_name: str, organization: str) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.fromtimestamp(
        SystemClock().wall_time_ns() / NS_PER_SECOND, tz=datetime.UTC
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
    )


def _write_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path.write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
    path.chmod(0o600)
    return key


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
