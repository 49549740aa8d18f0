"""``wattpack controller`` as a process: its settings, its start on a cluster, its end."""

from __future__ import annotations

import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from controller.app.controller_command import ENVIRONMENT, build_parser, first_identity, main, run
from controller.app.controller_settings import ControllerSettings
from simulation.kube import EmbeddedKube
from wattpack.clock import ManualClock, SystemClock
from wattpack.errors import InputError
from wattpack.http_access import METRICS
from wattpack.kube.identity_store import IdentityStore, publish_to_config_map
from wattpack.kube.port import CONFIG_MAPS, LEASES, SECRETS, KubeError, NotFoundError, TokenIdentity

SYSTEM, NODES = "wattpack-system", "wattpack-node"
CA = "wattpack-controller-ca"


def install(api: EmbeddedKube) -> None:
    """What the chart makes for the controllers."""
    metadata = {"name": CA, "namespace": NODES}
    api.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}, NODES)


def loaded(*flags: str, environment: dict[str, str], file: Path | None = None) -> Any:
    options = build_parser().parse_args(list(flags))
    return ControllerSettings.load(
        file=file,
        environment=environment,
        prefix=ENVIRONMENT,
        flags={"lease_seconds": options.lease_seconds, "server_names": options.server_names},
    )


def test_help_names_every_setting() -> None:
    told = build_parser().format_help()
    for name in ControllerSettings.model_fields:
        # Of a repeated flag the singular is told.
        flag = f"--{name.removesuffix('s').replace('_', '-')}"
        assert flag in told or f"\n  {name}\n" in told, name


def test_a_flag_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("lease_seconds: 20\nreplica: from-file\ntls_secret: from-file\n")
    environment = {f"{ENVIRONMENT}LEASE_SECONDS": "30", f"{ENVIRONMENT}REPLICA": "from-env"}
    settings = loaded("--lease-seconds=40", environment=environment, file=file)
    assert (settings.lease_seconds, settings.replica, settings.tls_secret) == (
        40,
        "from-env",
        "from-file",
    )


