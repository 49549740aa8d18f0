"""What a server did under one load, as a row that a serving model can be judged by.

A row is one request-size bucket of one run. Rows say nothing that the file does not: GPU type and
count come from whoever imports it. What no such server can have done is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from capacity.language_models import LanguageModel
from capacity.roofs import Roofs, require_roofs
from wattpack.documents import parse_json
from wattpack.errors import InputError, read_from
from wattpack.units import require_number

SCHEMA: Final = "wattpack.io/serving-measurement/v1"

NARROWEST_BITS: Final = 4
"""Fewest bits a weight that engines serve with; fewer would be a faster roof."""

MOST_TOKENS_PER_STEP: Final = 8
"""Accepted by speculative decoding; published systems stay below 5."""

FASTEST_OVER_FP8: Final = 2.0
"""Rate of 4-bit matrix units over 8-bit ones, where a type has them."""

ROUNDING: Final = 0.02
"""How far a stated rate may be from tokens over seconds: harnesses round and count differently."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds.

    Attributes:
        p99: None where the file gives none.
    """

    mean: float
    p50: float
    p99: float | None

    def check(self, field: str) -> None:
        """Refuse what is no latency.

        Raises:
            InputError: naming the figure.
        """
        require_number(f"{field}.mean", self.mean, minimum=0, maximum=1e5)
        require_number(f"{field}.p50", self.p50, minimum=0, maximum=1e5)
        if self.p99 is not None:
            require_number(f"{field}.p99", self.p99, minimum=self.p50, maximum=1e5)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What holds for the whole run.

    Attributes:
        format: ``vllm`` or ``genai-perf``; ``version`` as far as the file says it.
        gpu: wattpack's name of the type; ``gpus`` serve one replica together.
        concurrency: Requests in flight at most, None where arrivals were free.
        request_rate: Asked for, a second; None where all came at once.
    """

    format: str
    version: str
    model: str
    gpu: str
    gpus: int
    concurrency: int | None
    request_rate: float | None

    def __post_init__(self) -> None:
        require_number("gpus", self.gpus, minimum=1, maximum=4096)
        if self.concurrency is not None:
            require_number("concurrency", self.concurrency, minimum=1, maximum=10**6)
        if self.request_rate is not None:
            require_number("request_rate", self.request_rate, minimum=1e-7, maximum=1e7)


@dataclass(frozen=True, slots=True)
class ServingMeasurement:
    """One bucket of one run.

    Attributes:
        input_tokens: Mean a request; ``output_tokens`` likewise.
        requests: Completed ones of this bucket.
        share: Of the run's completed requests.
        seconds: Of the whole run.
        time_per_output_token: After the first; None where answers have one token.
        output_tokens_per_second: Of this bucket, over the whole run.
    """

    run: RunFacts
    input_tokens: float
    output_tokens: float
    requests: int
    share: float
    seconds: float
    time_to_first_token: Latency
    time_per_output_token: Latency | None
    requests_per_second: float
    output_tokens_per_second: float

    def __post_init__(self) -> None:
        require_number("input_tokens", self.input_tokens, exclusive_minimum=0, maximum=1e8)
        require_number("output_tokens", self.output_tokens, exclusive_minimum=0, maximum=1e8)
        require_number("requests", self.requests, minimum=1)
        require_number("share", self.share, exclusive_minimum=0, maximum=1)
        require_number("seconds", self.seconds, exclusive_minimum=0, maximum=1e7)
        require_number("requests_per_second", self.requests_per_second, exclusive_minimum=0)
        require_number("output_tokens_per_second", self.output_tokens_per_second, minimum=0)
        self.time_to_first_token.check("time_to_first_token")
        if self.time_per_output_token is not None:
            self.time_per_output_token.check("time_per_output_token")

    def document(self) -> dict[str, Any]:
        """As plain values, one JSON line."""
        return {"schema": SCHEMA, **asdict(self)}


