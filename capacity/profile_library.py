"""The shipped profiles: loading, checking and looking up by the driver's product name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from capacity.gpu_profile import GpuProfile, profile_from_dict
from capacity.profile_errors import UnknownGpuModel
from capacity.serving_times import ServingTimes, serving_from_dict
from wattpack.documents import read_json
from wattpack.errors import InputError

SCHEMA = "wattpack.io/gpu-profiles/v2"
_KEYS = {"schema", "reference_sha256", "checks", "profiles", "serving"}


@dataclass(frozen=True, slots=True)
class ProfileLibrary:
    """All profiles of one file.

    Attributes:
        profiles: By model name, in the file's order.
        serving: Iteration times of language models, one per GPU, model and parallelism.
        reference_sha256: Hash over the reference data that the file was fitted from.
        checks: Held-out errors that belong to no single GPU, by name.
    """

    profiles: Mapping[str, GpuProfile]
    serving: tuple[ServingTimes, ...]
    reference_sha256: str
    checks: Mapping[str, float]

    def find(self, name: str) -> GpuProfile:
        """The profile for a model name, a driver product name or its node-label spelling.

        Raises:
            UnknownGpuModel: rather than a near match; a PCIe card is not its SXM sister.
        """
        wanted = normal_name(name)
        for profile in self.profiles.values():
            if wanted in {normal_name(known) for known in (profile.model, *profile.product_names)}:
                return profile
        known_names = [n for p in self.profiles.values() for n in (p.model, *p.product_names)]
        raise UnknownGpuModel(name, known_names)


def normal_name(name: str) -> str:
    """Case and the blank-or-dash spelling of node labels do not matter."""
    return name.strip().lower().replace(" ", "-")


def library_from_dict(document: object, source: str = "") -> ProfileLibrary:
    """A checked library; nothing of it is used if any part is refused.

    Raises:
        InputError: naming the field.
    """
    if not isinstance(document, dict):
        raise InputError("document", "a mapping", document, source)
    for key in sorted(set(document) ^ _KEYS, key=str):
        expected = "a known key" if key in document else "a value"
        raise InputError(str(key), expected, document.get(key), source)
    if document["schema"] != SCHEMA:
        raise InputError("schema", SCHEMA, document["schema"], source)
    for key in ("profiles", "serving"):
        if not isinstance(document[key], list) or not document[key]:
            raise InputError(key, "a list with an entry", document[key], source)
    profiles = [profile_from_dict(item, source) for item in document["profiles"]]
    names = [normal_name(n) for p in profiles for n in (p.model, *p.product_names)]
    for name in names:
        if names.count(name) > 1:
            raise InputError("profiles", "each name once", name, source)
    return ProfileLibrary(
        profiles={profile.model: profile for profile in profiles},
        serving=tuple(serving_from_dict(item, source) for item in document["serving"]),
        reference_sha256=str(document["reference_sha256"]),
        checks={str(k): float(v) for k, v in dict(document["checks"]).items()},
    )


def load_library(file: Path) -> ProfileLibrary:
    """The library in a JSON file.

    Raises:
        InputError: if the file cannot be read, is truncated, or holds a refused value.
    """
    document: Any = read_json(file)
    return library_from_dict(document, str(file))


@lru_cache(maxsize=1)
def shipped_library() -> ProfileLibrary:
    """The profiles that come with wattpack (read once)."""
    with resources.as_file(resources.files("capacity") / "data" / "profiles.json") as file:
        return load_library(file)


def settable_watts(gpu: str, gap_watts: float, limit_watts: float) -> tuple[float, float]:
    """Least and largest limit that a board takes.

    A type without a shipped profile has no known least one: no limit below the draw of a board
    between kernels (``gap_watts``) can be held, and none above its default one is known.
    """
    try:
        profile = shipped_library().find(gpu)
    except UnknownGpuModel:
        return gap_watts, limit_watts
    return profile.min_limit_watts, profile.max_limit_watts


def gpu_profile_object(profile: GpuProfile, reference_sha256: str) -> dict[str, Any]:
    """A ``GPUProfile`` object (``wattpack.io/v1alpha1``) as plain values.

    Args:
        profile: What to publish.
        reference_sha256: Hash of the data behind it.
    """
    kernels = profile.kernel_classes
    measured = sorted(name for name, kernel in kernels.items() if kernel.provenance == "measured")
    origin = f"measured: {', '.join(measured)}; rest derived" if measured else "derived"
    return {
        "apiVersion": "wattpack.io/v1alpha1",
        "kind": "GPUProfile",
        "metadata": {"name": profile.model.lower()},
        "spec": {
            "model": profile.model,
            "productNames": list(profile.product_names),
            "idleWatts": profile.idle_watts,
            "minLimitWatts": profile.min_limit_watts,
            "defaultLimitWatts": profile.default_limit_watts,
            "maxLimitWatts": profile.max_limit_watts,
            "kneeWatts": profile.knee_watts,
            "maxClockMhz": round(profile.max_clock_mhz),
            "kernelClasses": [
                {
                    "name": name,
                    "powerP50Watts": kernel.power_p50_watts,
                    "powerP95Watts": kernel.power_p95_watts,
                    "capFractions": list(kernel.cap_fractions),
                    "throughputFractions": list(kernel.throughput),
                    "provenance": kernel.provenance,
                    "errorFraction": kernel.error_mape,
                    "powerErrorFraction": kernel.power_error,
                    "timeErrorFraction": kernel.time_error,
                    "source": f"power: {kernel.power_source}; curve: {kernel.curve_source}",
                }
                for name, kernel in kernels.items()
            ],
            "provenanceHash": reference_sha256,
        },
        "status": {
            "source": origin,
            "errorFraction": max(kernel.error_mape for kernel in kernels.values()),
        },
    }