def test_several_server_names_are_kept() -> None:
    settings = loaded("--server-name=a", "--server-name=b", environment={})
    assert settings.server_names == ("a", "b")


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("lease_second: 3", "lease_second"),
        ("lease_seconds: 1", "lease_seconds"),
        ("lease_seconds: .nan", "lease_seconds"),
        ("http_port: 70000", "http_port"),
        ("server_names: []", "server_names"),
        ("server_power_query: bmc_watts", "meter_prometheus_url"),
        ("dcgm_prometheus_url: prometheus:9090", "dcgm_prometheus_url"),
        ("dcgm_prometheus_url: http://", "dcgm_prometheus_url"),
        ("meter_prometheus_url: prometheus:9090", "meter_prometheus_url"),
        ("meter_prometheus_url: http://:9090", "meter_prometheus_url"),
        ("- a list", "file"),
        ("lease_seconds: [", "file"),
    ],
)
def test_a_wrong_settings_file_is_refused_by_its_field(
    tmp_path: Path, text: str, field: str
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(InputError) as refused:
        main([f"--config={file}"])
    assert refused.value.field == field


def test_an_address_that_cannot_be_asked_is_refused_by_its_variable() -> None:
    with pytest.raises(InputError) as refused:
        loaded(environment={f"{ENVIRONMENT}DCGM_PROMETHEUS_URL": "prometheus:9090"})
    assert str(refused.value) == (
        f"{ENVIRONMENT}DCGM_PROMETHEUS_URL: dcgm_prometheus_url: expected an http:// or https:// "
        "address with a host, for example http://prometheus:9090, got 'prometheus:9090'"
    )


def test_an_unknown_flag_ends_with_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--http-prot=1"])
    assert "--http-prot" in capsys.readouterr().err


def test_a_replica_without_a_cluster_waits_for_its_certificate() -> None:
    clock = ManualClock()
    api = EmbeddedKube(clock)
    tries: list[int] = []

    def publish(bundle: bytes) -> None:
        tries.append(clock.monotonic_ns())
        if len(tries) < 3:
            raise KubeError("away")

    store = IdentityStore(api, clock, SYSTEM, "tls", ["localhost"], publish)
    assert first_identity(store, clock, clock.new_wake()) == store.ensure()
    assert tries[2] - tries[1] == tries[1] - tries[0] > 0


def test_a_replica_that_is_stopped_before_it_starts_just_ends() -> None:
    clock = ManualClock()
    api = EmbeddedKube(clock)
    stop = clock.new_wake()
    stop.set()
    store = IdentityStore(
        api, clock, SYSTEM, "tls", ["localhost"], publish_to_config_map(api, NODES, CA)
    )
    assert first_identity(store, clock, stop) is None


class Replica:
    """One replica on the embedded API, in a thread."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.api = EmbeddedKube(self.clock)
        install(self.api)
        self.stop_wake = self.clock.new_wake()
        self.status: int | None = None
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        settings = ControllerSettings(
            stream_address="127.0.0.1:0",
            http_host="127.0.0.1",
            http_port=self.port,
            ca_namespace=NODES,
            retry_seconds=0.1,
        )
        self.thread = threading.Thread(target=self._run, args=(settings,))
        self.thread.start()

    def _run(self, settings: ControllerSettings) -> None:
        self.status = run(settings, self.api, self.clock, self.stop_wake)

    def holder(self) -> str | None:
        try:
            lease = self.api.get(LEASES, "wattpack-controller", SYSTEM)
        except NotFoundError:
            return None
        return str(lease["spec"]["holderIdentity"])

    def wait(self, probe: Callable[[], object]) -> None:
        deadline_ns = self.clock.monotonic_ns() + 10**10
        while not probe():
            assert self.clock.monotonic_ns() < deadline_ns, "never happened"
            self.clock.wait_until(self.clock.monotonic_ns() + 10**7)

    def end(self) -> None:
        self.stop_wake.set()
        self.thread.join(20)


@pytest.fixture
def replica() -> Iterator[Replica]:
    made = Replica()
    yield made
    made.end()


def test_a_replica_leads_publishes_its_authority_and_gives_the_lease_back(
    replica: Replica,
) -> None:
    replica.wait(replica.holder)
    assert str(replica.holder()).startswith("controller-0-")
    bundle = replica.api.get(CONFIG_MAPS, CA, NODES)["data"]["ca.crt"]
    assert grpc.ssl_channel_credentials(bundle.encode()) is not None
    assert set(replica.api.get(SECRETS, "wattpack-controller-tls", SYSTEM)["data"]) == {
        "ca.crt",
        "ca.key",
        "tls.crt",
        "tls.key",
    }
    replica.end()
    assert (replica.status, replica.holder()) == (0, "")


def read(replica: Replica, path: str, token: str = "") -> tuple[int, bytes]:
    request = urllib.request.Request(f"http://127.0.0.1:{replica.port}{path}")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    opener = urllib.request.OpenerDirector()
    opener.add_handler(urllib.request.HTTPHandler())
    with opener.open(request, timeout=20) as answer:
        return answer.status, answer.read()


@pytest.mark.parametrize("path", ["/metrics", "/v1/live"])
def test_a_replica_shows_nothing_to_strangers_and_its_health_to_all(
    replica: Replica, path: str
) -> None:
    replica.api.register_token("reader", TokenIdentity("ann"))
    replica.api.allow("ann", METRICS)
    replica.wait(replica.holder)
    assert read(replica, "/healthz") == (200, b"ok\n")
    assert read(replica, path)[0] == 401
    assert read(replica, path, "forged")[0] == 401
    allowed = {"/metrics": 200, "/v1/live": 403}
    assert read(replica, path, "reader")[0] == allowed[path]
    refused = read(replica, "/metrics", "reader")[1].decode()
    assert 'wattpack_http_refused_requests_total{reason="UnauthenticatedError"} 2.0' in refused


def test_a_replica_tells_when_its_certificate_ends(replica: Replica) -> None:
    replica.api.register_token("reader", TokenIdentity("ann"))
    replica.api.allow("ann", METRICS)
    replica.wait(replica.holder)
    name = 'wattpack_certificate_expires_timestamp_seconds{server="stream"}'
    lines = read(replica, "/metrics", "reader")[1].decode().splitlines()
    (ends,) = (float(line.split()[1]) for line in lines if line.startswith(name))
    days = (ends - replica.clock.wall_time_ns() / 10**9) / 86_400
    assert days == pytest.approx(90, abs=0.1)


def test_durations_that_contradict_each_other_are_refused_before_anything_starts() -> None:
    clock = ManualClock()
    api = EmbeddedKube(clock)
    with pytest.raises(InputError, match="retry_seconds < renew_deadline_seconds"):
        run(ControllerSettings(lease_seconds=3), api, clock, clock.new_wake())
    assert api.list(SECRETS).items == ()
