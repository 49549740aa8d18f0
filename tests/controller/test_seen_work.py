"""What units tell of a board's work, judged by the capacity model's kernels and not by thresholds.

The judge prices each kernel at a clock of its own; the rule sees four shares of the time.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.pod_works import KnownWork
from controller.lock_law import LOWEST_CLOCK_SHARE
from controller.membership import NodeSpec, PodSpec
from controller.seen_work import UNITS, SeenWork, Units, work_of_units
from controller.tick_values import Topology
from controller.topology import build_topology
from controller.work_curves import FREE_LOSS, WORTH_SHARE
from tests.controller.priced_units import shown
from tests.controller.test_topology import make_node, make_policy, profiles, rack

SHARES = np.linspace(LOWEST_CLOCK_SHARE, 1.0, 61)
RECORDED = Path(__file__).parents[2] / "benchmarks/data/h200_served/units.json"


def recorded(work: str) -> Units:
    """As a real H200 told it (docs/measurements/h200.md)."""
    told = json.loads(RECORDED.read_text("utf-8"))["works"][work]
    return Units(*(told[f"{unit}_activity"] for unit in UNITS))


def lowest_free(work: SeenWork) -> float:
    speeds = work.speed("H200-SXM", SHARES)
    return float(SHARES[np.flatnonzero(speeds >= 1.0 - FREE_LOSS)[0]])


def works(units: Units) -> SeenWork:
    work = work_of_units(units)
    assert work is not None
    return work


@pytest.mark.parametrize(
    ("name", "kind", "locked"),
    [
        ("products", "compute", False),
        ("prefill", "compute", False),
        ("one_row", "memory", True),
        ("copy", "memory", True),
        ("decode_1", "memory", False),
        ("decode_16", "memory", False),
        ("decode_1_eager", "memory", False),
        ("decode_64", "mixed", False),
        ("decode_256", "mixed", False),
        ("mixed_0.1", "mixed", False),
        ("mixed_0.5", "mixed", False),
        ("launches", "launches", True),
        ("chain_graph", "compute", False),
        ("lstm", "compute", False),
    ],
)
def test_a_real_h200s_units_tell_kinds_of_work(name: str, kind: str, locked: bool) -> None:
    work = works(recorded(name))
    assert work.kind == kind
    assert (lowest_free(work) <= WORTH_SHARE) is locked


def test_an_idle_board_tells_of_no_work() -> None:
    assert work_of_units(Units(0.0, 0.0, 0.0, 0.004)) is None
    assert work_of_units(replace(recorded("one_row"), dram=math.nan)) is None


@pytest.mark.parametrize("entry", sorted(shipped_catalogue()))
def test_no_work_of_the_catalogue_loses_more_by_a_lock_than_its_units_promise(entry: str) -> None:
    told = shown(entry)
    work = work_of_units(told.units)
    if work is None:
        return
    free = lowest_free(work)
    if free <= WORTH_SHARE:
        assert told.speed(free) >= 1.0 - FREE_LOSS - 0.005


def test_the_judge_tells_right_from_wrong() -> None:
    """The same check fails for a rule that takes SM activity for intensity, say."""
    assert shown("decoder-prefill").speed(0.5) < 0.6
    assert shown("rnn-sequential").speed(0.5) < 0.6
    assert shown("memory-stream").speed(0.5) > 0.99


@pytest.mark.parametrize(
    ("entry", "kind", "locked"),
    [
        ("memory-stream", "memory", True),
        ("attention-butterfly", "memory", True),
        ("serve-pooled-kv", "memory", True),
        ("decoder-prefill", "compute", False),
        ("finetune", "compute", False),
        ("decoder-decode-large-batch", "compute", False),
        ("rnn-sequential", "compute", False),  # full utilisation, idle units: a chain of steps
        ("sim-jax", "compute", False),
        ("decoder-decode", "memory", False),  # not at the memory's full rate: not sure enough
        ("train-offload-host", "waits", False),
    ],
)
def test_kinds_of_work_by_the_units_that_they_use(entry: str, kind: str, locked: bool) -> None:
    work = works(shown(entry).units)
    assert work.kind == kind
    assert (lowest_free(work) <= WORTH_SHARE) is locked


@pytest.mark.parametrize("part", np.linspace(0.1, 0.9, 9).round(1).tolist())
def test_of_two_phases_on_one_board_the_mixture_never_promises_more_than_it_keeps(
    part: float,
) -> None:
    first, second = shown("decoder-prefill"), shown("memory-stream")
    names = ("engine", "sm", "tensor", "dram")
    mean = {
        n: part * getattr(first.units, n) + (1 - part) * getattr(second.units, n) for n in names
    }
    work = works(Units(**mean))
    for share in (0.95, 0.8, 0.6, 0.4):
        truth = 1.0 / (part / first.speed(share) + (1 - part) / second.speed(share))
        assert float(work.speed("H200-SXM", np.array(share))) <= truth + 0.02


def test_launches_are_told_from_a_chain_of_steps_by_the_gaps_between_kernels() -> None:
    chain = Units(engine=0.99, sm=0.03, tensor=0.0, dram=0.02)
    assert works(chain).kind == "compute"
    assert works(replace(chain, engine=0.4)).kind == "launches"
    # A board that waits for requests leaves gaps too, but its kernels fill it.
    assert works(replace(chain, engine=0.4, sm=0.3)).kind == "waits"


BOTH = ("PowerLimit", "ClockLock")
STREAM, PRODUCTS = recorded("one_row"), recorded("products")
LAUNCHES = replace(recorded("launches"), draw_share=0.18)


def on_the_first_board(
    units: Units | None, label: str = "", allowed: tuple[str, ...] = BOTH
) -> Topology:
    known = KnownWork(label, shipped_catalogue()[label]) if label else None
    pods = [PodSpec("default", "pod", ("n0-0",), {}, work=known)]
    node = make_node("n0")
    seen = None if units is None else work_of_units(units)
    gpus = tuple(replace(g, seen=seen) if g.uuid == "n0-0" else g for g in node.gpus)
    nodes: list[NodeSpec] = [replace(node, gpus=gpus), make_node("n1")]
    policies = [make_policy("all", 0, allowedActuators=list(allowed))]
    return build_topology([rack("a", None)], policies, nodes, pods, profiles())


@pytest.mark.parametrize(
    ("units", "label", "locked"),
    [
        (STREAM, "", True),
        (LAUNCHES, "", True),
        (PRODUCTS, "", False),
        (None, "", False),
        # What is measured counts, not the role.
        (PRODUCTS, "decoder-decode", False),
        (STREAM, "decoder-prefill", True),
        (STREAM, "decoder-decode", True),
        (None, "decoder-decode", True),
        (recorded("mixed_0.1"), "decoder-decode", False),  # a tenth of the time is prefill
        (recorded("decode_16"), "decoder-decode", True),
        (recorded("decode_16"), "", False),
    ],
)
def test_the_actuator_follows_what_is_measured(
    units: Units | None, label: str, locked: bool
) -> None:
    assert bool(on_the_first_board(units, label).clock_lock[0]) is locked


def test_named_work_keeps_its_own_law_where_its_units_agree() -> None:
    law = on_the_first_board(shown("decoder-decode").units, "decoder-decode").lock_law
    named = on_the_first_board(None, "decoder-decode").lock_law
    assert law is not None
    assert named is not None
    assert law.free_share[0] == named.free_share[0] < 0.5


def test_a_policy_that_allows_limits_only_is_obeyed() -> None:
    assert not on_the_first_board(STREAM, allowed=("PowerLimit",)).clock_lock.any()


def test_launch_bound_work_gives_up_its_watts_first() -> None:
    """At every level of value it is left fewer watts than operations on the same type."""
    node = make_node("n0")
    seen = (work_of_units(LAUNCHES), work_of_units(PRODUCTS))
    gpus = tuple(replace(g, seen=s) for g, s in zip(node.gpus, (*seen, *seen), strict=False))
    assert len(gpus) >= 2
    pods = [PodSpec("default", f"pod-{g.uuid}", (g.uuid,), {}) for g in gpus]
    topology = build_topology(
        [rack("a", None)], [make_policy("all", 0)], [replace(node, gpus=gpus)], pods, profiles()
    )
    launches, products = topology.value_steps_watts[:, 0], topology.value_steps_watts[:, 1]
    assert (launches <= products).all()
    assert launches[-1] < products[-1] - 100.0
    assert topology.value_per_watt[0] < topology.value_per_watt[1]
