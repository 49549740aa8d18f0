"""Whether catalogue entries behave as they declare: by clock in the model, by trace in a plant.

A phase declared bandwidth-, host-, storage-, network- or launch-bound (or waiting for a deadline)
may lose at most 3 % of its speed at an SM clock 25 % below the one it sustains; one declared
compute- or latency-bound has to lose 10 %. The plant prices the same work by other laws; level
(mean over time of a whole number of cycles), period and depth (highest less lowest mean of 100 ms)
of its trace have to be the declared ones within 10 %. A kinder reading of the depth stands beside,
with no target on it. Declared is what the capacity model says with its capping loop
(``capacity.catalogue.declared_shapes``); the plant follows its limit by a law of its own, which
knows the overshoot of a step and no dip.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.runner import Options, Result, Target
from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.host_roofline import HostRoofline
from capacity.catalogue.priced_gpu import REFERENCE_GPU, PricedGpu, priced_gpu
from capacity.catalogue.workload_kernels import KernelWork, PhaseWork, phase_work
from capacity.catalogue.workload_model import Conditions, price_cycle
from capacity.catalogue.workload_schema import Workload, WorkPhase
from capacity.kernels import Attention, Gemm
from simulation.phase_plant import Load, PlayedPhase, Trace, play

NAME = "catalogue_signature"
SUMMARY = "catalogue entries: clock sensitivity as declared, power traces of the declared shape"

LOWER_CLOCK = 0.75
KEEPS_SPEED = 0.03
LOSES_SPEED = 0.10
CLOCK_BOUND = frozenset({"compute", "latency"})
WITHIN = 0.10
TILE = 128
TILE_DEPTH = 64

HELD = 0.987
"""Of its limit, that a board is held at (own H200: 0.988)."""

DECIMALS = 3
"""Of the depths that entries declare; the plant's are compared at the same."""

SHALLOW = 0.05
"""Of the limit: what the kinder band takes for equal. A depth is the difference of two draws, each
of which may be a tenth off."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One entry; errors are relative, of the plant's trace against the declared shape.

    Attributes:
        depth_error: 1 where no swing is declared and there is one.
        depth_apart: The same as a share of the limit, not of the declared depth.
    """

    wrong_phases: tuple[str, ...]
    level_error: float
    period_error: float
    depth_error: float
    depth_apart: float

    @property
    def has_shape(self) -> bool:
        """All three within a tenth."""
        return max(self.level_error, self.period_error, self.depth_error) <= WITHIN

    @property
    def has_depth_in_kinder_band(self) -> bool:
        """Within a tenth, or within 5 % of the limit."""
        return self.depth_error <= WITHIN or self.depth_apart <= SHALLOW


def run(options: Options) -> Result:
    """All entries; seconds, also in the short form."""
    del options
    catalogue = shipped_catalogue()
    gpu = priced_gpu(REFERENCE_GPU)
    return result({name: judge(entry, gpu) for name, entry in catalogue.items()}, catalogue)


def result(judged: Mapping[str, Judged], entries: Mapping[str, Workload]) -> Result:
    """Figures and targets."""
    n = len(judged)
    wrong = [f"{name}/{phase}" for name, made in judged.items() for phase in made.wrong_phases]
    shapeless = [name for name, made in judged.items() if not made.has_shape]
    made_all = list(judged.values())
    levels = np.array([made.level_error for made in made_all])
    constant = np.array([entry.shape.level for entry in entries.values() if entry.shape])
    return Result(
        {
            "entries": n,
            "phases": sum(len(entry.phases) for entry in entries.values()),
            "phases_against_their_declared_bound": len(wrong),
            "entries_of_another_shape": len(shapeless),
            "entries_off_in_level": sum(made.level_error > WITHIN for made in made_all),
            "entries_off_in_period": sum(made.period_error > WITHIN for made in made_all),
            "entries_off_in_depth": sum(made.depth_error > WITHIN for made in made_all),
            "entries_off_in_depth_by_kinder_band": sum(
                not made.has_depth_in_kinder_band for made in made_all
            ),
            "level_error_mean": float(levels.mean()),
            "level_error_worst": float(levels.max()),
            "period_error_mean": float(np.mean([made.period_error for made in made_all])),
            "period_error_worst": max(made.period_error for made in made_all),
            "entries_that_declare_a_swing": sum(
                entry.shape is not None and entry.shape.depth > 0 for entry in entries.values()
            ),
            "depth_apart_worst": max(made.depth_apart for made in made_all),
            "level_error_of_best_constant": float(
                min(np.mean(np.abs(c / constant - 1)) for c in constant)
            ),
            "worst": ", ".join([*wrong, *shapeless])[:1200] or "none",
        },
        {
            "phases_against_their_declared_bound": Target(at_most=0),
            "entries_of_another_shape": Target(at_most=0),
        },
    )


