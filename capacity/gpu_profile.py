"""One GPU type's constants: power when idle and busy, and what a power cap costs each kernel class.

Nothing in here is a guess without saying so: each figure carries its source and one of three
words. ``measured``: read from a licensed data file in ``capacity/reference``. ``derived``: a
measurement of another GPU or kernel, transferred by a stated rule. ``assumed``: neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, get_args

from wattpack.errors import InputError, read_from
from wattpack.units import require_number

Provenance = Literal["measured", "derived", "assumed"]

KERNEL_CLASSES: Final = ("prefill", "decode", "training", "batch", "idle")
"""Kernel classes in the order of the arrays of ``capacity.capacity_table``."""


@dataclass(frozen=True, slots=True)
class KernelClass:
    """How one class of work draws power and slows down under a cap.

    Attributes:
        power_p50_watts: Median board draw without a cap.
        power_p95_watts: 95th percentile of the board draw without a cap.
        power_provenance: Where the two draws come from.
        power_source: The data file and selection, in words.
        power_samples: Number of values behind the draws; 0 when not measured on this type.
        cap_fractions: Cap as a share of the default limit, ascending, shape (n,).
        throughput: Throughput at each cap relative to uncapped, in (0, 1], shape (n,).
        draw: Mean draw at each cap relative to ``power_p50_watts``, in (0, 1], shape (n,).
        curve_provenance: Where throughput and draw come from.
        curve_source: The data file and the rule, in words.
        curve_samples: Number of sweep rows behind the curve.
        error_mape: Mean absolute relative error of throughput where the cap binds.
        error_kind: What was held out to measure the error.
        power_error: Mean absolute relative error of the draw that the model predicts where the
            limit does not set it, held out; None where nothing was.
        time_error: The same of the time, at the default limit.
    """

    power_p50_watts: float
    power_p95_watts: float
    power_provenance: Provenance
    power_source: str
    power_samples: int
    cap_fractions: tuple[float, ...]
    throughput: tuple[float, ...]
    draw: tuple[float, ...]
    curve_provenance: Provenance
    curve_source: str
    curve_samples: int
    error_mape: float
    error_kind: str
    power_error: float | None = None
    time_error: float | None = None

    @property
    def provenance(self) -> Provenance:
        """The weaker of the two provenances."""
        order = get_args(Provenance)
        weaker: Provenance = max(self.power_provenance, self.curve_provenance, key=order.index)
        return weaker


@dataclass(frozen=True, slots=True)
class GpuProfile:
    """The constants of one GPU type (board power, watts; clocks, MHz).

    Attributes:
        model: wattpack's own name, for example ``H200-SXM``.
        product_names: The driver's product names that mean this type.
        idle_watts: Board draw with no process.
        context_watts: Board draw with an idle CUDA context.
        min_limit_watts: Lowest settable power limit; the driver's answer wins at run time.
        default_limit_watts: Limit after a driver load.
        max_limit_watts: Highest settable limit.
        max_clock_mhz: Highest SM clock.
        knee_watts: Default floor: lowest cap at which training keeps 85 % of its throughput.
        kernel_classes: One entry per name in ``KERNEL_CLASSES``.
        sources: Where the scalar figures come from, by field name.
    """

    model: str
    product_names: tuple[str, ...]
    idle_watts: float
    context_watts: float
    min_limit_watts: float
    default_limit_watts: float
    max_limit_watts: float
    max_clock_mhz: float
    knee_watts: float
    kernel_classes: Mapping[str, KernelClass]
    sources: Mapping[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values, the input of ``profile_from_dict``."""
        document = asdict(self)
        document["product_names"] = list(self.product_names)
        for name, kernel in document["kernel_classes"].items():
            document["kernel_classes"][name] = {
                key: list(value) if isinstance(value, tuple) else value
                for key, value in kernel.items()
            }
        return document


def profile_from_dict(document: object, source: str = "") -> GpuProfile:
    """The profile in a JSON document, with every value checked.

    Raises:
        InputError: naming the field, for unknown or missing keys, wrong types, NaN, bad order.
    """
    with read_from(source):
        return _profile_from_dict(document)


