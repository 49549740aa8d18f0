"""Result files of other benchmarks as serving measurements.

``vllm``: what ``vllm bench serve --save-result`` writes (``benchmark_serving.py`` before it): one
JSON object, or one a line with ``--append-result``; with ``--save-detailed`` every request's
lengths and times, from which buckets are made. ``genai-perf``: ``profile_export_genai_perf.json``
and its successor's ``profile_export_aiperf.json``: statistics by metric, each with its unit.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np

from capacity.catalogue.serving_measurement import (
    Latency,
    RunFacts,
    ServingMeasurement,
    require_close,
)
from wattpack.documents import parse_json
from wattpack.errors import InputError, read_from
from wattpack.units import require_number

Format = Literal["vllm", "genai-perf"]

MOST_FAILED: Final = 0.01
"""Share of failed requests above which latencies are of those that were lucky."""

_UNIT_SECONDS: Final = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "us": 1e-6, "ns": 1e-9}
_VLLM_NEEDED: Final = (
    "model_id", "num_prompts", "duration", "completed", "total_input_tokens",
    "total_output_tokens", "request_throughput", "output_throughput", "mean_ttft_ms",
    "median_ttft_ms", "mean_tpot_ms", "median_tpot_ms",
)  # fmt: skip


def read_results(
    text: str, file_format: Format, gpu: str, gpus: int, source: str = ""
) -> tuple[ServingMeasurement, ...]:
    """The measurements of one file.

    Args:
        gpu: wattpack's name of the type that served; the files do not tell.
        gpus: That served one replica together.

    Raises:
        InputError: naming the file and what is missing, of two versions, or impossible.
    """
    with read_from(source):
        if file_format == "vllm":
            return tuple(_vllm(text, gpu, gpus, source))
        return (_genai_perf(_mapping("file", parse_json(text)), gpu, gpus),)


def _vllm(text: str, gpu: str, gpus: int, source: str) -> Iterator[ServingMeasurement]:
    objects = _objects(text)
    shapes = {frozenset(made) & _VLLM_VERSIONED for made in objects}
    if len(shapes) > 1:
        raise InputError("file", "results of one version of the benchmark", "several")
    for index, made in enumerate(objects):
        with read_from(f"{source}: result {index + 1}" if len(objects) > 1 else source):
            yield from _vllm_run(made, gpu, gpus)


_VLLM_VERSIONED: Final = frozenset(
    {"failed", "request_goodput", "request_goodput:", "max_concurrent_requests", "endpoint_type"}
)
"""Keys that releases of the benchmark added, renamed or mended."""


def _objects(text: str) -> list[Mapping[str, Any]]:
    """One object, or one a line."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise InputError("file", "a result", "nothing")
    if len(lines) > 1 and all(line.lstrip().startswith("{") for line in lines):
        return [_mapping(f"line {i + 1}", parse_json(line)) for i, line in enumerate(lines)]
    return [_mapping("file", parse_json(text))]


def _vllm_run(made: Mapping[str, Any], gpu: str, gpus: int) -> Iterator[ServingMeasurement]:
    for key in _VLLM_NEEDED:
        if key not in made:
            raise InputError(key, "a value: is the file cut off, or of another benchmark?", None)
    completed = int(require_number("completed", made["completed"], minimum=1))
    asked = require_number("num_prompts", made["num_prompts"], minimum=completed)
    if asked - completed > MOST_FAILED * asked:
        raise InputError("completed", f"nearly all of the {asked:.0f} requests", completed)
    seconds = require_number("duration", made["duration"], exclusive_minimum=0)
    tokens = require_number("total_output_tokens", made["total_output_tokens"], minimum=1)
    prompts = require_number("total_input_tokens", made["total_input_tokens"], minimum=1)
    rate = require_number("request_throughput", made["request_throughput"], minimum=0)
    output = require_number("output_throughput", made["output_throughput"], minimum=0)
    require_close("request_throughput", rate, completed / seconds)
    require_close("output_throughput", output, tokens / seconds)
    run = _vllm_facts(made, gpu, gpus)
    buckets = _vllm_buckets(made, run, seconds)
    if buckets:
        yield from buckets
        return
    yield ServingMeasurement(
        run, prompts / completed, tokens / completed, completed, 1.0, seconds,
        _vllm_latency(made, "ttft"),
        _vllm_latency(made, "tpot") if tokens > completed else None, rate, output,
    )  # fmt: skip