def parse_measurements(text: str, source: str = "") -> tuple[ServingMeasurement, ...]:
    """The rows that ``wattpack bench import --out`` wrote, one a line.

    Raises:
        InputError: naming source, line and field of what is cut off, unknown or impossible.
    """
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            with read_from(f"{source}:{number}"):
                rows.append(measurement_of(parse_json(line)))
    if not rows:
        raise InputError("measurements", "at least one row", 0, source)
    return tuple(rows)


def measurement_of(document: object) -> ServingMeasurement:
    """The row behind ``ServingMeasurement.document``.

    Raises:
        InputError: naming the field.
    """
    row = _exactly("row", document, {"schema", *_names(ServingMeasurement)})
    if row.pop("schema") != SCHEMA:
        raise InputError("schema", SCHEMA, document)
    run = RunFacts(**_exactly("run", row.pop("run"), _names(RunFacts)))
    counts = {"run.gpus": run.gpus, "run.concurrency": run.concurrency, "requests": row["requests"]}
    for name, count in counts.items():
        if not isinstance(count, int) and (count is not None or name != "run.concurrency"):
            raise InputError(name, "a whole number", count)
    for name in ("format", "version", "model", "gpu"):
        if not isinstance(getattr(run, name), str):
            raise InputError(f"run.{name}", "a text", getattr(run, name))
    first = _latency("time_to_first_token", row.pop("time_to_first_token"))
    each = row.pop("time_per_output_token")
    token = None if each is None else _latency("time_per_output_token", each)
    return ServingMeasurement(
        run=run, time_to_first_token=first, time_per_output_token=token, **row
    )


def _latency(field: str, document: object) -> Latency:
    return Latency(**_exactly(field, document, _names(Latency)))


def _names(kind: type) -> set[str]:
    return {one.name for one in fields(kind)}


def _exactly(field: str, document: object, names: set[str]) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise InputError(field, "a mapping", document)
    for key in sorted(set(document) ^ names, key=str):
        expected = "a known key" if key in document else "a value"
        raise InputError(f"{field}.{key}", expected, document.get(key))
    return dict(document)


def require_close(field: str, stated: float, counted: float) -> None:
    """Pass a rate that agrees with what was counted.

    Raises:
        InputError: naming the rate and what it should be.
    """
    if abs(stated - counted) > ROUNDING * max(abs(counted), 1e-9):
        raise InputError(field, f"about {counted:.4g}, as counts over seconds say", stated)


def require_possible(
    rows: Iterable[ServingMeasurement], models: Mapping[str, LanguageModel]
) -> list[str]:
    """Pass rows of one run that its GPUs can have served; the models that were not known.

    Only what holds for every engine counts against a row: prompts may come from a cache, weights
    may be narrow and steps may yield several tokens.

    Raises:
        InputError: a throughput above the roof of operations, or a token sooner than the active
            weights can be read.
    """
    known = list(rows)
    unknown = sorted({row.run.model for row in known} - set(models))
    runs = {row.run for row in known if row.run.model in models}
    for run in runs:
        mine = [row for row in known if row.run == run]
        _require_below_roofs(mine, models[run.model], require_roofs(run.gpu))
    return unknown


def _require_below_roofs(
    rows: list[ServingMeasurement], model: LanguageModel, roofs: Roofs
) -> None:
    gpus = rows[0].run.gpus
    peak = max(roofs.peak_flops.values()) * FASTEST_OVER_FP8 * gpus
    most = peak / (2 * model.active_parameters)
    served = sum(row.output_tokens_per_second for row in rows)
    if served > most:
        raise InputError(
            "output_tokens_per_second", f"at most {most:.0f} on {gpus} {roofs.model}", served
        )
    read = model.active_parameters * NARROWEST_BITS / 8
    least = read / (roofs.bytes_per_second * gpus * MOST_TOKENS_PER_STEP)
    for row in rows:
        token = row.time_per_output_token
        if token is not None and token.mean < least:
            raise InputError(
                "time_per_output_token.mean", f"at least {least:.3g} s on {gpus} {roofs.model}",
                token.mean,
            )  # fmt: skip
