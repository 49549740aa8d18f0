"""What the controller buys with a budget of watts, against the optimum and plain divisions of it.

Rows of mixed GPU types with prefill, decode, training and batch work of one class, held to 60, 70
and 80 % of the sum of their default limits through ``controller.step``, with a domain meter. The
controller knows the GPU profiles; the boards follow other curves, off by the errors that the
profiles state (``benchmarks._watt_plant``). Work counts in boards at full speed over the last
minutes. The optimum is a linear program that knows the truth and spends the whole budget; uniform
caps and caps in proportion to uncapped draw are set once and never corrected. The row is rated for
half as much again as all of it: only the budget binds, and no curve of a breaker decides a figure.

Three arms: limits; both actuators, where how draw follows a clock is assumed; and limits with the
floors that a policy has without a word, the knees: their sum is 59 % of all limits, so that below
some 65 % nothing is left to order. The other two have floors at the lowest limits.

Decode under the lock that the controller chooses for it, by batch of the step tables: there, what a
kernel does not wait for at the memory's full rate waits for the clock, which bounds the loss from
above. By the roofline, on which the controller relies, it is the figure that ends in so. No lock
of a data-centre GPU was measured, and draw under one follows the assumed law in both.

Of a scenario file: servers by GPU type, and its mix: GPUs of services count half as prefill and
half as decode, of training jobs as training, the rest of the row as batch, on all types alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from benchmarks._given_scenario import USAGE as GIVEN_USAGE
from benchmarks._given_scenario import given_scenario
from benchmarks._watt_fleet import READS, Fleet, even_fleet, given_fleet
from benchmarks._watt_optimum import (
    optimum,
    proportional_caps,
    uniform_caps,
    uniform_work_of,
    work_at,
)
from benchmarks._watt_plant import Board, Floats, draw_fleet
from benchmarks.runner import Options, Result, Target
from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.entry_clock import entry_clock
from capacity.catalogue.pod_works import KnownWork
from capacity.gpu_profile import GpuProfile
from capacity.model.clock_map import clock_map
from capacity.profile_library import shipped_library
from capacity.step_library import shipped_step_tables
from capacity.step_table import IterationWork, StepTable
from controller.membership import GpuSpec, NodeSpec, PodSpec
from controller.step import initial_state, step
from controller.tick_values import Commands, Observations, PowerSettings, Tick, Topology
from controller.topology import build_topology
from wattpack.api import PowerDomain, PowerPolicy, WorkloadProfile
from wattpack.api.inventory import WorkloadProfileSpec
from wattpack.units import NS_PER_SECOND

NAME = "value_per_watt"
SUMMARY = "work under 60 to 80 % of the watts: optimum, uniform and proportional caps; decode locks"
TAKES_ARGUMENTS = True
USAGE: Final = GIVEN_USAGE

TYPES: Final = ("H200-SXM", "H100-SXM", "B200-SXM", "A100-SXM", "L40S", "A40")
DECODE_ENTRY: Final = "decoder-decode"
BUDGETS: Final = (0.6, 0.7, 0.8)
SECONDS: Final = 300
JUDGED_SECONDS: Final = 120
QUICK_SECONDS: Final = 200
JITTER: Final = 0.01
CHANGE_WATTS: Final = 5.0
SECONDS_PER_HOUR: Final = 3600.0
SERVER_WATTS: Final = 1.0
"""Servers draw nothing here: the budget is one of GPU watts."""

LABELS: Final = {"row": "a"}

BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 128)
CONTEXT: Final = 2048
SMALL_BATCH: Final = 16

CURVE_TYPE: Final = "H200-SXM"
"""Whose figures by batch are told; of the other types the worst small batch counts."""

ARMS: Final = {
    "limits": (("PowerLimit",), 0.1),
    "both": (("PowerLimit", "ClockLock"), 0.1),
    "default_floors": (("PowerLimit",), None),
}
"""Allowed actuators and floor over the default limit; below a board's lowest limit, that counts."""

