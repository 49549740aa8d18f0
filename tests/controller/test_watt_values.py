"""Steps of marginal value: the watts that buy most go first, inside a class and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from controller.allocation import GangKinds, Limit, Wants, allocate
from controller.topology import PodSpec, build_topology
from controller.watt_values import concave
from tests.controller.builders import make_topology
from tests.controller.test_topology import make_domain, make_node, profiles, rack
from tests.controller.test_two_actuators import work
from tests.examples import examples
from wattpack.power.domain_tree import FloatArray
from wattpack.power.feasibility import LoadTree


def wants_of(n: int, steps: FloatArray, priority: FloatArray | None = None) -> Wants:
    flat = np.full(n, 700.0)
    return Wants(
        minimum_watts=np.full(n, 200.0),
        guaranteed_watts=np.full(n, 200.0),
        floor_watts=np.full(n, 300.0),
        request_watts=flat,
        slack_watts=flat,
        priority=np.zeros(n, np.int64) if priority is None else priority.astype(np.int64),
        gang=np.full(n, -1),
        gang_kinds=GangKinds.of(np.full(n, -1)),
        value_per_watt=np.ones(n),
        fixed=np.zeros(n, dtype=np.bool_),
        value_steps_watts=steps,
    )


def one_domain(n: int) -> LoadTree:
    topology = make_topology(parents=(-1,), nodes=(0,), gpus_per_node=n)
    return LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)


def filled(wants: Wants, watts: float) -> FloatArray:
    load = one_domain(len(wants.priority))
    counts = np.full(len(wants.priority), np.inf)
    return allocate(load, wants, Limit(watts * load.gpu_factor, counts)).cap_watts


@given(st.integers(0, 2**32 - 1))
@examples(50)
def test_steps_reach_the_linear_programs_optimum_of_chains_cut_at_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, levels = int(rng.integers(2, 7)), np.array([4.0, 3.0, 2.0, 1.0])
    ends = np.sort(rng.uniform(300.0, 700.0, (4, n)), axis=0)
    ends[-1] = 700.0
    watts = float(rng.uniform(300.0, 700.0) * n)
    spans = np.diff(ends, axis=0, prepend=300.0)
    best = linprog(
        -np.repeat(levels, n), A_ub=np.ones((1, 4 * n)), b_ub=[watts - 300.0 * n],
        bounds=[(0.0, span) for span in spans.ravel()],
    )  # fmt: skip
    caps = filled(wants_of(n, ends), watts)
    bought = levels @ np.clip(caps - ends + spans, 0.0, spans)
    assert bought.sum() == pytest.approx(-best.fun, rel=1e-6)
    assert caps.sum() <= watts + 1e-6


def test_i5_a_dearer_watt_of_a_lower_class_still_waits() -> None:
    steps = np.array([[700.0, 300.0], [700.0, 700.0]])
    caps = filled(wants_of(2, steps, np.array([0.0, 10.0])), 1100.0)
    assert caps.tolist() == [400.0, 700.0]


def test_inside_a_class_the_watt_that_buys_most_goes_first() -> None:
    steps = np.array([[700.0, 300.0], [700.0, 700.0]])
    assert filled(wants_of(2, steps), 1100.0).tolist() == [700.0, 400.0]


def test_the_hull_of_a_curve_keeps_its_ends_and_falls() -> None:
    draws = np.array([200.0, 300.0, 400.0, 500.0, 500.0])
    caps, slopes = concave(
        np.array([200.0, 300.0, 400.0, 500.0, 600.0]), draws, np.array([0.2, 0.6, 0.7, 1.0, 1.0])
    )
    assert caps.tolist() == [200.0, 300.0, 500.0]
    assert slopes.tolist() == [np.inf, pytest.approx(0.004), pytest.approx(0.002)]


def test_work_that_waits_for_launches_gives_up_its_watts_first() -> None:
    entries = ("finetune", "decoder-decode", "vision-preprocess")
    pods = [
        PodSpec("default", entry, (f"n0-{i}",), work=work(entry)) for i, entry in enumerate(entries)
    ]
    row = make_domain("row")
    topology = build_topology([row, rack("a")], [], [make_node("n0")], pods, profiles())
    training, decode, launches, *unknown = (topology.value_steps_watts <= 410.0).sum(axis=0)
    assert training < decode < launches == len(topology.value_steps_watts)
    # Nobody knows: the class that loses most.
    assert max(unknown) < decode
    steps = topology.value_steps_watts
    assert np.all(np.diff(steps, axis=0) >= 0.0)


def test_rows_of_one_kind_of_work_are_filled_at_one_level() -> None:
    row = make_domain("row")
    topology = build_topology([row, rack("a")], [], [make_node("n0")], [], profiles())
    assert topology.value_steps_watts.shape == (0, topology.n_gpus)
