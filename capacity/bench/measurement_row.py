"""One measured point, and the file that holds many: JSON Lines, one row a line.

Rows repeat the identity of the GPU and the software, so a line means the same wherever it is
copied. Names and units of the file are its contract (``SCHEMA_VERSION``); inside wattpack the
same values carry seconds, watts and joules (I9).
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args

from capacity.bench.bench_identity import SCHEMA_VERSION, BenchIdentity
from capacity.kernels import Kernel, LaunchMode, kernel_from_shape, kernel_shape
from wattpack.errors import InputError, read_from
from wattpack.units import require_number

CacheState = Literal["cold", "warm"]
TimingMode = Literal["continuous", "arrivals"]
CACHE_STATES: Final[tuple[CacheState, ...]] = ("cold", "warm")
TIMING_MODES: Final[tuple[TimingMode, ...]] = ("continuous", "arrivals")
LAUNCH_MODES: Final[tuple[LaunchMode, ...]] = ("graph", "eager")
T = TypeVar("T", bound=str)

Flag = Literal[
    "above_peak",
    "throttled",
    "unstable_power",
    "unstable_time",
    "shared_gpu",
    "mig_slice",
    "drift",
    "slow_clock",
    "capped",
    "other_numbers",
]


@dataclass(frozen=True, slots=True)
class Latency:
    """Time of one run of the kernel, from short bursts at whatever clock the board then had."""

    median_seconds: float
    p10_seconds: float
    p90_seconds: float
    relative_std: float
    samples: int


@dataclass(frozen=True, slots=True)
class PowerWindow:
    """What the board drew while it ran nothing but this kernel.

    Attributes:
        mean_watts: Energy counter difference over the window.
        sampled_watts: Mean of the instantaneous samples: must agree with ``mean_watts``.
        p99_watts: 99th percentile of the instantaneous samples.
        energy_joules: Counter difference.
        window_seconds: Length of the window after the settling was dropped.
        sustained_seconds: Time of one run inside the window; above the burst's median where the
            board is held at its limit.
        instant_watts: The instantaneous samples, one an update of the sensor (100 ms on Hopper).
    """

    mean_watts: float
    sampled_watts: float
    p99_watts: float
    energy_joules: float
    window_seconds: float
    sustained_seconds: float
    instant_watts: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class MeasurementRow:
    """One kernel, one cache state, one GPU.

    Attributes:
        section: The part of the plan that asked for it.
        implementation: Which code ran, for example ``cublas`` or ``triton:128x64:4``.
        power: None where only time was measured.
        throttle_reasons: NVML clock event bits seen, or-ed.
        launch_mode: Whether runs were launched one by one or recorded as a graph.
        arrivals_per_second: Mean rate of timing mode ``arrivals``; 0 in mode ``continuous``.
    """

    identity: BenchIdentity
    section: str
    kernel: Kernel
    cache_state: CacheState
    timing_mode: TimingMode
    implementation: str
    data_distribution: str
    latency: Latency
    power: PowerWindow | None
    sm_clock_mhz: float | None
    temperature_start_celsius: float | None
    temperature_end_celsius: float | None
    throttle_reasons: int
    started_at: str
    flags: tuple[Flag, ...] = field(default=())
    launch_mode: LaunchMode = "graph"
    arrivals_per_second: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing speaks against the row; ``throttled`` at the default limit does not."""
        return not set(self.flags) - {"throttled"}

    def as_dict(self) -> dict[str, Any]:
        """The row of the file.

        ``tflops`` and ``gbs`` are the rates of the power window's sustained time where draws were
        measured, so they fall with the clock at the limit; else of the burst's median.
        """
        who, time, power = self.identity, self.latency, self.power
        # Rates follow from the rounded time, so that a row read back writes the same line again.
        seconds = _digits((power.sustained_seconds if power else time.median_seconds) * 1e3) / 1e3
        fingerprint = who.numeric_fingerprint
        return {
            "schema_version": SCHEMA_VERSION,
            "run_id": who.run_id,
            "gpu_uuid_hash": who.gpu_uuid_hash,
            "gpu_product": who.gpu_product,
            "sm": who.architecture,
            "vbios": who.vbios,
            "driver": who.driver,
            "cuda": who.cuda,
            "torch": who.torch,
            "image_digest": who.image_digest,
            "kernel_source_sha256": who.kernel_source_sha256,
            **({"numeric_fingerprint": fingerprint} if fingerprint else {}),
            "power_limit_w": who.power_limit_watts,
            "sm_clock_lock_mhz": who.sm_clock_lock_mhz,
            "section": self.section,
            "kernel_class": self.kernel.kernel_class,
            "dtype": getattr(self.kernel, "number_format", ""),
            "shape": kernel_shape(self.kernel),
            "l2_state": self.cache_state,
            "timing_mode": self.timing_mode,
            **({"launch_mode": self.launch_mode} if self.launch_mode != "graph" else {}),
            **({"arrivals_per_s": rate} if (rate := self.arrivals_per_second) else {}),
            "implementation": self.implementation,
            "data_dist": self.data_distribution,
            "n_iter": time.samples,
            "latency_ms": {
                "median": _digits(time.median_seconds * 1e3),
                "p10": _digits(time.p10_seconds * 1e3),
                "p90": _digits(time.p90_seconds * 1e3),
                "rel_std": _digits(time.relative_std),
            },
            "sustained_latency_ms": _digits(power.sustained_seconds * 1e3) if power else None,
            "tflops": _digits(self.kernel.flops / seconds / 1e12),
            "gbs": _digits(self.kernel.bytes_moved / seconds / 1e9),
            "energy_j": _digits(power.energy_joules) if power else None,
            "power_w": {
                "mean": _digits(power.mean_watts),
                "sampled": _digits(power.sampled_watts),
                "p99_instant": _digits(power.p99_watts),
                "instant": [round(float(watts), 1) for watts in power.instant_watts],
            }
            if power
            else None,
            "window_s": _digits(power.window_seconds) if power else None,
            "temp_c": {
                "start": self.temperature_start_celsius,
                "end": self.temperature_end_celsius,
            },
            "sm_clock_mhz": self.sm_clock_mhz,
            "throttle_reasons": self.throttle_reasons,
            "quality": {"ok": self.ok, "flags": list(self.flags)},
            "started_at": self.started_at,
        }


