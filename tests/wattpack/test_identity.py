"""Certificates, the Secret that keeps them, and where their authority is published."""

from __future__ import annotations

import base64
import datetime
from dataclasses import replace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from simulation.kube import EmbeddedKube
from wattpack.clock import ManualClock
from wattpack.errors import InputError
from wattpack.kube.identity_store import (
    IdentityKeeper,
    IdentityStore,
    publish_to_config_map,
    publish_to_webhook,
)
from wattpack.kube.port import CONFIG_MAPS, MUTATING_WEBHOOKS, SECRETS, ConflictError, NotFoundError
from wattpack.wire.certificates import (
    AUTHORITY_LIFE_NS,
    SERVING_LIFE_NS,
    SETTLE_NS,
    Identity,
    ServingIdentity,
    identity_from_data,
    new_authority,
    new_identity,
    new_server,
    renewed,
)

NOW_NS = 1_767_225_600 * 10**9
NAMES = ("localhost", "127.0.0.1")
SYSTEM, NODES = "wattpack-system", "wattpack-node"
DAY_SECONDS = 86_400
DAY_NS = DAY_SECONDS * 10**9


def test_a_server_certificate_names_its_hosts_and_ends() -> None:
    authority = new_authority("test", NOW_NS)
    server = new_server(authority, ["controller.wattpack.svc", "127.0.0.1"], NOW_NS)
    certificate = x509.load_pem_x509_certificate(server.certificate_pem)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["controller.wattpack.svc"]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    ends_ns = round(certificate.not_valid_after_utc.timestamp()) * 10**9
    assert ends_ns - NOW_NS == SERVING_LIFE_NS
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate_pem))


def test_an_identity_is_kept_until_two_thirds_of_its_life_are_over() -> None:
    first = new_identity(NAMES, NOW_NS)
    assert renewed(first, NAMES, NOW_NS + SERVING_LIFE_NS * 6 // 10) is first
    second = renewed(first, NAMES, NOW_NS + SERVING_LIFE_NS * 7 // 10)
    assert second.certificate != first.certificate
    assert second.ca_bundle == first.ca_bundle
    assert identity_from_data(second.to_data()) == second


def test_a_new_authority_is_published_before_it_signs_and_the_old_one_stays_trusted() -> None:
    first = new_identity(NAMES, NOW_NS)
    late_ns = NOW_NS + AUTHORITY_LIFE_NS * 7 // 10
    # Its certificate was renewed a few times since, last some days ago.
    server = new_server(Identity(first.ca_bundle, first.ca_key), NAMES, late_ns - 70 * DAY_NS)
    first = replace(first, certificate=server.certificate_pem, key=server.key_pem)
    second = renewed(first, NAMES, late_ns)
    assert second.ca_bundle.endswith(first.ca_bundle)
    assert second.ca_bundle.count(b"BEGIN CERTIFICATE") == 2
    assert second.certificate == first.certificate
    assert identity_from_data(second.to_data()) == second
    assert renewed(second, NAMES, late_ns + SETTLE_NS // 2) is second
    third = renewed(second, NAMES, late_ns + SETTLE_NS)
    newest = x509.load_pem_x509_certificate(second.ca_bundle)
    x509.load_pem_x509_certificate(third.certificate).verify_directly_issued_by(newest)
    assert third.ca_bundle == second.ca_bundle


def test_an_expired_certificate_is_replaced_at_once() -> None:
    first = new_identity(NAMES, NOW_NS)
    assert renewed(first, NAMES, NOW_NS + AUTHORITY_LIFE_NS).certificate != first.certificate


def test_other_names_need_another_certificate() -> None:
    first = new_identity(NAMES, NOW_NS)
    assert renewed(first, ("localhost",), NOW_NS).certificate != first.certificate


def test_an_identity_without_an_authoritys_key_is_renewed_by_somebody_else() -> None:
    data = new_identity(NAMES, NOW_NS).to_data()
    del data["ca.key"]
    given = identity_from_data(data)
    assert renewed(given, ("other",), NOW_NS + AUTHORITY_LIFE_NS) is given


BROKEN = [(name, b"garbage") for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")]
BROKEN += [(name, b"") for name in ("ca.crt", "tls.crt", "tls.key")]


@pytest.mark.parametrize(("name", "value"), BROKEN)
def test_a_broken_identity_is_refused_by_its_field(name: str, value: bytes) -> None:
    data = new_identity(NAMES, NOW_NS).to_data() | {name: value}
    with pytest.raises(InputError, match="data"):
        identity_from_data(data)


def test_parts_of_two_identities_do_not_make_one() -> None:
    one, other = new_identity(NAMES, NOW_NS).to_data(), new_identity(NAMES, NOW_NS).to_data()
    for name in ("tls.crt", "tls.key", "ca.crt", "ca.key"):
        with pytest.raises(InputError):
            identity_from_data(one | {name: other[name]})


def config_map(api: EmbeddedKube) -> None:
    metadata = {"name": "ca", "namespace": NODES}
    api.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}, NODES)


def store(api: Any, clock: ManualClock) -> IdentityStore:
    publish = publish_to_config_map(api, NODES, "ca")
    return IdentityStore(api, clock, SYSTEM, "tls", NAMES, publish)


def test_replicas_share_one_identity_and_agents_read_its_authority() -> None:
    clock = ManualClock()
    api = EmbeddedKube(clock)
    config_map(api)
    first = store(api, clock).ensure()
    assert store(api, clock).ensure() == first
    assert api.get(CONFIG_MAPS, "ca", NODES)["data"] == {"ca.crt": first.ca_bundle.decode()}
    clock.advance_seconds(70 * DAY_SECONDS)
    assert store(api, clock).ensure().certificate != first.certificate


def test_the_webhook_trusts_the_authority() -> None:
    clock = ManualClock()
    api = EmbeddedKube(clock)
    metadata = {"name": "w"}
    body = {"metadata": metadata, "webhooks": [{"name": "a", "clientConfig": {}}]}
    api.create(MUTATING_WEBHOOKS, body)
    publish = publish_to_webhook(api, "w")
    first = IdentityStore(api, clock, SYSTEM, "tls", NAMES, publish).ensure()
    bundle = api.get(MUTATING_WEBHOOKS, "w")["webhooks"][0]["clientConfig"]["caBundle"]
    assert base64.b64decode(bundle) == first.ca_bundle


def test_an_unusable_secret_is_replaced() -> None:
    clock = ManualClock()
    api = EmbeddedKube(clock)
    config_map(api)
    metadata = {"name": "tls", "namespace": SYSTEM}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"tls.crt": "!"}}
    api.create(SECRETS, body, SYSTEM)
    first = store(api, clock).ensure()
    assert store(api, clock).ensure() == first