def _vllm_facts(made: Mapping[str, Any], gpu: str, gpus: int) -> RunFacts:
    concurrency, rate = made.get("max_concurrency"), made.get("request_rate", "inf")
    free = rate in ("inf", None) or rate == math.inf
    return RunFacts(
        format="vllm",
        version="with failures counted" if "failed" in made else "without failures counted",
        model=str(made["model_id"]),
        gpu=gpu,
        gpus=gpus,
        concurrency=None if concurrency is None else int(_number("max_concurrency", concurrency)),
        request_rate=None if free else _number("request_rate", rate),
    )


def _vllm_latency(made: Mapping[str, Any], name: str) -> Latency:
    p99 = made.get(f"p99_{name}_ms")
    return Latency(
        _number(f"mean_{name}_ms", made[f"mean_{name}_ms"]) / 1e3,
        _number(f"median_{name}_ms", made[f"median_{name}_ms"]) / 1e3,
        None if p99 is None else _number(f"p99_{name}_ms", p99) / 1e3,
    )


def _vllm_buckets(
    made: Mapping[str, Any], run: RunFacts, seconds: float
) -> list[ServingMeasurement]:
    """By powers of two of input and output tokens; none without the requests' own figures."""
    names = ("input_lens", "output_lens", "ttfts", "itls")
    lists = [made.get(name) for name in names]
    if any(values is None for values in lists):
        return []
    asked = int(made["num_prompts"])
    for name, values in zip(names, lists, strict=True):
        if not isinstance(values, list) or len(values) != asked:
            raise InputError(name, f"one entry for each of {asked} requests", values)
    groups: dict[tuple[int, int], list[tuple[float, float, float, list[float]]]] = defaultdict(list)
    for index, (prompt, answer, first, gaps) in enumerate(zip(*lists, strict=True)):
        if not answer:
            continue
        where = f"request {index + 1}"
        if not isinstance(gaps, list):
            raise InputError(f"itls[{index}]", "the times between a request's tokens", gaps)
        prompt, answer = _number(f"{where} input", prompt), _number(f"{where} output", answer)
        gaps = [_number(f"{where} token time", gap) for gap in gaps]
        key = (math.ceil(math.log2(max(prompt, 1))), math.ceil(math.log2(max(answer, 1))))
        groups[key].append((prompt, answer, _number(f"{where} first token", first), gaps))
    done = sum(len(group) for group in groups.values())
    return [_bucket(group, run, seconds, done) for _, group in sorted(groups.items())]


def _bucket(
    group: Sequence[tuple[float, float, float, list[float]]],
    run: RunFacts,
    seconds: float,
    done: int,
) -> ServingMeasurement:
    first = np.array([entry[2] for entry in group])
    # Several tokens may come in one chunk, so the gaps' sum over the tokens is the time of each.
    each = np.array([sum(gaps) / (answer - 1) for _, answer, _, gaps in group if answer > 1])
    tokens = sum(entry[1] for entry in group)
    return ServingMeasurement(
        run, float(np.mean([entry[0] for entry in group])), tokens / len(group), len(group),
        len(group) / done, seconds, _latency(first), _latency(each) if each.size else None,
        len(group) / seconds, tokens / seconds,
    )  # fmt: skip


def _latency(values: np.ndarray[Any, np.dtype[np.float64]]) -> Latency:
    p50, p99 = np.quantile(values, [0.5, 0.99]).tolist()
    return Latency(float(values.mean()), p50, p99)