def row_from_dict(document: object) -> MeasurementRow:
    """A row of the file, every value checked.

    Raises:
        InputError: naming the field: unknown or missing key, another schema version, NaN, a time
            or a power that is not positive, quantiles out of order.
    """
    if not isinstance(document, Mapping):
        raise InputError("row", "a mapping", document)
    if document.get("schema_version") != SCHEMA_VERSION:
        raise InputError("schema_version", str(SCHEMA_VERSION), document.get("schema_version"))
    for key in sorted((set(document) - _LATER_KEYS) ^ _KEYS, key=str):
        expected = "a known key" if key in document else "a value"
        raise InputError(str(key), expected, document.get(key))
    latency = _latency(document)
    power = _power(document)
    return MeasurementRow(
        identity=_identity(document),
        section=_text(document, "section"),
        kernel=kernel_from_shape(_text(document, "kernel_class"), document["shape"]),
        cache_state=_choice(document, "l2_state", CACHE_STATES),
        timing_mode=_choice(document, "timing_mode", TIMING_MODES),
        implementation=_text(document, "implementation"),
        data_distribution=_text(document, "data_dist"),
        latency=latency,
        power=power,
        sm_clock_mhz=_number_or_none(document["sm_clock_mhz"], "sm_clock_mhz"),
        temperature_start_celsius=_number_or_none(
            _part(document, "temp_c").get("start"), "temp_c.start"
        ),
        temperature_end_celsius=_number_or_none(_part(document, "temp_c").get("end"), "temp_c.end"),
        throttle_reasons=_integer(document, "throttle_reasons", 0),
        started_at=_text(document, "started_at"),
        flags=_flags(document),
        launch_mode=_choice({"launch_mode": "graph", **document}, "launch_mode", LAUNCH_MODES),
        arrivals_per_second=require_number(
            "arrivals_per_s", document.get("arrivals_per_s", 0.0), minimum=0, maximum=1e9
        ),
    )


def read_rows(path: Path) -> list[MeasurementRow]:
    """All rows of a results file, plain or gzip.

    Raises:
        InputError: naming the line, for a truncated line, a mixed version or an impossible row.
    """
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
    except (OSError, EOFError, ValueError) as error:
        raise InputError("rows", "a results file that can be read", str(path)) from error
    return list(parse_rows(text.splitlines(), str(path)))


