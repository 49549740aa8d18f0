"""The real kube-apiserver of ``KUBEBUILDER_ASSETS``, started with credentials made here."""

from __future__ import annotations

import datetime
import ipaddress
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


def _write_credentials(directory: Path, server_url: str) -> None:
    if (directory / "ca.crt").exists():  # a second start keeps every credential valid
        return
    authority_key = _write_key(directory / "ca.key")
    authority_name = _name("wattpack-test-ca", "")
    authority = (
        _certificate(authority_name, authority_name, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    _write_certificate(directory / "ca.crt", authority)
    _write_key(directory / "sa.key")
    names = x509.SubjectAlternativeName(
        [x509.DNSName("localhost"), x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))]
    )
    server_key = _write_key(directory / "server.key")
    server = (
        _certificate(_name("wattpack-test", ""), authority_name, server_key)
        .add_extension(names, critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    _write_certificate(directory / "server.crt", server)
    admin_key = _write_key(directory / "admin.key")
    admin = (
        _certificate(_name("admin", "system:masters"), authority_name, admin_key)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    _write_certificate(directory / "admin.crt", admin)
    _write_admin_kubeconfig(directory, server_url)


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
