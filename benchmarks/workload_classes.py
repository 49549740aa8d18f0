"""Whether telemetry tells what binds the work on a board: other generators than the fit's.

The plant of ``catalogue_signature`` plays every entry with its sizes changed by up to a third and
its own laws of time and draw; meters drift, requests pause, boards differ. Recorded draws of all
decoder steps (H200, H100) are judged beside: operations a byte against the roofs' ridge say what
binds, and near the ridge either of the two is right; once by draw and a utilisation of 1, once with
the recorded clock, once with the memory utilisation that bytes over measured time give. A class
that is given has to be right; ``unknown`` is counted apart. The mean over three seeds is judged,
the worst is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.catalogue_signature import HELD, played_phases
from benchmarks.runner import Options, Result, Target
from capacity.bench.shipped_rows import shipped_rows
from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.entry_mix import entry_mix
from capacity.catalogue.pod_works import SURE, WAITS
from capacity.catalogue.priced_gpu import REFERENCE_GPU, priced_gpu
from capacity.catalogue.telemetry_features import NAMES, Floats, Telemetry, features
from capacity.catalogue.workload_classifier import UNKNOWN, shipped_classifier
from capacity.kernels import DecoderStep
from capacity.profile_library import shipped_library
from capacity.roofs import require_roofs
from capacity.work_mix import cap_curve
from simulation.phase_plant import (
    PEAK_BYTES,
    PEAK_OPERATIONS,
    REACHED,
    REACHED_BYTES,
    PlayedPhase,
    Trace,
    play,
)

NAME = "workload_classes"
SUMMARY = "what binds the work on a board, from its telemetry alone, with a probability"

WINDOW = 120
RUNS = 6
QUICK_RUNS = 1

SEEDS = 3
"""From the given one on. Windows are as many with each: shares over all are the seeds' mean."""

LIMIT_WATTS = 700.0
MEMORY = "memory_utilisation"

#: Of the ridge; closer to it neither roof binds for certain.
NEAR_RIDGE = 0.3
EITHER = "either"

#: What an agent without memory counters tells.
SPARSE = frozenset({MEMORY, "memory_used", "clock"})


@dataclass(frozen=True, slots=True)
class Window:
    """One board over two minutes, and what truly binds there."""

    observed: Floats
    truth: str
    entry: str
    #: Recorded signals that ``observed`` lacks.
    beside: Mapping[str, float] = field(default_factory=dict)

    def with_signal(self, name: str) -> Window:
        """The window as it looks where this signal is told, too."""
        observed = self.observed.copy()
        observed[NAMES.index(name)] = self.beside[name]
        return replace(self, observed=observed)


def run(options: Options) -> Result:
    """Every entry some times, with three seeds (one in the short form); recorded steps once."""
    seeds = range(options.seed, options.seed + (1 if options.quick else SEEDS))
    runs = QUICK_RUNS if options.quick else RUNS
    by_seed = [list(_played(np.random.default_rng([seed, 40961]), runs)) for seed in seeds]
    windows = [window for played in by_seed for window in played]
    figures: dict[str, float | int | str] = {"windows": len(windows)}
    figures |= _scores(windows, "")
    right = [_scores(played, "")["right_of_all"] for played in by_seed]
    figures["right_of_all_by_seed"] = ", ".join(f"{share:.4f}" for share in right)
    figures["right_of_all_worst_seed"] = min(right)
    figures |= _scores([_without(window, SPARSE) for window in windows], "draw_and_utilisation_")
    for name in ("level", "utilisation"):
        figures[f"{name}_alone_right_of_all"] = _nearest_by(name, windows)
    recorded = list(_recorded())
    figures["recorded_windows"] = len(recorded)
    figures |= _scores(recorded, "recorded_")
    figures["recorded_windows_near_the_ridge"] = sum(w.truth == EITHER for w in recorded)
    figures |= _by_truth(recorded)
    figures |= _scores([window.with_signal("clock") for window in recorded], "recorded_clock_")
    memory = [window.with_signal(MEMORY) for window in recorded]
    figures |= _scores(memory, "recorded_memory_")
    figures |= _above_their_entry(windows)
    strange = np.random.default_rng([options.seed, 40973])
    strangers = [shipped_classifier().classify(row) for row in _strangers(strange)]
    figures["levels_above_the_limit_called_unknown"] = float(
        np.mean([v.bound == UNKNOWN for v in strangers])
    )
    return Result(
        figures,
        {
            "right_when_named": Target(at_least=0.90),
            "right_of_all": Target(at_least=0.90),
            "calibration_error": Target(at_most=0.05),
            "recorded_right_when_named": Target(at_least=0.90),
        },
    )