def _profile_from_dict(document: object) -> GpuProfile:
    fields = _exact_keys(document, GpuProfile, "profile")
    model = _text(fields["model"], "model")
    numbers = {
        name: require_number(f"{model}.{name}", fields[name], exclusive_minimum=0, maximum=1e5)
        for name in (
            "idle_watts",
            "context_watts",
            "min_limit_watts",
            "default_limit_watts",
            "max_limit_watts",
            "max_clock_mhz",
            "knee_watts",
        )
    }
    _check_order(model, numbers)
    classes = fields["kernel_classes"]
    if not isinstance(classes, Mapping) or set(classes) != set(KERNEL_CLASSES):
        raise InputError(f"{model}.kernel_classes", f"exactly {KERNEL_CLASSES}", classes)
    names = fields["product_names"]
    if not isinstance(names, Sequence) or isinstance(names, str) or not names:
        raise InputError(f"{model}.product_names", "a list with a name", names)
    sources = fields["sources"]
    if not isinstance(sources, Mapping):
        raise InputError(f"{model}.sources", "a mapping of field to text", sources)
    return GpuProfile(
        model=model,
        product_names=tuple(_text(name, f"{model}.product_names") for name in names),
        kernel_classes={
            name: _kernel_from_dict(classes[name], f"{model}.kernel_classes.{name}")
            for name in KERNEL_CLASSES
        },
        sources={str(key): _text(value, f"{model}.sources") for key, value in sources.items()},
        **numbers,
    )


def _check_order(model: str, numbers: Mapping[str, float]) -> None:
    """Idle below context below default limit; knee between the limits."""
    order = [
        ("idle_watts", "context_watts"),
        ("context_watts", "default_limit_watts"),
        ("min_limit_watts", "knee_watts"),
        ("knee_watts", "default_limit_watts"),
        ("default_limit_watts", "max_limit_watts"),
    ]
    for low, high in order:
        if numbers[low] > numbers[high]:
            raise InputError(
                f"{model}.{low}", f"at most {high} = {numbers[high]:g} W", numbers[low]
            )


def _kernel_from_dict(document: object, path: str) -> KernelClass:
    """One kernel class, checked."""
    fields = _exact_keys(document, KernelClass, path)
    arrays = {
        name: _unit_array(fields[name], f"{path}.{name}")
        for name in ("cap_fractions", "throughput", "draw")
    }
    if len({len(values) for values in arrays.values()}) != 1 or len(arrays["draw"]) < 2:
        raise InputError(path, "three arrays of one length, at least 2", arrays)
    if any(
        b <= a for a, b in zip(arrays["cap_fractions"], arrays["cap_fractions"][1:], strict=False)
    ):
        raise InputError(f"{path}.cap_fractions", "ascending values", arrays["cap_fractions"])
    p50 = require_number(f"{path}.power_p50_watts", fields["power_p50_watts"], exclusive_minimum=0)
    for name in ("power_provenance", "curve_provenance"):
        if fields[name] not in get_args(Provenance):
            raise InputError(f"{path}.{name}", f"one of {get_args(Provenance)}", fields[name])
    for name in ("power_samples", "curve_samples"):
        require_number(f"{path}.{name}", fields[name], minimum=0)
    return KernelClass(
        power_p50_watts=p50,
        power_p95_watts=require_number(
            f"{path}.power_p95_watts",
            fields["power_p95_watts"],
            minimum=p50,
            maximum=1e5,
        ),
        power_provenance=fields["power_provenance"],
        power_source=_text(fields["power_source"], f"{path}.power_source"),
        power_samples=int(fields["power_samples"]),
        curve_provenance=fields["curve_provenance"],
        curve_source=_text(fields["curve_source"], f"{path}.curve_source"),
        curve_samples=int(fields["curve_samples"]),
        error_mape=require_number(
            f"{path}.error_mape", fields["error_mape"], minimum=0, maximum=10
        ),
        error_kind=_text(fields["error_kind"], f"{path}.error_kind"),
        power_error=_share_or_none(fields["power_error"], f"{path}.power_error"),
        time_error=_share_or_none(fields["time_error"], f"{path}.time_error"),
        **arrays,
    )


def _exact_keys(document: object, kind: type, path: str) -> Mapping[str, Any]:
    """The mapping, when its keys are exactly the dataclass's fields."""
    if not isinstance(document, Mapping):
        raise InputError(path, "a mapping", document)
    wanted = set(kind.__dataclass_fields__)  # type: ignore[attr-defined]
    for key in sorted(set(document) ^ wanted, key=str):
        expected = "a known key" if key in document else "a value"
        raise InputError(f"{path}.{key}", expected, document.get(key))
    return document


def _unit_array(value: object, path: str) -> tuple[float, ...]:
    """Numbers in (0, 1]."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise InputError(path, "a list of numbers", value)
    return tuple(
        require_number(f"{path}[{i}]", item, exclusive_minimum=0, maximum=1)
        for i, item in enumerate(value)
    )


def _share_or_none(value: object, path: str) -> float | None:
    """A share of at least 0, or nothing."""
    return None if value is None else require_number(path, value, minimum=0, maximum=10)


def _text(value: object, path: str) -> str:
    """A non-empty string."""
    if not isinstance(value, str) or not value:
        raise InputError(path, "a non-empty text", value)
    return value