def judge(entry: Workload, gpu: PricedGpu) -> Judged:
    """The entry by the two rules."""
    return Judged(_against_declared(entry, gpu), *_shape_errors(entry, trace_of(entry, gpu)))


def _against_declared(entry: Workload, gpu: PricedGpu) -> tuple[str, ...]:
    full = price_cycle(entry, gpu)
    slow = price_cycle(entry, gpu, Conditions(clock_share=LOWER_CLOCK))
    wrong = []
    for phase, fast, held in zip(entry.phases, full.phases, slow.phases, strict=True):
        loss = 1 - fast.seconds / held.seconds
        clocked = phase.bound in CLOCK_BOUND
        kept = loss >= LOSES_SPEED if clocked else loss <= KEEPS_SPEED
        if not kept or fast.binds != phase.bound:
            wrong.append(f"{phase.name} ({phase.bound}: {fast.binds}, loses {loss:.1%})")
    return tuple(wrong)


def trace_of(entry: Workload, gpu: PricedGpu) -> Trace:
    """What the plant draws for the entry."""
    return play(played_phases(entry, gpu), HELD * gpu.limit_watts)


def played_phases(entry: Workload, gpu: PricedGpu) -> list[PlayedPhase]:
    """The entry's description in the plant's terms."""
    host = HostRoofline()
    return [_played(entry, phase, gpu, host) for phase in entry.phases]


def _played(entry: Workload, phase: WorkPhase, gpu: PricedGpu, host: HostRoofline) -> PlayedPhase:
    work = phase_work(entry, phase, gpu.roofs)
    link = phase.traffic.link_bytes + work.link_bytes
    traffic = phase.traffic.model_copy(update={"link_bytes": link})
    return PlayedPhase(
        loads=[_load(part) for part in work.kernels],
        repeats=phase.repeats,
        cycles=work.sequence_cycles,
        outside_seconds=max(host.seconds(traffic, entry.cpu_cores).values()),
        hidden=phase.overlap,
        wait_seconds=phase.wait_seconds,
        eager=phase.launch_mode == "eager",
        side_of=_sides(work),
    )


def _sides(work: PhaseWork) -> list[float]:
    shares = [part.share for part in work.kernels]
    return [] if all(share == 1 for share in shares) else shares


def _load(part: KernelWork) -> Load:
    kernel = part.kernel
    unit, operations = "products", kernel.flops
    if isinstance(kernel, Attention):
        unit = "attention" if kernel.mask in ("causal", "full") else "masked_attention"
        kernel = replace(
            kernel,
            query_tokens=_padded(kernel.query_tokens),
            kv_tokens=_padded(kernel.kv_tokens),
        )
        operations = kernel.flops
    elif isinstance(kernel, Gemm):
        # A tile's pipeline is filled once: a slice of the depth that does no useful work.
        operations *= 1 + TILE_DEPTH / kernel.k
        unit = "narrow_products" if kernel.number_format == "fp8" else "products"
    return Load(operations, kernel.bytes_moved, part.count, unit, 1 / part.speed)


def _padded(tokens: int) -> int:
    """Attention kernels work in tiles of 128 tokens; one query is none."""
    return tokens if tokens < TILE else -(-tokens // TILE) * TILE


def _shape_errors(entry: Workload, trace: Trace) -> tuple[float, float, float, float]:
    """Of level, period and depth, relative; and of the depth over the limit."""
    shape = entry.shape
    if shape is None:
        return (float("inf"),) * 4
    limit = priced_gpu(REFERENCE_GPU).limit_watts
    sensed = trace.sensed() / limit
    depth = round(float(sensed.max() - sensed.min()), DECIMALS)
    apart = abs(depth - shape.depth)
    return (
        abs(trace.mean_watts / limit / shape.level - 1),
        abs(trace.period_seconds / shape.period_seconds - 1),
        apart / shape.depth if shape.depth else float(depth > 0),
        apart,
    )