def _scores(windows: Sequence[Window], prefix: str) -> dict[str, float]:
    verdicts = [shipped_classifier().classify(window.observed) for window in windows]
    named = np.array([verdict.bound != UNKNOWN for verdict in verdicts])
    right = np.array([_is_right(v.bound, w) for v, w in zip(verdicts, windows, strict=True)])
    sure = np.array([verdict.confidence for verdict in verdicts])
    shares = {name: float(np.mean([w.truth == name for w in windows]))
              for name in {w.truth for w in windows}}  # fmt: skip
    return {
        f"{prefix}right_when_named": float(right[named].mean()) if named.any() else 0.0,
        f"{prefix}right_of_all": float(right.mean()),
        f"{prefix}unknown_share": float(1 - named.mean()),
        f"{prefix}calibration_error": _calibration_error(sure[named], right[named]),
        f"{prefix}right_by_commonest_class": max(shares.values()),
    }


def _by_truth(recorded: Sequence[Window]) -> dict[str, int]:
    """Recorded windows by what binds and what they were called."""
    called = Counter((w.truth, shipped_classifier().classify(w.observed).bound) for w in recorded)
    return {f"recorded_{truth}_called_{bound}": n for (truth, bound), n in sorted(called.items())}


def _above_their_entry(windows: Sequence[Window]) -> dict[str, float]:
    """Of sure verdicts: the share of windows whose 95th percentile is over 1.05 times the entry's.

    The class is sure, the entry is not; what waits outside is told apart (docs/adr/0026).
    """
    gpu = shipped_library().profiles[REFERENCE_GPU]
    above: dict[bool, list[bool]] = {True: [], False: []}
    for window in windows:
        verdict = shipped_classifier().classify(window.observed)
        mix = entry_mix(verdict.workload, gpu.model)
        curve = cap_curve(gpu, mix) if mix is not None and verdict.confidence >= SURE else None
        if curve is not None:
            high = float(window.observed[NAMES.index("high")]) * LIMIT_WATTS
            above[verdict.bound == WAITS].append(high > 1.05 * curve.p95_watts)
    return {
        "sure_outside_windows": len(above[True]),
        "sure_outside_above_their_entry": float(np.mean(above[True])),
        "sure_others_windows": len(above[False]),
        "sure_others_above_their_entry": float(np.mean(above[False])),
    }


def _is_right(bound: str, window: Window) -> bool:
    return bound == window.truth or (window.truth == EITHER and bound in ("compute", "bandwidth"))


def _calibration_error(sure: Floats, right: Floats) -> float:
    """Mean distance of stated and observed frequency over fifths of confidence."""
    if not len(sure):
        return 1.0
    order = np.array_split(np.argsort(sure), 5)
    parts = [
        (len(part), abs(sure[part].mean() - right[part].mean())) for part in order if len(part)
    ]
    return float(sum(n * gap for n, gap in parts) / len(sure))


def _played(generator: np.random.Generator, runs: int) -> Iterator[Window]:
    gpu = priced_gpu(REFERENCE_GPU)
    for entry in shipped_catalogue().values():
        phases = played_phases(entry, gpu)
        for _ in range(runs):
            changed = [_resized(phase, generator) for phase in phases]
            trace = play(changed, HELD * LIMIT_WATTS, seconds=4.0, cycles=1)
            pauses = generator.uniform(0, 0.35) if entry.kind == "Serving" else 0.0
            made = features(_sensed(trace, pauses, generator))
            assert made is not None
            yield Window(made, _truth(changed), entry.name)


def _resized(phase: PlayedPhase, generator: np.random.Generator) -> PlayedPhase:
    """Each part of the work larger or smaller by up to a third, on its own."""
    size, outside, pace = np.exp(generator.uniform(-0.3, 0.3, 3)).tolist()
    loads = [replace(load, count=load.count * size) for load in phase.loads]
    return replace(
        phase, loads=loads, cycles=phase.cycles * size, wait_seconds=phase.wait_seconds * pace,
        outside_seconds=phase.outside_seconds * outside,
    )  # fmt: skip


