"""The project's own certificate authority."""

from __future__ import annotations

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from wattpack.clock import ManualClock
from wattpack.wire.identity import new_authority, new_server


def test_a_server_certificate_names_its_hosts_and_ends() -> None:
    now_ns = ManualClock().wall_time_ns()
    authority = new_authority("test", now_ns)
    server = new_server(authority, ["controller.wattpack.svc", "127.0.0.1"], now_ns, days=90)
    certificate = x509.load_pem_x509_certificate(server.certificate_pem)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["controller.wattpack.svc"]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert server.expires_at_ns - now_ns == 90 * 86_400 * 1_000_000_000
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate_pem))