def parse_rows(lines: Iterable[str], source: str = "") -> Iterator[MeasurementRow]:
    """The rows of JSON Lines; blank lines are nothing."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{source}:{number}" if source else f"line {number}"
        with read_from(where):
            yield _row_of_line(line)


def _row_of_line(line: str) -> MeasurementRow:
    try:
        document = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InputError("row", "one whole JSON object a line", line[:80]) from error
    return row_from_dict(document)


def row_line(row: MeasurementRow) -> str:
    """The row as one line of the file, without its line end."""
    return json.dumps(row.as_dict(), separators=(",", ":"), allow_nan=False)


def content_sha256(rows: Iterable[MeasurementRow]) -> str:
    """A hash of what the rows say, whatever their order."""
    digest = hashlib.sha256()
    for line in sorted(row_line(row) for row in rows):
        digest.update(line.encode())
        digest.update(b"\n")
    return digest.hexdigest()


_KEYS: Final = frozenset({
    "schema_version", "run_id", "gpu_uuid_hash", "gpu_product", "sm", "vbios", "driver", "cuda",
    "torch", "image_digest", "kernel_source_sha256", "power_limit_w", "sm_clock_lock_mhz",
    "section", "kernel_class", "dtype", "shape", "l2_state", "timing_mode", "implementation",
    "data_dist", "n_iter", "latency_ms", "sustained_latency_ms", "tflops", "gbs", "energy_j",
    "power_w", "window_s", "temp_c", "sm_clock_mhz", "throttle_reasons", "quality", "started_at",
})  # fmt: skip


_LATER_KEYS: Final = frozenset({"numeric_fingerprint", "launch_mode", "arrivals_per_s"})
"""Of the same schema; rows of before may lack them."""


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")


def _digits(value: float) -> float:
    """Six significant digits: more than any measurement holds."""
    return float(f"{value:.6g}") if math.isfinite(value) else value


def _part(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = document[key]
    if not isinstance(value, Mapping):
        raise InputError(key, "a mapping", value)
    return value


def _text(document: Mapping[str, Any], key: str) -> str:
    value = document[key]
    if not isinstance(value, str):
        raise InputError(key, "a text", value)
    return value


def _choice(document: Mapping[str, Any], key: str, words: tuple[T, ...]) -> T:
    for word in words:
        if document[key] == word:
            return word
    raise InputError(key, f"one of {words}", document[key])


def _number_or_none(value: object, key: str) -> float | None:
    return None if value is None else require_number(key, value, minimum=0)


def _integer(document: Mapping[str, Any], key: str, minimum: int) -> int:
    value = require_number(key, document[key], minimum=minimum, maximum=2**62)
    if not value.is_integer():
        raise InputError(key, "an integer", document[key])
    return int(value)


def _positive(value: object, key: str, largest: float = 1e9) -> float:
    return require_number(key, value, exclusive_minimum=0, maximum=largest)


def _identity(document: Mapping[str, Any]) -> BenchIdentity:
    lock = _number_or_none(document["sm_clock_lock_mhz"], "sm_clock_lock_mhz")
    return BenchIdentity(
        run_id=_text(document, "run_id"),
        gpu_product=_text(document, "gpu_product"),
        gpu_uuid_hash=_text(document, "gpu_uuid_hash"),
        architecture=_text(document, "sm"),
        vbios=_text(document, "vbios"),
        driver=_text(document, "driver"),
        cuda=_text(document, "cuda"),
        torch=_text(document, "torch"),
        image_digest=_text(document, "image_digest"),
        kernel_source_sha256=_text(document, "kernel_source_sha256"),
        power_limit_watts=require_number(
            "power_limit_w", document["power_limit_w"], minimum=0, maximum=1e5
        ),
        sm_clock_lock_mhz=None if lock is None else int(lock),
        numeric_fingerprint=_text({"numeric_fingerprint": "", **document}, "numeric_fingerprint"),
    )


def _latency(document: Mapping[str, Any]) -> Latency:
    part = _part(document, "latency_ms")
    low, middle, high = (
        _positive(part.get(key), f"latency_ms.{key}") for key in ("p10", "median", "p90")
    )
    if not low <= middle <= high:
        raise InputError("latency_ms", "p10 <= median <= p90", dict(part))
    return Latency(
        median_seconds=middle / 1e3,
        p10_seconds=low / 1e3,
        p90_seconds=high / 1e3,
        relative_std=require_number("latency_ms.rel_std", part.get("rel_std"), minimum=0),
        samples=_integer(document, "n_iter", 1),
    )


def _power(document: Mapping[str, Any]) -> PowerWindow | None:
    if document["power_w"] is None:
        return None
    part = _part(document, "power_w")
    mean, sampled, p99 = (
        _positive(part.get(key), f"power_w.{key}", 1e5)
        for key in ("mean", "sampled", "p99_instant")
    )
    instant = part.get("instant")
    if not isinstance(instant, list):
        raise InputError("power_w.instant", "a list of W", instant)
    return PowerWindow(
        instant_watts=tuple(_positive(w, "power_w.instant", 1e5) for w in instant),
        mean_watts=mean,
        sampled_watts=sampled,
        p99_watts=p99,
        energy_joules=_positive(document["energy_j"], "energy_j"),
        window_seconds=_positive(document["window_s"], "window_s"),
        sustained_seconds=_positive(document["sustained_latency_ms"], "sustained_latency_ms") / 1e3,
    )


def _flags(document: Mapping[str, Any]) -> tuple[Flag, ...]:
    flags = _part(document, "quality").get("flags")
    known = get_args(Flag)
    if not isinstance(flags, list) or any(flag not in known for flag in flags):
        raise InputError("quality.flags", f"a list of {known}", flags)
    return tuple(flags)
