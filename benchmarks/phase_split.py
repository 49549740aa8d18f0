"""Splitwise's cluster designs from its own table: what separate prefill machines gain, and when.

Times of prompts and tokens on machines of eight A100 or H100 (BLOOM-176B, the model that the paper
plots; rows of capped H100s are computed there, not measured, and are left out). Half of the rows
chooses: the latency limits are set on its idle machine, and its rates choose between designs. What
was chosen is then played on the times of the other half, and those gains count.

The paper's protocol: 70 A100 machines draw what 40 H100 machines draw; requests of Azure's traces
arrive as a Poisson process; a design's throughput is the largest rate at which nine limits hold
(TTFT, time between tokens and whole request at three quantiles, against an idle A100 machine). Its
performance model reads the token table at the number of sequences in the iteration, and so does
this one: a batch's longer contexts cost nothing there, which flatters token machines. A mixed
iteration costs 1.1 of its prompts. Its gains are "up to" figures, so the larger of the two traces
is compared, and each trace's gain is printed. Clusters are simulated at a fifth of their size.
"""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from benchmarks.runner import Options, Result, Target
from capacity.language_models import find_language_model
from capacity.serving.engine import BatchingRules
from capacity.serving.phase_pools import Handover, PhasePools, Pool, PoolsRun, QueueEstimate
from capacity.serving.served_requests import Request, ServerRun, Size, Work
from capacity.serving.server_simulation import simulate

NAME = "phase_split"
SUMMARY = "Splitwise's designs from half of its table: gains, and when a slow link turns them off"

Floats = npt.NDArray[np.float64]
TraceRates = Mapping[str, Mapping[str, float]]
Serve = Callable[[Sequence[float], Sequence[Size]], PoolsRun]

HERE: Final = Path(__file__).parent
TIMES: Final = HERE / "data" / "capacity" / "splitwise_times_tp8.csv.gz"
TRACES: Final = HERE.parent / "simulation" / "data" / "azure"
MODEL: Final = "bloom-176b"

DOLLARS: Final = {"a100": 2.21, "h100": 4.76}
POWER: Final = {"a100": 24.8, "h100": 44.0}
"""Of one GPU's hour, and of a machine in the paper's unit (its notebooks/utils.py)."""

SCALE: Final = 5
MACHINES: Final = {"a100": 70, "h100": 40}
SPLITS: Final[Mapping[str, Mapping[str, tuple[tuple[str, int], tuple[str, int]]]]] = {
    "conv": {
        "AA": (("a100", 45), ("a100", 25)),
        "HH": (("h100", 25), ("h100", 15)),
        "HA": (("h100", 25), ("a100", 25)),
    },
    "code": {
        "AA": (("a100", 55), ("a100", 15)),
        "HH": (("h100", 35), ("h100", 5)),
        "HA": (("h100", 35), ("a100", 10)),
    },
}
"""Prompt and token machines of its designs of equal power (its notebooks/plots.ipynb), rounded to
the fifth; it has 25 + 26 and 35 + 8 for HA."""

LINK_BYTES_PER_SECOND: Final = {"a100": 25e9, "h100": 50e9}
"""InfiniBand of a machine: 200 and 400 Gb/s (section VI)."""

VISIBLE_SHARE: Final = 0.1
"""Of the transfer, which goes layer by layer behind the prompt (section IV). Assumed; its effect
on the gains is under 1 %, since links are far from full."""

PROMPT_BUDGET: Final = 2048
"""Prompt tokens of an iteration, beyond which throughput falls (section III)."""

MEMORY_BYTES: Final = 8 * 80e9
LARGEST_BATCH: Final = 512
MIXED_FACTOR: Final = 1.1

LIMITS: Final = {"ttft": (2.0, 3.0, 6.0), "tbt": (1.25, 1.5, 5.0), "e2e": (1.25, 1.5, 5.0)}
"""Slow-down against an idle A100 machine at the 50th, 90th and 99th percentile (Table VI)."""

