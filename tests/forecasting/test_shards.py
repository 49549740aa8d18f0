"""Several forecasters share the objects: each has one owner, who hears nothing of the others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting.app.backtest_runs import Runs, run_backtest
from forecasting.app.forecast_command import main
from forecasting.app.forecast_loop import Beginning, ForecasterProcess
from forecasting.app.forecast_shards import Division, SeriesAnswer, ShardJob, answers_of
from forecasting.app.forecaster_command import main as forecaster
from forecasting.app.history_choice import FileHistorySettings, open_file_history
from forecasting.backtest.plan import Asked, plan_of
from forecasting.memory_source import MemorySource
from forecasting.round.round_state import ForecasterState
from forecasting.series_source import BIN_SECONDS, SeriesId
from forecasting.shards import MOST_SHARDS, Shard, shard_number, split
from forecasting.sqlite import HistoryStore
from forecasting.targets import Target
from simulation.kube import EmbeddedKube
from wattpack.api import DemandForecast
from wattpack.clock import ManualClock
from wattpack.errors import InputError
from wattpack.sweep.sweep import OneByOne
from wattpack.units import NS_PER_SECOND

DAY = 144
NOW = 12 * 86400
NAMES = tuple(f"requests/client-{i}" for i in range(7))
RESOURCE = DemandForecast.meta.resource


def _values() -> dict[str, np.ndarray]:
    t = np.arange(12 * DAY)
    draw = np.random.default_rng(5)
    wave = 1 + 0.4 * np.sin(2 * np.pi * t / DAY)
    return {name: 50 * (i + 1) * wave + draw.normal(0, 4, len(t)) for i, name in enumerate(NAMES)}


# -- who owns what ---------------------------------------------------------------------------------


@given(st.text(max_size=40), st.integers(1, MOST_SHARDS - 1))
def test_a_new_shard_takes_names_and_moves_no_other(name: str, shards: int) -> None:
    before, after = shard_number(name, shards), shard_number(name, shards + 1)
    assert 1 <= before <= shards
    assert after in {before, shards + 1}


def test_shards_own_equal_shares() -> None:
    owners = Counter(shard_number(f"ns/client-{i}", 7) for i in range(14_000))
    assert set(owners) == set(range(1, 8))
    # Five standard deviations of a binomial count.
    assert max(abs(count - 2000) for count in owners.values()) < 5 * (2000 * 6 / 7) ** 0.5


def _body(namespace: object = "ns", **target: object) -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "name": "x"}, "spec": {"target": target}}


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(st.sampled_from(["metadata", "spec", "target", "series"]), inner)
        ),
        max_leaves=8,
    )
)
def test_every_object_has_one_owner_whatever_it_is(body: Any) -> None:
    body = body if isinstance(body, Mapping) else {"spec": body}
    assert sum(Shard(number, 5).owns(body) for number in range(1, 6)) == 1


def _owner(body: dict[str, Any], of: int = 50) -> int:
    return next(n for n in range(1, of + 1) if Shard(n, of).owns(body))


def test_what_shares_a_history_or_a_sum_has_one_owner() -> None:
    assert len({_owner(_body(series="a", workload=name)) for name in "bcdef"}) == 1
    racks = [_body(series=f"draw/{i}", powerDomain=f"rack-{i}") for i in range(40)]
    assert len({_owner(rack) for rack in racks}) == 1
    assert len({_owner(_body(series=f"draw/{i}")) for i in range(40)}) > 10
    assert len({_owner(_body(f"ns-{i}", series="a")) for i in range(40)}) > 10


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "1/1001", "1/2/3", "a/b", "-1/2", "1/ 2"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="shard"):
        Shard.parse(text)
    assert Shard.parse("2/3") == Shard(2, 3)


def test_a_process_of_no_shard_ends_before_it_asks_anybody(
    settings: FileHistorySettings, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--history-file", str(settings.history_file), "--shard", "3/2"]
    assert forecaster(asked) == 2
    assert "shard" in capsys.readouterr().err


# -- the process -----------------------------------------------------------------------------------


def _cluster(names: tuple[str, ...]) -> tuple[ManualClock, EmbeddedKube]:
    clock = ManualClock(wall_offset_ns=11 * 86400 * NS_PER_SECOND)
    kube = EmbeddedKube(clock)
    for name in names:
        body = {
            "apiVersion": RESOURCE.api_version, "kind": RESOURCE.kind,
            "metadata": {"name": name.replace("/", "-"), "namespace": "ns"},
            "spec": {"target": {"workload": "chat", "series": name}},
        }  # fmt: skip
        kube.create(RESOURCE, body, "ns")
    return clock, kube


def _statuses(kube: EmbeddedKube) -> dict[str, Any]:
    return {one["spec"]["target"]["series"]: one.get("status") for one in kube.list(RESOURCE).items}


def _rounds(clock: ManualClock, kube: EmbeddedKube, shard: Shard) -> ForecasterProcess:
    begin = Beginning(ForecasterState(), shard=shard)
    process = ForecasterProcess(clock, kube, MemorySource(_values()), begin=begin)
    assert process.tick()
    return process


def test_shards_answer_all_objects_each_as_if_it_were_alone() -> None:
    clock, shared = _cluster(NAMES)
    owned: dict[int, tuple[str, ...]] = {}
    for number in (1, 2, 3):
        shard, before = Shard(number, 3), _statuses(shared)
        process = _rounds(clock, shared, shard)
        owned[number] = tuple(
            name for name, status in _statuses(shared).items() if status != before[name]
        )
        said = process.metrics.registry.get_sample_value(
            "wattpack_forecast_last_success_timestamp_seconds", {"shard": f"{number}/3"}
        )
        assert said == 11 * 86400
    assert sorted(name for names in owned.values() for name in names) == sorted(NAMES)
    assert sum(bool(names) for names in owned.values()) >= 2, "one shard has them all"
    for names in owned.values():
        _, alone = _cluster(names)
        _rounds(clock, alone, Shard())
        shown = _statuses(shared)
        assert _statuses(alone) == {name: shown[name] for name in names}


# -- wattpack forecast -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> FileHistorySettings:
    file = tmp_path_factory.mktemp("history") / "history.db"
    with HistoryStore(file) as store:
        for name, values in _values().items():
            store.append_bins(name, 0, values, values)
    return FileHistorySettings.load(flags={"history_file": file})


def _job(settings: FileHistorySettings, names: tuple[str, ...]) -> ShardJob:
    targets = tuple(
        Target("", n, SeriesId(n), "series", 36, BIN_SECONDS, (0.5, 0.99), None, 0) for n in names
    )
    return ShardJob(settings, "ridge", targets, NOW)


def _answers(
    settings: FileHistorySettings, division: Division, names: tuple[str, ...] = NAMES
) -> list[SeriesAnswer]:
    source = open_file_history(settings)
    try:
        return answers_of(_job(settings, names), division, source)
    finally:
        source.close()


@pytest.fixture(scope="module")
def one_by_one(settings: FileHistorySettings) -> list[SeriesAnswer]:
    """Three forecasters that know nothing of each other."""
    found: dict[str, SeriesAnswer] = {}
    for hand in split([SeriesId(name) for name in NAMES], 3):
        alone = _answers(settings, Division(), tuple(hand))
        found |= {answer.series: answer for answer in alone}
    return [found[name] for name in NAMES]


def test_shards_of_one_machine_answer_as_one_process_each(
    settings: FileHistorySettings, one_by_one: list[SeriesAnswer]
) -> None:
    assert all(answer.has_figures for answer in one_by_one)
    assert _answers(settings, Division(3, OneByOne())) == one_by_one
    assert _answers(settings, Division.of(len(NAMES), 3, 2, None)) == one_by_one
    # Calibration is pooled within a shard, so one forecaster of all has other figures.
    assert _answers(settings, Division()) != one_by_one


def test_what_a_shard_cannot_read_costs_only_its_series(settings: FileHistorySettings) -> None:
    names = (*NAMES[:3], "requests/unknown")
    answers = {answer.series: answer for answer in _answers(settings, Division(4), names)}
    assert [answers[name].has_figures for name in names] == [True, True, True, False]


@pytest.mark.parametrize(
    ("asked", "field"),
    [((1, 0, 1), "shards"), ((1, None, 65), "processes"), ((1, 1001, 1), "shards")],
)
def test_numbers_that_cannot_be_are_refused(asked: tuple[int, int | None, int], field: str) -> None:
    with pytest.raises(InputError, match=field):
        Division.of(*asked, None)
    with pytest.raises(InputError, match="processes"):
        Division.of(5, None, 2, "tcp://127.0.0.1:1")


@pytest.fixture
def scheduler() -> Iterator[str]:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1",
        dashboard_address=":0", silence_logs="CRITICAL",
    ) as made:  # fmt: skip
        yield made.scheduler_address


@pytest.mark.timeout(120)
# Of Dask's own closing of loops and sockets, at whatever moment it is collected.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_workers_of_a_cluster_answer_as_one_process_each(
    settings: FileHistorySettings, one_by_one: list[SeriesAnswer], scheduler: str
) -> None:
    assert _answers(settings, Division.of(len(NAMES), 3, 1, scheduler)) == one_by_one
    plan = plan_of(NAMES[:3], NOW, Asked(days=0.5))
    there, here = (
        run_backtest(plan, Runs(settings, "ridge", division), lambda *_: None)
        for division in (Division.of(3, 2, 1, scheduler), Division(2))
    )
    assert there == here
    assert len(here) == 6


def test_the_command_deals_series_to_processes(
    settings: FileHistorySettings, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--all", "--json", "--history-file", str(settings.history_file), "--at", str(NOW)]
    assert main([*asked, "--shards", "3"]) == 0
    dealt = json.loads(capsys.readouterr().out)["forecasts"]
    assert [one["series"] for one in dealt] == sorted(NAMES)
    assert main([*asked, "--processes", "0"]) == 2
    assert "processes" in capsys.readouterr().err
    assert main([*asked, "--scheduler", "nonsense"]) == 2
    assert "--scheduler" in capsys.readouterr().err
