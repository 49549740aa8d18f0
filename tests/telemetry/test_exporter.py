"""What /metrics, the table and the JSON show."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from gpu.device import GpuTimeout
from telemetry.app.live_table import build_table
from telemetry.attribution import Attribution, PodOnGpu, ProcessOnGpu
from telemetry.exporter import NodeCollector
from telemetry.node_state import NodeState, throttle_reason_names, to_json
from tests.telemetry.telemetry_builders import (
    SECOND,
    actuator_status,
    device_status,
    limits,
    node_state,
    reading,
    sample,
)
from wattpack.units import GpuUuid

POD = PodOnGpu("team", "train-0", "uid-1", ("main",), (GpuUuid("GPU-0"),))
MINER = ProcessOnGpu(GpuUuid("GPU-1"), 41, "miner", 5)


def scrape(state: NodeState | None) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    registry = CollectorRegistry()
    registry.register(NodeCollector(lambda: state))
    out: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for item in family.samples:
            labels = tuple(sorted((k, v) for k, v in item.labels.items() if k != "model"))
            out.setdefault(item.name, {})[labels] = item.value
    return out


def gpu(index: int, **labels: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({"gpu": str(index), "uuid": f"GPU-{index}", **labels}.items()))


def full_state(**changes: Any) -> NodeState:
    first = sample(
        0,
        reading=reading(
            412.5,
            instant_draw_watts=430.0,
            energy_joules=1234.5,
            sm_clock_mhz=1455,
            throttle_reasons=0x4,
            ecc_uncorrected=2,
        ),
        limits=limits(500.0, enforced_limit_watts=450.0),
        xid_counts={79: 1},
    )
    second = sample(1, 90.0, error=GpuTimeout("stuck"))
    attribution = Attribution((POD,), (MINER,), "kubelet")
    return node_state(first, second, attribution=attribution, **changes)


def test_metrics_are_in_base_units_with_plain_names() -> None:
    metrics = scrape(full_state())
    assert metrics["wattpack_gpu_power_watts"][gpu(0)] == 412.5
    assert metrics["wattpack_gpu_power_instant_watts"] == {gpu(0): 430.0}
    assert metrics["wattpack_gpu_energy_joules_total"] == {gpu(0): 1234.5}
    assert metrics["wattpack_gpu_power_limit_watts"][gpu(0)] == 500.0
    assert metrics["wattpack_gpu_power_limit_enforced_watts"][gpu(0)] == 450.0
    assert metrics["wattpack_gpu_sm_clock_hertz"][gpu(0)] == 1.455e9
    assert metrics["wattpack_gpu_xid_events_total"] == {gpu(0, xid="79"): 1.0}
    assert metrics["wattpack_gpu_ecc_errors_total"] == {gpu(0, kind="uncorrected"): 2.0}
    throttle = metrics["wattpack_gpu_throttle_active"]
    assert throttle[gpu(0, reason="sw_power_cap")] == 1.0
    assert throttle[gpu(0, reason="gpu_idle")] == 0.0


def test_a_stuck_device_shows_its_age_and_counts_as_missing() -> None:
    metrics = scrape(full_state())
    assert metrics["wattpack_gpu_readable"] == {gpu(0): 1.0, gpu(1): 0.0}
    assert metrics["wattpack_gpu_reading_age_seconds"][gpu(1)] == 1.0
    assert metrics["wattpack_node_telemetry_missing_ratio"] == {(("node", "n0"),): 0.5}


def test_devices_that_never_answered_count_as_missing() -> None:
    state = node_state(sample(0), unidentified=3)
    assert scrape(state)["wattpack_node_telemetry_missing_ratio"] == {(("node", "n0"),): 0.75}
    assert scrape(state)["wattpack_node_gpus"] == {(("node", "n0"),): 4.0}


def test_pods_and_processes_outside_kubernetes_are_told_apart() -> None:
    metrics = scrape(full_state())
    labels = (("namespace", "team"), ("pod", "train-0"), ("pod_uid", "uid-1"), ("uuid", "GPU-0"))
    assert metrics["wattpack_gpu_pod_info"] == {labels: 1.0}
    outside = metrics["wattpack_gpu_processes_outside_kubernetes"]
    assert outside == {(("uuid", "GPU-0"),): 0.0, (("uuid", "GPU-1"),): 1.0}


def test_the_actuators_view_is_exported_while_it_answers() -> None:
    actuator = actuator_status(device_status(failed_writes=3, lock_max_mhz=1200))
    metrics = scrape(full_state(actuator=actuator))
    assert metrics["wattpack_node_actuator_up"] == {(("node", "n0"),): 1.0}
    assert metrics["wattpack_gpu_guaranteed_watts"] == {gpu(0): 300.0}
    assert metrics["wattpack_gpu_lease_active"] == {gpu(0): 1.0}
    assert metrics["wattpack_gpu_failed_writes_total"] == {gpu(0): 3.0}
    assert metrics["wattpack_gpu_clock_lock_hertz"] == {gpu(0): 1.2e9}
    assert scrape(full_state())["wattpack_node_actuator_up"] == {(("node", "n0"),): 0.0}


def test_what_the_agent_did_by_itself_is_counted() -> None:
    metrics = scrape(full_state(emergency_cuts=2, refused_batches=3))
    assert metrics["wattpack_node_emergency_cuts_total"] == {(("node", "n0"),): 2.0}
    assert metrics["wattpack_node_refused_batches_total"] == {(("node", "n0"),): 3.0}


def test_there_is_nothing_to_scrape_before_the_first_round() -> None:
    assert scrape(None) == {}


def test_a_pod_name_with_quotes_cannot_break_the_format() -> None:
    pod = PodOnGpu("n", 'a"b\\c\nd', "", (), (GpuUuid("GPU-0"),))
    metrics = scrape(node_state(sample(0), attribution=Attribution((pod,))))
    ((labels, _),) = metrics["wattpack_gpu_pod_info"].items()
    assert dict(labels)["pod"] == 'a"b\\c\nd'


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        (None, ()),
        (0, ()),
        (0x4, ("sw_power_cap",)),
        (0x41, ("gpu_idle", "hw_thermal_slowdown")),
        (0x800, ("bit_11",)),
    ],
)
def test_throttle_masks_are_spelled_out(mask: int | None, names: tuple[str, ...]) -> None:
    assert throttle_reason_names(mask) == names


def render(state: NodeState, width: int) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(build_table(state, "note"))
    return console.export_text()


def test_the_table_shows_each_gpu_on_one_line_at_80_columns() -> None:
    text = render(full_state(), 80)
    assert "n0: 2 GPUs, 502 W, 50% without a fresh reading" in text
    assert "412" in text
    assert "unreada" in text
    assert len([line for line in text.splitlines() if "NVIDIA" in line]) == 2


def test_the_table_says_who_uses_a_gpu_and_which_limit_rules() -> None:
    text = render(full_state(), 200)
    assert "team/train-0" in text
    assert "41 miner" in text
    assert "500 (rules: 450)" in text


def test_the_json_holds_nothing_that_json_cannot() -> None:
    document = json.loads(json.dumps(to_json(full_state()), allow_nan=False))
    first, second = document["devices"]
    assert first["reading"]["draw_watts"] == 412.5
    assert first["holders"] == ["team/train-0"]
    assert second["error"] == "stuck"
    assert document["draw_watts"] == 502.5
    empty = to_json(node_state(sample(0, None, limits=None), now_ns=SECOND))
    assert empty["devices"][0]["age_seconds"] is None
