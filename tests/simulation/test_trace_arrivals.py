"""Recorded requests to the inference row: each once, as it was, to a server of its class."""

from __future__ import annotations

import numpy as np
import pytest

from simulation.inference_row.request_classes import POLCA_CLASSES
from simulation.inference_row.trace_arrivals import TraceArrivals
from simulation.traces import shipped_trace
from wattpack.errors import InputError

ROW = TraceArrivals(10)


def test_every_recorded_request_comes_once_and_as_it_was() -> None:
    asked = ROW.between(0.0, ROW.length_seconds)
    for name, classes in {"code": (0,), "conversation": (1, 2, 3)}.items():
        trace = shipped_trace(name)  # type: ignore[arg-type]
        inside = trace.arrival_seconds < ROW.length_seconds
        mine = np.isin(asked.of_class, classes)
        assert mine.sum() == inside.sum()
        assert sorted(asked.arrival_seconds[mine]) == sorted(trace.arrival_seconds[inside])
        assert asked.prompt_tokens[mine].sum() == trace.prompt_tokens[inside].sum()
        long = asked.output_tokens[mine] > 2.0
        assert asked.output_tokens[mine][long].sum() == pytest.approx(
            trace.output_tokens[inside][trace.output_tokens[inside] > 2.0].sum()
        )
    assert (np.diff(asked.arrival_seconds) >= 0.0).all()


def test_a_class_deals_its_requests_to_its_own_servers_in_turn() -> None:
    asked = ROW.between(0.0, 600.0)
    for k in range(len(POLCA_CLASSES)):
        servers = asked.server[asked.of_class == k]
        mine = np.flatnonzero(ROW.class_of_server == k)
        assert set(servers) == set(mine)
        counts = np.bincount(servers)[mine]
        assert counts.max() - counts.min() <= 1


def test_two_windows_hold_what_one_over_both_does() -> None:
    both = ROW.between(100.0, 700.0)
    parts = [ROW.between(100.0, 400.0), ROW.between(400.0, 700.0)]
    for name in ("arrival_seconds", "of_class", "server", "prompt_tokens", "output_tokens"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        assert joined.tolist() == getattr(both, name).tolist()


@pytest.mark.parametrize("span", [(-1.0, 60.0), (60.0, 60.0), (3000.0, 4000.0)])
def test_times_that_nobody_recorded_are_refused(span: tuple[float, float]) -> None:
    with pytest.raises(InputError, match="begin_seconds, end_seconds"):
        ROW.between(*span)