def _genai_perf(made: Mapping[str, Any], gpu: str, gpus: int) -> ServingMeasurement:
    requests = _statistic(made, "request_count", "avg", needed=False)
    rate = _statistic(made, "request_throughput", "avg")
    output = _statistic(made, "output_token_throughput", "avg")
    prompts = _statistic(made, "input_sequence_length", "avg")
    answers = _statistic(made, "output_sequence_length", "avg")
    assert None not in (rate, output, prompts, answers)
    require_number("request_throughput.avg", rate, exclusive_minimum=0)
    require_close("output_token_throughput.avg", output or 0, (rate or 0) * (answers or 0))
    count = int(require_number("request_count.avg", requests or 1, minimum=1))
    run = RunFacts(
        "genai-perf", _genai_version(made), _genai_model(made), gpu, gpus,
        _genai_load(made, "concurrency"), None,
    )  # fmt: skip
    several = (answers or 0) > 1 and "inter_token_latency" in made
    return ServingMeasurement(
        run, prompts or 0, answers or 0, count, 1.0, count / (rate or 1),
        _genai_latency(made, "time_to_first_token"),
        _genai_latency(made, "inter_token_latency") if several else None, rate or 0, output or 0,
    )  # fmt: skip


def _genai_version(made: Mapping[str, Any]) -> str:
    """``schema_version`` of AIPerf, whose first number has to be known; GenAI-Perf has none."""
    version = made.get("schema_version")
    if version is None:
        return "genai-perf"
    if str(version).partition(".")[0] != "1":
        raise InputError("schema_version", "1.x", version)
    return f"aiperf {version}"


def _genai_model(made: Mapping[str, Any]) -> str:
    asked = _mapping("input_config", made.get("input_config"))
    for key in ("model_names", "models", "model"):
        found: object = asked.get(key)
        if isinstance(found, Mapping):
            found = found.get("items")
        if isinstance(found, list) and len(found) == 1:
            found = found[0]
        if isinstance(found, Mapping):
            found = found.get("name")
        if isinstance(found, str) and found:
            return found
    endpoint = asked.get("endpoint")
    if isinstance(endpoint, Mapping) and endpoint is not made.get("input_config"):
        return _genai_model({"input_config": endpoint})
    raise InputError("input_config.models", "the name of one model", asked.get("models"))


def _genai_load(made: Mapping[str, Any], name: str) -> int | None:
    asked = made["input_config"]
    for place in (asked, asked.get("loadgen"), asked.get("perf_analyzer", {}).get("stimulus")):
        if isinstance(place, Mapping) and isinstance(place.get(name), int | float):
            return int(require_number(name, place[name], minimum=1))
    return None


def _genai_latency(made: Mapping[str, Any], name: str) -> Latency:
    unit = _mapping(name, made.get(name)).get("unit")
    if not isinstance(unit, str) or unit not in _UNIT_SECONDS:
        raise InputError(f"{name}.unit", f"one of {', '.join(_UNIT_SECONDS)}", unit)
    scale = _UNIT_SECONDS[unit]
    mean, p50 = (_statistic(made, name, key) for key in ("avg", "p50"))
    p99 = _statistic(made, name, "p99", needed=False)
    return Latency((mean or 0) * scale, (p50 or 0) * scale, None if p99 is None else p99 * scale)


def _statistic(
    made: Mapping[str, Any], metric: str, name: str, *, needed: bool = True
) -> float | None:
    if metric not in made and not needed:
        return None
    value = _mapping(metric, made.get(metric)).get(name)
    if value is None and not needed:
        return None
    return _number(f"{metric}.{name}", value)


def _number(field: str, value: object) -> float:
    return require_number(field, value, minimum=0)


def _mapping(field: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(field, "a mapping: is the file cut off, or of another benchmark?", value)
    return value