TARGETS: Final = {
    **{f"{arm}_of_optimum_at_{round(100 * share)}_min": Target(at_least=0.95)
       for arm in ("limits", "both") for share in BUDGETS},
    **{f"{arm}_over_uniform_at_{share}": Target(at_least=line)
       for arm in ("limits", "both") for share, line in ((60, 1.10), (70, 1.04))},
    "decode_small_batch_energy_saved_min": Target(at_least=0.25),
    "decode_small_batch_speed_lost_max": Target(at_most=0.01),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """Objects of one row and its boards, GPU by GPU in the same order."""

    topology: Topology
    boards: list[Board]

    @property
    def sum_of_limits(self) -> float:
        """Of the default limits."""
        return float(self.topology.default_limit_watts.sum())


def run(options: Options) -> Result:
    """About a minute; the short form has one fleet and one budget."""
    seeds = 1 if options.quick else 3
    seconds = QUICK_SECONDS if options.quick else SECONDS
    shares = BUDGETS[:1] if options.quick else BUDGETS
    given = given_scenario(NAME, options, READS)
    fleet = even_fleet(TYPES) if given is None else given_fleet(given)
    figures: dict[str, float | int | str] = {} if given is None else given.figures()
    for share in shares:
        rows = []
        for seed in range(options.seed, options.seed + seeds):
            options.progress(f"{share:.0%} of the limits, seed {seed}")
            rows.append(_compared(fleet, seed, share, seconds))
        name = f"at_{round(100 * share)}"
        for figure in rows[0]:
            values = [row[figure] for row in rows]
            figures[f"{figure}_{name}"] = float(np.mean(values))
            if figure.endswith("_of_optimum"):
                figures[f"{figure}_{name}_min"] = float(min(values))
    figures |= _decode_by_batch(None if given is None else fleet.types)
    targets = {name: target for name, target in TARGETS.items() if name in figures}
    return Result(figures, targets)


def _compared(fleet: Fleet, seed: int, share: float, seconds: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    for arm in ARMS:
        locks = "ClockLock" in ARMS[arm][0]
        row = make_row(fleet, seed, arm)
        budget = share * row.sum_of_limits
        seen = _controlled(row, budget, seconds, seed)
        work, draw = seen.work, seen.draw_watts
        best = optimum(row.boards, budget, locks=locks)
        same_draw = optimum(row.boards, min(draw, budget), locks=locks)
        uniform, uniform_draw = work_at(row.boards, uniform_caps(row.boards, share))
        proportional, _ = work_at(row.boards, proportional_caps(row.boards, budget))
        figures |= {
            f"{arm}_of_optimum": work / best,
            f"{arm}_of_optimum_of_watts_drawn": work / same_draw,
            f"{arm}_over_uniform": work / uniform,
            f"{arm}_over_uniform_of_watts_drawn": work / uniform_work_of(row.boards, draw),
            f"{arm}_over_proportional": work / proportional,
            f"{arm}_optimum_over_uniform": best / uniform,
            f"{arm}_budget_drawn": draw / budget,
            f"{arm}_budget_drawn_peak": seen.peak_watts / budget,
            f"{arm}_cap_changes_per_gpu_hour": seen.changes,
            "uncapped_over_uniform": len(row.boards) / uniform,
            "uniform_budget_drawn": uniform_draw / budget,
        }
    return figures


def make_row(fleet: Fleet, seed: int, arm: str) -> Row:
    """The fleet's objects, and boards drawn with a seed."""
    known = shipped_library().profiles
    rng = np.random.default_rng(seed)
    boards, each = draw_fleet(known, fleet.jobs, rng), fleet.gpus_a_node
    nodes, pods = [], []
    for first in range(0, len(boards), each):
        members = range(first, first + each)
        node = f"node-{first // each}"
        gpus = [_gpu(f"{node}-gpu-{i}", known[boards[i].gpu]) for i in members]
        nodes.append(NodeSpec(node, tuple(gpus), LABELS, host_unit=True))
        pods += [
            PodSpec("default", f"pod-{i}", (gpu.uuid,), work=_work(boards[i].kind))
            for i, gpu in zip(members, gpus, strict=True)
        ]
    total = sum(known[board.gpu].default_limit_watts for board in boards)
    return Row(build_topology([_domain(total)], [_policy(arm)], nodes, pods, known), boards)


def _gpu(uuid: str, profile: GpuProfile) -> GpuSpec:
    limits = (profile.min_limit_watts, profile.default_limit_watts, profile.max_limit_watts)
    return GpuSpec(uuid, profile.model, *limits, max_clock_mhz=round(profile.max_clock_mhz))


def _work(kind: str) -> KnownWork:
    """As people declare it: the kernel class, for decode the catalogue's entry."""
    if kind == "decode":
        return KnownWork(DECODE_ENTRY, shipped_catalogue()[DECODE_ENTRY])
    spec = WorkloadProfileSpec(kind="Batch", kernel_mix={kind: 1.0})
    return KnownWork(kind, None, WorkloadProfile(metadata={"name": kind}, spec=spec))


def _domain(total_watts: float) -> PowerDomain:
    """Rated for everything at once: only the budget binds."""
    return PowerDomain.from_json({
        "apiVersion": "wattpack.io/v1alpha1",
        "kind": "PowerDomain",
        "metadata": {"name": "row"},
        "spec": {
            "ratingWatts": 1.5 * total_watts,
            "members": {"nodeSelector": {"row": "a"}},
            "supplyEfficiency": 1.0,
            "loadDeclaredComplete": True,
            "enforcement": "Enforce",
            "nonGpuPerNode": {"worstWatts": SERVER_WATTS, "idleWatts": SERVER_WATTS},
        },
    })  # fmt: skip


def _policy(arm: str) -> PowerPolicy:
    allowed, floor = ARMS[arm]
    spec: dict[str, object] = {"priority": 0, "allowedActuators": list(allowed)}
    if floor is not None:
        spec["floorFraction"] = floor
    return PowerPolicy.from_json({
        "apiVersion": "wattpack.io/v1alpha1",
        "kind": "PowerPolicy",
        "metadata": {"name": "all"},
        "spec": spec,
    })  # fmt: skip


@dataclass(frozen=True, slots=True)
class Judged:
    """What the judged time brought.

    Attributes:
        work: Boards at full speed.
        draw_watts: True mean.
        peak_watts: True highest second.
        changes: Of caps by at least ``CHANGE_WATTS``, by GPU and hour.
    """

    work: float
    draw_watts: float
    peak_watts: float
    changes: float


def _controlled(row: Row, budget: float, seconds: int, seed: int) -> Judged:
    """A row under the controller from its first tick on."""
    topology, boards, settings = row.topology, row.boards, PowerSettings()
    state = initial_state(topology, settings)
    rng = np.random.default_rng([seed, 1])
    caps, clocks = topology.guaranteed_watts.copy(), np.ones(len(boards))
    confirmed = np.zeros(len(boards), dtype=np.int64)
    gains = np.array([board.gain for board in boards])
    work, draws, changes = [], [], []
    for second in range(seconds):
        held = np.array([
            board.at(cap, clock) for board, cap, clock in zip(boards, caps, clocks, strict=True)
        ])  # fmt: skip
        true = held[:, 1] * (1 + JITTER * rng.uniform(-1, 1, len(boards)))
        now_ns = second * NS_PER_SECOND
        seen = _observations(topology, now_ns, true, gains, caps, budget)
        seen = replace(seen, gpu_confirmed_sequence=confirmed)
        state, commands, _ = step(Tick(topology, seen, settings, now_ns), state)
        before = caps
        caps, clocks = _held(topology, commands, caps, clocks)
        changes.append(int(np.sum(np.abs(caps - before) >= CHANGE_WATTS)))
        sent = commands.send[topology.node_of_gpu]
        confirmed = np.where(sent, commands.sequence, confirmed)
        work.append(float(held[:, 0].sum()))
        draws.append(float(true.sum()))
    judged = slice(seconds - JUDGED_SECONDS, None)
    return Judged(
        float(np.mean(work[judged])),
        float(np.mean(draws[judged])),
        max(draws[judged]),
        float(np.mean(changes[judged])) / len(boards) * SECONDS_PER_HOUR,
    )


def _held(
    topology: Topology, commands: Commands, caps: Floats, clocks: Floats
) -> tuple[Floats, Floats]:
    """What boards hold a second later."""
    sent = commands.send[topology.node_of_gpu]
    locked = commands.lock_max_mhz > 0
    share = np.where(locked, commands.lock_max_mhz / topology.max_clock_mhz, 1.0)
    return np.where(sent, commands.cap_watts, caps), np.where(sent, share, clocks)


def _observations(
    topology: Topology, now_ns: int, true: Floats, gains: Floats, caps: Floats, budget: float
) -> Observations:
    n, nodes, domains = topology.n_gpus, topology.n_nodes, topology.n_domains
    return Observations(
        node_received_ns=np.full(nodes, now_ns, dtype=np.int64),
        node_nonce=np.full(nodes, 7, dtype=np.uint64),
        node_rebooted=np.zeros(nodes, dtype=np.bool_),
        host_watts=np.full(nodes, np.nan),
        gpu_draw_watts=true / gains,
        gpu_energy_mean_watts=true / gains,
        gpu_limit_watts=caps.copy(),
        gpu_guaranteed_watts=topology.guaranteed_watts.copy(),
        gpu_confirmed_sequence=np.zeros(n, dtype=np.int64),
        gpu_leased=np.ones(n, dtype=np.bool_),
        gpu_controlled=np.ones(n, dtype=np.bool_),
        meter_watts=np.array([true.sum()]),
        meter_time_ns=np.full(domains, now_ns, dtype=np.int64),
        forecast_p99_watts=np.full(domains, np.nan),
        budget_watts=np.full(domains, budget),
        override_cap_watts=np.full(n, np.nan),
        epoch=1,
        node_epoch=np.zeros(nodes, dtype=np.int64),
        leading=True,
        may_raise=True,
    )


def _decode_by_batch(types: Sequence[str] | None) -> dict[str, float]:
    """The lock that costs nothing by the controller's word, on iterations of decode alone.

    Args:
        types: Of GPUs; None for all that have a step table.

    Returns:
        Nothing for types that have none or are not locked.
    """
    saved: dict[tuple[str, int], list[float]] = {}
    lost: dict[tuple[str, int], list[float]] = {}
    believed = []
    for table in shipped_step_tables().tables.values():
        share = _free_share(table.gpu) if types is None or table.gpu in types else 1.0
        if share >= 1.0:
            continue
        response = entry_clock(DECODE_ENTRY, table.gpu)
        if response is not None:
            believed.append(1 - float(response.speed(table.gpu, np.array(share))))
        for batch in BATCHES:
            energy, loss = _locked_decode(table, batch, share)
            saved.setdefault((table.gpu, batch), []).append(energy)
            lost.setdefault((table.gpu, batch), []).append(loss)
    if not saved:
        return {}
    told = CURVE_TYPE if (CURVE_TYPE, SMALL_BATCH) in saved else next(iter(saved))[0]
    figures = {"decode_small_batch_speed_lost_by_roofline_max": max(believed, default=float("nan"))}
    for batch in BATCHES:
        figures |= {
            f"decode_batch_{batch}_energy_saved": float(np.mean(saved[told, batch])),
            f"decode_batch_{batch}_speed_lost": float(np.mean(lost[told, batch])),
        }
    small = [key for key in saved if key[1] <= SMALL_BATCH]
    return figures | {
        "decode_locked_clock_share": _free_share(told),
        "decode_small_batch_energy_saved_min": min(min(saved[key]) for key in small),
        "decode_small_batch_speed_lost_max": max(max(lost[key]) for key in small),
    }


def _locked_decode(table: StepTable, batch: int, clock_share: float) -> tuple[float, float]:
    """Energy saved a token and speed lost, shares."""
    made = table.iteration(IterationWork.of(0.0, 0.0, batch, CONTEXT))
    longer = 1 + float((made.clock_seconds / made.seconds)[0]) * (1 / clock_share - 1)
    drawn = float((clock_map(table.gpu).draw_watts(clock_share, made.watts) / made.watts)[0])
    return 1 - drawn * longer, 1 - 1 / longer


def _free_share(gpu: str) -> float:
    """What the controller locks decode to on this type, 1 where it does not."""
    profile = shipped_library().find(gpu)
    node = NodeSpec("node", (_gpu("gpu", profile),), LABELS, host_unit=True)
    pods = [PodSpec("default", "pod", ("gpu",), work=_work("decode"))]
    topology = build_topology(
        [_domain(10.0 * profile.max_limit_watts)], [_policy("both")], [node], pods,
        {profile.model: profile},
    )  # fmt: skip
    law = topology.lock_law
    return 1.0 if law is None or not topology.clock_lock[0] else float(law.free_share[0])
