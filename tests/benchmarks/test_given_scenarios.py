"""Benchmarks that read a part of a scenario file: what it changes, what is left, what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from benchmarks import (
    _week_spans,
    allocation_scale,
    feed_loss,
    headroom,
    inference_row,
    lease_safety,
    no_trip,
    polca_weeks,
    priority,
    restart,
    serving_model,
    value_per_watt,
)
from benchmarks._given_scenario import Given, given_scenario, read_given
from benchmarks._lease_kind import READS as ROW_READS
from benchmarks._lease_kind import RowKind
from benchmarks._watt_fleet import READS as FLEET_READS
from benchmarks._watt_fleet import given_fleet
from benchmarks.runner import Options, Result
from capacity.step_library import shipped_step_tables
from wattpack.errors import InputError

QUIET = Options(quick=True, progress=lambda _: None)
ROW = {
    "groups": [{"gpu_model": "A100-SXM", "count": 4}],
    "gpus_per_server": 4,
    "racks": 2,
    "rated_servers": 4,
    "rated_server_watts": 4600,
    "rack_rated_servers": 2.2,
    "external_watts": 500,
}
ALL_THAT_TAKE_PARTS = (
    allocation_scale, lease_safety, priority, restart, serving_model, value_per_watt,
)  # fmt: skip


def written(folder: Path, row: dict[str, Any] | None = None, **more: Any) -> Path:
    file = folder / f"row-{len(list(folder.iterdir()))}.yaml"
    document = {"name": "own", "row": {**ROW, **(row or {})}, **more}
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return file


def given(folder: Path, reads: tuple[str, ...], **more: Any) -> Given:
    return read_given(written(folder, **more), QUIET, reads)


def asked(file: Path, *more: str) -> Options:
    return Options(quick=True, arguments=(*more, "--scenario", str(file)), progress=lambda _: None)


@pytest.mark.parametrize("benchmark", ALL_THAT_TAKE_PARTS, ids=lambda module: module.NAME)
@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("row: {rackz: 2}", "row.rackz"),
        ("row: {groups: [{gpu_model: H999, count: 4}]}", r"row\.groups\[\]\.gpu_model"),
        ("row: [", "YAML"),
        (None, "missing.yaml"),
    ],
)
def test_a_bad_file_is_refused_by_its_key(
    benchmark: Any, text: str | None, key: str, tmp_path: Path
) -> None:
    file = tmp_path / "missing.yaml"
    if text is not None:
        file = tmp_path / "row.yaml"
        file.write_text(text + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=key):
        benchmark.run(asked(file))


def test_what_has_no_meaning_is_told_by_its_keys(tmp_path: Path) -> None:
    told: list[str] = []
    file = written(tmp_path, services=[], history={"days": 1})
    options = Options(arguments=("--scenario", str(file)), progress=told.append)
    found = given_scenario("x", options, ("row.groups", "services[].replicas", "row.racks"))
    assert found is not None
    assert set(found.without_meaning) == {
        "row.external_watts", "row.gpus_per_server", "row.rack_rated_servers",
        "row.rated_server_watts", "row.rated_servers", "history.days",
    }  # fmt: skip
    assert told == [f"{file}: no meaning here: {', '.join(found.without_meaning)}"]
    with pytest.raises(InputError, match="arguments"):
        given_scenario("x", Options(arguments=("more",)), ())


def test_priority_draws_its_houses_from_the_row(tmp_path: Path) -> None:
    classes = [{"name": "high", "value": 7}, {"name": "low", "value": 3, "floor_ratio": 0.5}]
    one = given(tmp_path, priority.READS, priority_classes=classes)
    drawn = priority.Drawn.of(one)
    assert drawn.ranges.types.keys() == {"A100-SXM"}
    few = priority.one_shard(1, 0, houses=4, runs=1, drawn=drawn)["counts"]
    row = {"gpus_per_server": 8, "redundancy": "2N"}
    other = priority.Drawn.of(given(tmp_path, priority.READS, row=row, priority_classes=classes))
    many = priority.one_shard(1, 0, houses=4, runs=1, drawn=other)["counts"]
    assert many["gpus"] > few["gpus"]
    assert {name for name in (*few, *many) if name in priority.KINDS} == set()


def test_value_per_watt_deals_the_mix_of_the_row_to_its_servers(tmp_path: Path) -> None:
    service = {"name": "s", "trace": "code", "priority_class": "low", "replicas": 2}
    training = [{"name": "t", "pods": 2, "gpus_per_pod": 2}]
    mixed = given_fleet(
        given(
            tmp_path,
            FLEET_READS,
            services=[{**service, "tensor_parallel": 2, "language_model": "llama-3.1-8b"}],
            training=training,
        )
    )
    kinds = [kind for _, kind in mixed.jobs]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "prefill": 2, "decode": 2, "training": 4, "batch": 8,
    }  # fmt: skip
    figures = [
        value_per_watt.run(asked(written(tmp_path, services=[], training=jobs))).figures
        for jobs in ([], training)
    ]
    name = "limits_optimum_over_uniform_at_60"
    assert figures[0][name] != figures[1][name]


def test_allocation_scale_builds_sites_of_the_row(tmp_path: Path) -> None:
    kinds = [
        allocation_scale.SiteKind.of(given(tmp_path, allocation_scale.READS, row=row, services=[]))
        for row in ({}, {"gpus_per_server": 2, "rated_servers": 3})
    ]
    rng = np.random.default_rng(1)
    few, more = (allocation_scale.synthetic_topology(one.nodes_for(96), rng, one) for one in kinds)
    assert (few.n_nodes, more.n_nodes) == (24, 48)
    assert kinds[0].oversubscription < kinds[1].oversubscription
    assert (few.default_limit_watts == 400.0).all()
    seconds = allocation_scale.time_steps(few, 3, rng, kinds[0].settings)
    assert len(seconds) == 3


def test_lease_safety_ends_the_leases_of_the_row(tmp_path: Path) -> None:
    control = {"lease_ttl_ms": 2500}
    one = given(tmp_path, lease_safety.READS, control=control)
    kind = RowKind.of(one)
    row, judge = lease_safety.new_row(3, kind)
    assert (len(row.nodes), len(row.boards), judge.fault_seconds) == (4, 16, 4.3)
    row.run(12.0, lambda _: judge.look(row))
    held = max(board.limit_watts for board in row.boards)
    guaranteed = row.topology.guaranteed_watts.tolist()
    assert 100.0 < max(guaranteed) < held <= 400.0
    for replica in row.replicas:
        replica.kill()
    # The shorter lease is over where the usual one of 3.5 s would still hold.
    row.run(3.1, lambda _: judge.look(row))
    assert [board.limit_watts for board in row.boards] == pytest.approx(guaranteed)
    assert not judge.violations


def test_lease_safety_kills_what_the_file_names(tmp_path: Path) -> None:
    faults = [{"kind": "node_reboot", "at_seconds": 1.0}, {"kind": "meter_gap", "at_seconds": 1.0}]
    one = given(tmp_path, lease_safety.READS, faults=faults)
    assert lease_safety.actions_of(one) == ["start_agent", "reboot", "ask", "garbage"]
    assert lease_safety.actions_of(None) == list(lease_safety.ACTIONS)
    with pytest.raises(InputError, match=r"faults\[\]\.kind"):
        lease_safety.actions_of(given(tmp_path, lease_safety.READS, faults=faults[1:]))


def test_restart_kills_the_leader_of_the_row(tmp_path: Path) -> None:
    two = {"groups": [{"gpu_model": "A100-SXM", "count": 2}], "rated_servers": 2.4}
    found = []
    for row in ({}, two):
        kind = RowKind.of(given(tmp_path, ROW_READS, row=row))
        found.append(restart.one_kill(0, 0, 1, kind))
    assert [one["fell"] for one in found] == [16, 8]
    assert [one["violations"] for one in found] == [0, 0]


def test_restart_refuses_a_row_that_cannot_be_held(tmp_path: Path) -> None:
    file = written(tmp_path, row={"rated_servers": 1})
    with pytest.raises(InputError, match=r"row\.rated_servers.*I1"):
        restart.run(asked(file))


def test_serving_model_compares_the_services_of_the_row(tmp_path: Path) -> None:
    service = {
        "name": "own", "trace": "code", "priority_class": "high", "replicas": 1,
        "tensor_parallel": 1, "language_model": "llama-3.1-8b",
    }  # fmt: skip
    rates = []
    for batch in (256, 1):
        services = [{**service, "max_batch": batch}]
        one = given(tmp_path, serving_model.READS, services=services)
        (case,) = serving_model.given_cases(one)
        assert (case.name, case.gpu, case.step_seconds) == ("a100_own", "A100-SXM", 0.25)
        table = shipped_step_tables().find(case.gpu, case.language_model, case.tensor_parallel)
        sizes = serving_model.lengths(case, 40, (1, 0))
        clock = serving_model.TableClock(table)
        rates.append(serving_model.most_requests_per_second(clock, sizes, case.batching))
    assert rates[0] > 2.0 * rates[1]
    with pytest.raises(InputError, match="services"):
        serving_model.run(asked(written(tmp_path, services=[])))


def of_inference(folder: Path, row: dict[str, Any]) -> Path:
    whole = {"gpus_per_server": 8, "rated_server_watts": 5800, "rack_rated_servers": 4, **row}
    return written(folder, row=whole)


def test_inference_row_marks_the_servers_of_the_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inference_row, "QUICK_DAYS", range(1))
    monkeypatch.setattr(inference_row, "QUICK_HOURS", (13.0, 14.0))

    def mean(row: dict[str, Any]) -> float:
        found: Result = inference_row.run(asked(of_inference(tmp_path, row)))
        assert not found.targets
        return float(found.figures["mean_ratio"])

    assert mean({"rated_servers": 2}) == pytest.approx(2.0 * mean({"rated_servers": 4}))
    for wrong, key in (({"gpus_per_server": 4}, "gpus_per_server"), ({"groups": []}, "groups")):
        with pytest.raises(InputError, match=key):
            mean(wrong)


def test_polca_weeks_runs_on_the_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polca_weeks, "QUICK_HOURS", (3.0, 3.0 + 210.0 / 3600.0))
    monkeypatch.setattr(_week_spans, "LEAD_SECONDS", 60.0)
    monkeypatch.setattr(_week_spans, "TAIL_SECONDS", 30.0)

    def mean(row: dict[str, Any]) -> float:
        few = ("--servers", "4", "--policies", "polca")
        return float(
            polca_weeks.run(asked(of_inference(tmp_path, row), *few)).figures["polca_mean_ratio"]
        )

    assert mean({"rated_servers": 4}) > 1.5 * mean({"rated_servers": 8})
    with pytest.raises(InputError, match=r"row\.groups"):
        polca_weeks.run(asked(of_inference(tmp_path, {}), "--servers", "5"))


@pytest.mark.parametrize("benchmark", [headroom, no_trip, feed_loss])
@pytest.mark.parametrize(
    ("row", "key", "expected"),
    [
        ({"groups": [{"gpu_model": "H300", "count": 4}]}, "row.groups[].gpu_model", "one of A100"),
        ({"groups": [{"gpu_model": "H100-SXM", "count": 60}]}, "row.rated_servers", "I1: domain"),
    ],
)
def test_a_row_that_cannot_run_is_refused_by_key_and_file(
    tmp_path: Path, benchmark: Any, row: dict[str, Any], key: str, expected: str
) -> None:
    plain = {"gpus_per_server": 8, "rated_server_watts": 10_200, "rated_servers": 10}
    file = written(tmp_path, row | plain | {"rack_rated_servers": 40, "redundancy": "2N"})
    with pytest.raises(InputError) as refused:
        benchmark.run(asked(file))
    assert (refused.value.field, refused.value.source) == (key, str(file))
    assert expected in refused.value.expected


def test_a_row_without_a_feed_to_lose_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"row\.redundancy.*2N or KofN"):
        feed_loss.run(asked(written(tmp_path)))
