"""Sweeps on a Dask cluster of two processes: the rows are this machine's, whatever workers do."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks import priority, row_frontier
from benchmarks.__main__ import main
from benchmarks.runner import Options, finished_rows, sources_digest
from wattpack.errors import InputError, PermanentError
from wattpack.sweep.dask_sweep import DaskSweep
from wattpack.sweep.sweep import OneByOne, Processes, sweep_of

distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.timeout(120),
    # Of Dask's own closing of loops and sockets, at whatever moment it is collected.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two processes of one thread on the loopback; a case may kill one worker and no more."""
    from dask import config

    quiet = {
        "distributed.scheduler.allowed-failures": 1,
        "distributed.logging.distributed": "critical",
    }
    with (
        config.set(quiet),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address=":0",
            silence_logs="CRITICAL",
        ) as made,
    ):
        yield made


@pytest.fixture
def sweep(cluster: Any) -> DaskSweep:
    return DaskSweep(cluster.scheduler_address, sources_digest)


def square(job: int) -> dict[str, float]:
    return {"square": job**2 / 3.0, "process": os.getpid()}


def test_rows_are_those_of_this_machine(sweep: DaskSweep) -> None:
    jobs = list(range(20, 0, -1))
    here = {n: row["square"] for n, row in OneByOne().rows(square, jobs)}
    there = dict(sweep.rows(square, jobs))
    assert {n: row["square"] for n, row in there.items()} == here
    assert os.getpid() not in {row["process"] for row in there.values()}
    processes = {n: row["square"] for n, row in Processes(1).rows(square, jobs[:3])}
    assert processes == {n: here[n] for n in range(3)}


def test_shards_of_a_benchmark_are_the_same_digit_by_digit(cluster: Any, tmp_path: Path) -> None:
    def shard(seed: int, number: int) -> dict[str, Any]:
        return priority.one_shard(seed, number, houses=2, runs=1)

    told: list[str] = []
    options = Options(seed=5, resume=tmp_path, progress=told.append)
    there = finished_rows(
        Options(seed=5, resume=tmp_path, scheduler=cluster.scheduler_address, progress=told.append),
        "shards", shard, 4,
    )  # fmt: skip
    assert there == [shard(5, number) for number in range(4)]
    (file,) = tmp_path.iterdir()
    assert sorted(json.loads(line)[0] for line in file.read_text().splitlines()) == [0, 1, 2, 3]
    assert told[-1] == "4 of 4 cases"
    # What is kept is whoever's to go on with.
    again = finished_rows(options, "shards", partial(pytest.fail, "run again"), 4)
    assert again == there


def dies_once(folder: Path, job: int) -> int:
    marker = folder / "died"
    if job == 1 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 10 * job


def test_a_case_whose_worker_dies_is_run_again(sweep: DaskSweep, tmp_path: Path) -> None:
    rows = dict(sweep.rows(partial(dies_once, tmp_path), [0, 1, 2, 3]))
    assert rows == {0: 0, 1: 10, 2: 20, 3: 30}
    assert (tmp_path / "died").exists()


def kills(job: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return job


def test_a_case_that_kills_every_worker_is_told(sweep: DaskSweep) -> None:
    with pytest.raises(PermanentError, match="killed every worker"):
        list(sweep.rows(kills, [0]))


def refuses(job: int) -> int:
    raise InputError("row.racks", "another", job)


def breaks(job: int) -> int:
    raise FileNotFoundError(f"row-{job}.yaml")


@pytest.mark.parametrize(("work", "text"), [(refuses, r"row\.racks"), (breaks, "row-3.yaml")])
def test_what_a_case_says_is_told(sweep: DaskSweep, work: Any, text: str) -> None:
    with pytest.raises(PermanentError, match=text):
        list(sweep.rows(work, [3]))


def code_of(here: int) -> str:
    return "another" if os.getpid() == here else "theirs"


def test_workers_of_other_code_are_refused(cluster: Any) -> None:
    sweep = DaskSweep(cluster.scheduler_address, partial(code_of, os.getpid()))
    with pytest.raises(InputError, match=r"--scheduler.*workers of this code \(another\)"):
        list(sweep.rows(square, [1]))


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "nonsense://x", "tcp://127.0.0.1:none"])
def test_a_scheduler_that_does_not_answer_is_named(address: str) -> None:
    with pytest.raises(InputError, match=f"--scheduler.*{address}"):
        list(DaskSweep(address, sources_digest, answer_seconds=0.5).rows(square, [1]))


def test_a_scheduler_without_workers_is_named() -> None:
    with (
        distributed.LocalCluster(
            n_workers=0, host="127.0.0.1", dashboard_address=":0", silence_logs="CRITICAL"
        ) as empty,
        pytest.raises(InputError, match=r"--scheduler.*worker"),
    ):
        list(
            DaskSweep(empty.scheduler_address, sources_digest, worker_seconds=0.2).rows(square, [1])
        )


def test_without_dask_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"--scheduler.*wattpack\[sweep\]"):
        list(sweep_of("tcp://127.0.0.1:1", sources_digest).rows(square, [1]))


def test_a_benchmark_that_is_no_sweep_takes_no_scheduler(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["allocation_scale", "--scheduler", "tcp://127.0.0.1:1"])
    assert "allocation_scale is no sweep" in capsys.readouterr().err


def test_the_frontier_asks_the_scheduler_for_its_cells() -> None:
    options = Options(quick=True, scheduler="nonsense://x", arguments=("--arms", "static"))
    with pytest.raises(InputError, match="--scheduler"):
        row_frontier.run(options)