def _truth(phases: Sequence[PlayedPhase]) -> str:
    """What the plant's own laws wait for most of the time."""
    times: dict[str, float] = {}
    for phase in phases:
        compute = sum(
            load.count * load.slowness * load.operations
            / (PEAK_OPERATIONS[load.unit] * REACHED[load.unit]) for load in phase.loads
        )  # fmt: skip
        memory = sum(load.count * load.slowness * load.bytes_moved for load in phase.loads)
        memory /= PEAK_BYTES * REACHED_BYTES
        starved = phase.cycles / 1.98e9 + phase.eager * 6e-6 * sum(x.count for x in phase.loads)
        outside = phase.outside_seconds + phase.wait_seconds / phase.repeats
        parts = {"compute": compute, "bandwidth": memory, "starved": starved, "outside": outside}
        binds = max(parts, key=lambda name: parts[name])
        length = phase.repeats * max(parts.values())
        times[binds] = times.get(binds, 0.0) + length
    return max(times, key=lambda name: times[name])


def _sensed(trace: Trace, pauses: float, generator: np.random.Generator) -> Telemetry:
    """A sample a second of the trace repeated for ever, with pauses, a drifting meter and gain."""
    ends = np.cumsum(trace.seconds)
    columns = np.array([trace.watts, trace.busy, trace.bytes_moved / PEAK_BYTES, trace.clock])
    whole = np.concatenate([np.zeros((4, 1)), np.cumsum(columns * trace.seconds, axis=1)], axis=1)
    at = np.linspace(0, WINDOW, WINDOW + 1) + generator.uniform(0, float(ends[-1]))
    turns, rest = np.divmod(at, ends[-1])
    spent = np.array([
        turns * row[-1] + np.interp(rest, np.concatenate([[0.0], ends]), row) for row in whole
    ])  # fmt: skip
    watts, busy, memory, clock = np.diff(spent, axis=1)
    paused = np.clip(generator.beta(2, 2, WINDOW) * 2 * pauses, 0, 1)
    drift = 0.02 * np.cumsum(generator.standard_normal(WINDOW)) / np.sqrt(WINDOW)
    board = generator.uniform(0.95, 1.05)
    draw = (watts * (1 - paused) + 118.0 * paused) * np.minimum(board * (1 + drift), 700 / watts)
    return Telemetry(
        draw, LIMIT_WATTS, np.clip(busy * (1 - paused), 0, 1),
        np.clip(memory * (1 - paused), 0, 1), np.full(WINDOW, np.nan),
        np.clip(clock, 0, 1),
    )  # fmt: skip


def _recorded() -> Iterator[Window]:
    """Instantaneous draws of every measured decoder step, back to back."""
    for name, gpu in (("h200-steps", "H200-SXM"), ("h100-steps", "H100-SXM")):
        roofs = require_roofs(gpu)
        for row in shipped_rows(name):
            step = row.kernel
            if not isinstance(step, DecoderStep) or row.power is None:
                continue
            ridge = roofs.flops_per_second(step.number_format) / roofs.bytes_per_second
            unknown = np.full(WINDOW, np.nan)
            draws = np.resize(np.array(row.power.instant_watts), WINDOW)
            limit = row.identity.power_limit_watts
            made = features(Telemetry(draws, limit, np.ones(WINDOW), unknown, unknown, unknown))
            assert made is not None
            clock = np.nan if row.sm_clock_mhz is None else row.sm_clock_mhz / roofs.max_clock_mhz
            moved = step.bytes_moved / row.latency.median_seconds / roofs.bytes_per_second
            beside = {"clock": clock, MEMORY: min(1.0, moved)}
            side = side_of_ridge(step.flops / step.bytes_moved / ridge)
            yield Window(made, side, name, beside)


def side_of_ridge(intensity_ratio: float) -> str:
    """What binds a step, by its operations a byte over the roofs' own."""
    if abs(intensity_ratio - 1) <= NEAR_RIDGE:
        return EITHER
    return "compute" if intensity_ratio > 1 else "bandwidth"


def _strangers(generator: np.random.Generator) -> Iterator[Floats]:
    """Levels of 1.15 to 1.6 times the limit, which no entry has: a broken meter."""
    for _ in range(50):
        level = generator.uniform(1.15, 1.6)
        yield np.array([level, level - 0.1, level + 0.1, 0.05, 0.0, 0.0, 0.0, 0.5, 1.0, level])


def _without(window: Window, names: frozenset[str]) -> Window:
    keep = np.array([name not in names for name in NAMES])
    return replace(window, observed=np.where(keep, window.observed, np.nan))


def _nearest_by(name: str, windows: Sequence[Window]) -> float:
    """What one feature alone would get right: the class of the nearest entry by it."""
    column, classifier = NAMES.index(name), shipped_classifier()
    known = classifier.means[:, column]
    found = [
        classifier.classes[int(np.argmin(np.abs(known - window.observed[column])))]
        for window in windows
    ]
    return float(np.mean([bound == w.truth for bound, w in zip(found, windows, strict=True)]))