def test_a_replica_that_lost_the_race_takes_what_the_other_wrote() -> None:
    clock = ManualClock()
    api = EmbeddedKube(clock)
    config_map(api)
    conflicts = iter([ConflictError("somebody was first")])

    def publish(bundle: bytes) -> None:
        for error in conflicts:
            raise error

    made = IdentityStore(api, clock, SYSTEM, "tls", NAMES, publish).ensure()
    assert store(api, clock).ensure() == made


def test_a_cluster_that_does_not_answer_leaves_what_is_shown() -> None:
    clock = ManualClock()
    api = EmbeddedKube(clock)
    shown: list[ServingIdentity] = []
    keeper = IdentityKeeper(shown.append, store(api, clock), clock)
    assert not keeper.renew()  # the ConfigMap is missing
    config_map(api)
    assert keeper.renew()
    assert shown == [store(api, clock).ensure()]


def test_a_missing_config_map_is_the_installers_to_make() -> None:
    clock = ManualClock()
    with pytest.raises(NotFoundError):
        store(EmbeddedKube(clock), clock).ensure()


@pytest.mark.parametrize("ahead_days", [1, 4 * 365], ids=["certificate", "authority too"])
def test_what_a_clock_that_ran_ahead_has_made_is_made_anew(ahead_days: int) -> None:
    early = new_identity(NAMES, NOW_NS + ahead_days * DAY_NS)
    mended = renewed(early, NAMES, NOW_NS)
    authority = x509.load_pem_x509_certificate(mended.ca_bundle)
    certificate = x509.load_pem_x509_certificate(mended.certificate)
    certificate.verify_directly_issued_by(authority)
    for made in (authority, certificate):
        assert made.not_valid_before_utc.timestamp() * 10**9 <= NOW_NS
    assert renewed(mended, NAMES, NOW_NS) is mended


def test_an_address_keeps_its_certificate_however_it_is_spelled() -> None:
    names = ["2001:DB8:0::1", "127.0.0.1"]
    first = new_identity(names, NOW_NS)
    assert renewed(first, names, NOW_NS) is first


def test_a_certificate_without_alternative_names_is_replaced() -> None:
    made = new_identity(NAMES, NOW_NS)
    key = ec.generate_private_key(ec.SECP256R1())
    signer = serialization.load_pem_private_key(made.ca_key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    nameless = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(x509.load_pem_x509_certificate(made.ca_bundle).subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime.datetime.fromtimestamp(NOW_NS / 10**9, tz=datetime.UTC))
        .not_valid_after(datetime.datetime.fromtimestamp(NOW_NS / 10**9 + 10**6, tz=datetime.UTC))
        .sign(signer, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    given = replace(made, certificate=nameless)
    assert renewed(given, NAMES, NOW_NS).certificate != nameless


@pytest.mark.parametrize("name", ["", "küche.example"])
def test_a_name_that_no_certificate_can_carry_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="names"):
        new_identity([name], NOW_NS)


def test_a_secret_with_an_empty_field_is_replaced() -> None:
    clock = ManualClock()
    api = EmbeddedKube(clock)
    config_map(api)
    body = {"metadata": {"name": "tls", "namespace": SYSTEM}, "data": {"tls.crt": None}}
    api.create(SECRETS, body, SYSTEM)
    first = store(api, clock).ensure()
    assert store(api, clock).ensure() == first