REQUESTS: Final = 2000
WARM_UP: Final = 6
"""One in so many of the first requests is not counted."""

STEPS: Final = 10
"""Of halving: rates are found to 0.23 requests a second."""

HIGHEST_RATE: Final = 240.0

REFERENCES: Final = {
    "gain_at_20_percent_less_cost": "h100",
    "gain_at_equal_cost_and_power": "a100",
}
"""What A100 machines are compared with."""

TARGETS: Final = {
    "gain_at_20_percent_less_cost": Target(at_least=1.4 * 0.85, at_most=1.4 * 1.15),
    "gain_at_equal_cost_and_power": Target(at_least=2.35 * 0.85, at_most=2.35 * 1.15),
    "split_chosen": Target(at_least=1.0),
    "split_chosen_at_a_tenth_of_the_link": Target(at_most=0.0),
}


@dataclass(frozen=True)
class MachineTimes:
    """Seconds of iterations on one machine, by tokens in the iteration.

    Attributes:
        tokens: Rising, shape (n,).
        prompt, token: Medians of the table, shape (n,).
    """

    tokens: Floats
    prompt: Floats
    token: Floats
    _kept: dict[tuple[str, int], float] = field(default_factory=dict)

    def of(self, kind: str, tokens: int) -> float:
        """Straight lines between and beyond the table's sizes."""
        key = (kind, tokens)
        if key not in self._kept:
            values = self.prompt if kind == "prompt" else self.token
            inside = float(np.interp(tokens, self.tokens, values))
            end = slice(0, 2) if tokens < self.tokens[0] else slice(-2, None)
            low, high = self.tokens[end]
            outside = tokens < self.tokens[0] or tokens > self.tokens[-1]
            slope = float(np.diff(values[end])[0] / (high - low))
            edge = float(self.tokens[0] if tokens < self.tokens[0] else self.tokens[-1])
            self._kept[key] = max(1e-3, inside + (slope * (tokens - edge) if outside else 0.0))
        return self._kept[key]

    def decode(self, decodes: int, context: float) -> tuple[float, float, float]:
        """An iteration of tokens."""
        return self.of("token", decodes), 0.0, 0.0

    def prompt_iteration(self, decodes: int, tokens: int) -> float:
        """Prompts, with tokens beside them or alone."""
        return self.of("prompt", decodes + tokens) * (MIXED_FACTOR if decodes else 1.0)


@dataclass(frozen=True)
class Machine:
    """A server with the table's times."""

    times: MachineTimes

    def prompt(
        self, decodes: int, context: float, prompts: int, tokens: int, pairs: float
    ) -> tuple[float, float, float]:
        """As the simulation's clock; prompts computed elsewhere count as tokens."""
        if tokens == prompts:
            return self.times.decode(decodes + prompts, context)
        return self.times.prompt_iteration(decodes, tokens), 0.0, 0.0

    def decode(self, decodes: int, context: float) -> tuple[float, float, float]:
        """As the simulation's clock."""
        return self.times.decode(decodes, context)

    def serve(self, work: Work) -> ServerRun:
        """These requests, from an empty machine."""
        rules = BatchingRules(
            PROMPT_BUDGET, chunked=False, largest_batch=LARGEST_BATCH, admission="grown"
        )
        model = find_language_model(MODEL)
        free = MEMORY_BYTES - model.weight_bytes(16)
        return simulate(work, self, rules, int(free / model.kv_bytes_per_token("bf16")))


