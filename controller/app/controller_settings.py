"""The controller process's settings: file < environment < flag; every name carries its unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from controller.app import decision_log
from controller.host_draws import READINGS_MAX_AGE_SECONDS
from controller.tick_values import PowerSettings
from forecasting.decisions.priority_risks import risk_bands
from forecasting.sqlite import history_store
from wattpack.errors import InputError
from wattpack.http_address import http_address
from wattpack.kube.election import CONTROLLER_ELECTION, ElectionSettings
from wattpack.object_names import SYSTEM_NAMESPACE
from wattpack.settings import Settings

_POWER = PowerSettings()


class ControllerSettings(Settings):
    """What one controller replica can be told."""

    replica: Annotated[str, Field(min_length=1, description="Name of this replica")] = (
        "controller-0"
    )
    namespace: Annotated[
        str, Field(min_length=1, description="Where its Lease lies, and the forecasts that count")
    ] = SYSTEM_NAMESPACE
    stream_address: Annotated[str, Field(description="host:port for the agents' streams")] = (
        "0.0.0.0:8443"
    )
    http_host: Annotated[str, Field(description="Address for health, metrics, live view")] = (
        "0.0.0.0"
    )
    http_port: Annotated[int, Field(ge=0, le=65535, description="Its port; 0 chooses one")] = 8081
    http_insecure: Annotated[
        bool, Field(description="Live view and metrics for everybody; for tests and demos only")
    ] = False
    http_names: Annotated[
        tuple[str, ...],
        Field(description="Names beside server_names that HTTP requests may ask for us by"),
    ] = ()
    server_names: Annotated[
        tuple[str, ...], Field(min_length=1, description="Names in the serving certificate")
    ] = ("localhost", "127.0.0.1")
    tls_secret: Annotated[
        str, Field(min_length=1, description="Secret with the serving certificate, renewed by us")
    ] = "wattpack-controller-tls"
    ca_config_map: Annotated[
        str, Field(min_length=1, description="ConfigMap whose ca.crt agents trust")
    ] = "wattpack-controller-ca"
    ca_namespace: Annotated[
        str, Field(description="Namespace of that ConfigMap; empty for the Lease's")
    ] = ""
    lease_seconds: Annotated[
        int, Field(ge=2, le=120, description="How long a standby waits for a silent leader")
    ] = CONTROLLER_ELECTION.lease_seconds
    renew_deadline_seconds: Annotated[
        float, Field(gt=0, le=120, description="How long a leader believes in itself")
    ] = CONTROLLER_ELECTION.renew_deadline_seconds
    retry_seconds: Annotated[
        float, Field(gt=0, le=60, description="Between two looks at the Lease")
    ] = CONTROLLER_ELECTION.retry_seconds
    agent_username: Annotated[
        str, Field(description="User name that agent tokens must carry; empty accepts any")
    ] = "system:serviceaccount:wattpack-agents:wattpack-agent"
    report_period_ms: Annotated[int, Field(ge=50, le=10_000, description="Asked of agents")] = 1000
    tick_seconds: Annotated[float, Field(gt=0, le=10, description="Between two decisions")] = 1.0
    lease_ttl_ms: Annotated[int, Field(ge=500, le=10_000, description="Lease length (I3)")] = (
        _POWER.lease_ttl_ms
    )
    actuation_seconds: Annotated[
        float, Field(gt=0, le=60, description="From a command to the written limit, p99.9 (I2)")
    ] = _POWER.actuation_seconds
    settle_seconds: Annotated[
        float, Field(gt=0, le=60, description="From a written limit to its effect, p99.9 (I2)")
    ] = _POWER.settle_seconds
    audit_file: Annotated[
        str, Field(description="SQLite file of decisions; :memory: keeps none")
    ] = ":memory:"
    audit_retention_days: Annotated[
        float, Field(gt=0, le=36500, description="Decisions older than this are deleted")
    ] = decision_log.KEPT_DAYS
    audit_max_mebibytes: Annotated[
        int, Field(ge=1, le=1 << 20, description="Beyond this the oldest decisions are deleted")
    ] = decision_log.KEPT_MEBIBYTES
    risk_below_priority: Annotated[
        Mapping[int, float],
        Field(
            description="Share of windows, 0.01 to 0.5, in which pods of a priority below each key "
            "may be capped: watts that may be promised; 0.01 for all others"
        ),
    ] = {}
    history_file: Annotated[
        str, Field(description="SQLite file for the draw of every domain; empty keeps none")
    ] = ""
    history_retention_days: Annotated[
        float, Field(ge=11, le=36500, description="Draws older than this go; forecasts read 10")
    ] = history_store.KEPT_DAYS
    history_max_mebibytes: Annotated[
        int, Field(ge=1, le=1 << 20, description="Beyond this the oldest draws are deleted")
    ] = history_store.KEPT_MEBIBYTES
    meter_prometheus_url: Annotated[
        str, Field(description="Prometheus that answers the domains' meter queries; empty for none")
    ] = ""
    server_power_query: Annotated[
        str,
        Field(
            max_length=2000,
            description="PromQL of one series a server: AC watts of all of it, by its BMC "
            "(IPMI, Redfish), asked of meter_prometheus_url; empty for none",
        ),
    ] = ""
    server_power_label: Annotated[
        str, Field(min_length=1, max_length=200, description="Label with the Node's name there")
    ] = "node"
    server_power_max_age_seconds: Annotated[
        float, Field(gt=0, le=60, description="Older readings of servers count as missing")
    ] = READINGS_MAX_AGE_SECONDS
    dcgm_prometheus_url: Annotated[
        str, Field(description="Prometheus with dcgm-exporter's DCGM_FI_PROF_*; empty for none")
    ] = ""
    dcgm_max_age_seconds: Annotated[
        float, Field(gt=0, le=600, description="Older fields of dcgm-exporter count as missing")
    ] = 90.0
    write_workload_profiles: Annotated[
        bool, Field(description="Write a WorkloadProfile for owners of pods that nobody described")
    ] = True
    simulated: Annotated[bool, Field(description="Marks everything shown as simulated")] = False
    label: Annotated[str, Field(max_length=200, description="Shown in the console's header")] = ""

    @field_validator("meter_prometheus_url", "dcgm_prometheus_url")
    @classmethod
    def _can_be_asked(cls, address: str) -> str:
        return http_address(address) if address else address

    @model_validator(mode="after")
    def _servers_have_somebody_to_ask(self) -> Self:
        risk_bands(self.risk_below_priority)
        if self.server_power_query and not self.meter_prometheus_url:
            expected = "the address of a Prometheus to ask server_power_query of"
            raise InputError("meter_prometheus_url", expected, self.meter_prometheus_url)
        return self

    def power(self) -> PowerSettings:
        """The constants of the power loop."""
        return PowerSettings(
            lease_ttl_ms=self.lease_ttl_ms,
            settle_seconds=self.settle_seconds,
            actuation_seconds=self.actuation_seconds,
        )

    def election(self) -> ElectionSettings:
        """The durations of the election.

        Raises:
            InputError: if they contradict each other.
        """
        return ElectionSettings(self.lease_seconds, self.renew_deadline_seconds, self.retry_seconds)
