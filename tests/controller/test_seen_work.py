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
from controller.seen_work import SeenWork, Units, work_of_units
from controller.tick_values import Topology
from controller.topology import build_topology
from controller.work_curves import FREE_LOSS, WORTH_SHARE
from tests.controller.priced_units import shown
from tests.controller.test_topology import make_node, make_policy, profiles, rack

SHARES = np.linspace(LOWEST_CLOCK_SHARE, 1.0, 61)
GPM = Path(__file__).parents[2] / "benchmarks/data/h200_served/gpm.json"


def recorded(part: str) -> Units:
    """As a real H200 told it (docs/measurements/h200.md)."""
    told = json.loads(GPM.read_text("utf-8"))[part]
    names = ("graphics_util", "sm_util", "any_tensor_util", "dram_bw_util")
    return Units(*(told[name] / 100.0 for name in names), utilisation=1.0)


def lowest_free(work: SeenWork) -> float:
    speeds = work.speed("H200-SXM", SHARES)
    return float(SHARES[np.flatnonzero(speeds >= 1.0 - FREE_LOSS)[0]])


def works(units: Units) -> SeenWork:
    work = work_of_units(units)
    assert work is not None
    return work


@pytest.mark.parametrize(
    ("part", "kind", "locked"), [("products", "compute", False), ("one_row", "memory", True)]
)
def test_a_real_h200s_units_tell_operations_from_memory(part: str, kind: str, locked: bool) -> None:
    work = works(recorded(part))
    assert work.kind == kind
    assert (lowest_free(work) <= WORTH_SHARE) is locked


def test_an_idle_board_tells_of_no_work() -> None:
    assert work_of_units(recorded("idle")) is None
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
        ("vision-preprocess", "launches", True),
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
    work = works(Units(**mean, utilisation=1.0))
    for share in (0.95, 0.8, 0.6, 0.4):
        truth = 1.0 / (part / first.speed(share) + (1 - part) / second.speed(share))
        assert float(work.speed("H200-SXM", np.array(share))) <= truth + 0.02


def test_launches_are_told_from_a_chain_of_steps_by_the_gaps_between_kernels() -> None:
    chain = Units(engine=0.99, sm=0.1, tensor=0.0, dram=0.02, utilisation=1.0)
    assert works(chain).kind == "compute"
    assert works(replace(chain, engine=0.4)).kind == "launches"
    # A board that waits for requests leaves gaps too, but NVML's utilisation shows them.
    assert works(replace(chain, engine=0.4, utilisation=0.45)).kind == "waits"
    assert works(replace(chain, engine=0.4, utilisation=math.nan)).kind == "waits"


BOTH = ("PowerLimit", "ClockLock")
STREAM, PRODUCTS = recorded("one_row"), recorded("products")
LAUNCHES = Units(engine=0.3, sm=0.05, tensor=0.0, dram=0.02, utilisation=1.0, draw_share=0.22)


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
        (replace(STREAM, tensor=0.3, dram=0.6), "decoder-decode", False),  # prefills between
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