def run(options: Options) -> Result:
    """Chosen on one half, scored on the other; ``--quick`` takes a quarter of the requests."""
    count = REQUESTS // 4 if options.quick else REQUESTS
    fitted, judge = (_halves(half) for half in (0, 1))
    idle = fitted["a100"]
    figures: dict[str, float | int | str] = {
        "time_error_on_the_other_half_percent": 100 * _time_error(fitted),
        "cost_of_70_a100_over_40_h100": 70 * DOLLARS["a100"] / (40 * DOLLARS["h100"]),
        "power_of_70_a100_over_40_h100": 70 * POWER["a100"] / (40 * POWER["h100"]),
    }
    rates: dict[str, TraceRates] = {}
    for prefix, times in (("fitted_half_", fitted), ("", judge)):
        options.progress(prefix or "other half")
        rates[prefix] = {trace: design_rates(times, idle, trace, count) for trace in SPLITS}
        for trace, made in rates[prefix].items():
            figures |= {f"{prefix}{trace}_{name}_requests_per_second": made[name] for name in made}
    options.progress("a tenth of the link")
    slow = {trace: split_rates(fitted, idle, trace, count, 0.1) for trace in SPLITS}
    first, second = rates.values()
    figures |= gains(first, second) | choices(first, second, slow)
    figures = {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in figures.items()
    }
    return Result(figures, {} if options.quick else TARGETS)


def gains(fitted: TraceRates, judge: TraceRates) -> dict[str, float]:
    """What A100 machines gain on the other half, split where the first half says so."""
    figures: dict[str, float] = {}
    for name, reference in REFERENCES.items():
        ratios = {}
        for trace, made in fitted.items():
            # Machines that may part may also stay together.
            chosen = _best({name: made[name] for name in ("AA", "a100")})
            ratios[trace] = judge[trace][chosen] / max(1e-9, judge[trace][reference])
        figures |= {f"{name}_{trace}": ratio for trace, ratio in ratios.items()}
        figures[name] = max(ratios.values())
        figures[f"{name}_mean_of_traces"] = float(np.exp(np.mean(np.log(list(ratios.values())))))
    return figures


def choices(fitted: TraceRates, judge: TraceRates, slow: TraceRates) -> dict[str, float]:
    """The first half's best designs: whether they split, and how good the other half finds them."""
    best = {trace: _best(made) for trace, made in fitted.items()}
    at_a_tenth = [_best({**fitted[trace], **slow[trace]}) for trace in fitted]
    found = [judge[trace][design] / max(judge[trace].values()) for trace, design in best.items()]
    return {
        "split_chosen": float(np.mean([design not in MACHINES for design in best.values()])),
        "split_chosen_at_a_tenth_of_the_link": float(
            np.mean([design not in MACHINES for design in at_a_tenth])
        ),
        "chosen_over_best_on_the_other_half_min": min(found),
        **{f"{trace}_AA_at_a_tenth_requests_per_second": slow[trace]["AA"] for trace in slow},
    }


def _best(rates: Mapping[str, float]) -> str:
    return max(rates, key=lambda design: rates[design])


def design_rates(
    times: Mapping[str, MachineTimes], idle: MachineTimes, trace: str, count: int
) -> dict[str, float]:
    """Largest rate of each design of equal power, requests a second of the whole cluster."""
    sizes = _sizes(trace, count)
    together = {
        gpu: _largest_rate(_pool(times, gpu, machines).serve, sizes, idle)
        for gpu, machines in MACHINES.items()
    }
    return together | split_rates(times, idle, trace, count, 1.0)


def split_rates(
    times: Mapping[str, MachineTimes],
    idle: MachineTimes,
    trace: str,
    count: int,
    link_share: float,
) -> dict[str, float]:
    """The same of the designs with separate prompt machines, at a share of the link."""
    return {
        name: _largest_rate(_split(times, design, link_share).serve, _sizes(trace, count), idle)
        for name, design in SPLITS[trace].items()
    }


def _largest_rate(serve: Serve, sizes: Sequence[Size], idle: MachineTimes) -> float:
    low, high = 0.0, HIGHEST_RATE
    gaps = np.random.default_rng(9).exponential(1.0, len(sizes))
    for _ in range(STEPS):
        rate = (low + high) / 2
        times = (np.cumsum(gaps) * SCALE / rate).tolist()
        if _within_limits(serve(times, sizes).requests, idle):
            low = rate
        else:
            high = rate
    return low


def _within_limits(requests: Sequence[Request], idle: MachineTimes) -> bool:
    counted = requests[len(requests) // WARM_UP :]
    token = idle.of("token", 1)
    prompts = np.array([idle.of("prompt", one.prompt) for one in counted])
    outputs = np.array([one.output for one in counted])
    ttft = np.array([one.ttft for one in counted])
    whole = np.array([one.last - one.sent for one in counted])
    several = outputs > 1
    slowdowns = {
        "ttft": ttft / prompts,
        "tbt": (whole - ttft)[several] / (outputs[several] - 1) / token,
        "e2e": whole / (prompts + (outputs - 1) * token),
    }
    return all(
        bool((np.quantile(slow, (0.5, 0.9, 0.99)) <= LIMITS[name]).all())
        for name, slow in slowdowns.items()
    )


def _pool(times: Mapping[str, MachineTimes], gpu: str, machines: int) -> Pool:
    own = times[gpu]
    estimate = QueueEstimate(lambda tokens: own.of("prompt", tokens), own.of("token", 16))
    return Pool(Machine(own), max(1, round(machines / SCALE)), estimate)


def _split(
    times: Mapping[str, MachineTimes],
    design: tuple[tuple[str, int], tuple[str, int]],
    link_share: float,
) -> PhasePools:
    prompt, token = design
    rate = min(LINK_BYTES_PER_SECOND[prompt[0]], LINK_BYTES_PER_SECOND[token[0]])
    each = find_language_model(MODEL).kv_bytes_per_token("bf16")
    handover = Handover(link_share * rate, each, VISIBLE_SHARE)
    return PhasePools(_pool(times, *prompt), _pool(times, *token), handover)


def _halves(half: int) -> dict[str, MachineTimes]:
    return {gpu: _fit(_rows(gpu)[half]) for gpu in MACHINES}


def _fit(rows: Sequence[Mapping[str, str]]) -> MachineTimes:
    prompt: dict[int, list[float]] = defaultdict(list)
    token: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        prompt[_tokens(row)].append(float(row["prompt_ms"]) / 1e3)
        token[_tokens(row)].append(float(row["token_ms"]) / 1e3)
    sizes = sorted(prompt)
    return MachineTimes(
        np.array(sizes, dtype=np.float64),
        np.array([np.median(prompt[size]) for size in sizes]),
        np.array([np.median(token[size]) for size in sizes]),
    )


@lru_cache(maxsize=4)
def _rows(gpu: str) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Two halves of the rows of one GPU type, drawn once."""
    with gzip.open(TIMES, "rt") as file:
        kept = [
            row
            for row in csv.DictReader(file)
            if row["model"] == MODEL and row["hardware"].startswith(gpu)
        ]
    order = np.random.default_rng(0).permutation(len(kept)).tolist()
    return [kept[i] for i in order[0::2]], [kept[i] for i in order[1::2]]


def _tokens(row: Mapping[str, str]) -> int:
    return int(row["prompt_size"]) * int(row["batch_size"])


def _time_error(fitted: Mapping[str, MachineTimes]) -> float:
    """Median error of one half's times on the rows of the other."""
    errors = [
        abs(fitted[gpu].of(kind, _tokens(row)) / (float(row[f"{kind}_ms"]) / 1e3) - 1)
        for gpu in MACHINES
        for row in _rows(gpu)[1]
        for kind in ("prompt", "token")
    ]
    return float(np.median(errors))


@lru_cache(maxsize=4)
def _sizes(trace: str, count: int) -> tuple[Size, ...]:
    with gzip.open(TRACES / f"azure_llm_2023_{trace}.csv.gz", "rt") as file:
        rows = [
            (int(row["ContextTokens"]), int(row["GeneratedTokens"])) for row in csv.DictReader(file)
        ]
    chosen = np.random.default_rng(5).integers(0, len(rows), count).tolist()
    return tuple(Size(max(1, rows[i][0]), max(1, rows[i][1])) for i in chosen)
