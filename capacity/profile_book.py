"""What each GPU type draws, for every process: GPUProfile objects over the shipped profiles.

GPUProfile objects ──refuse or take──┐
shipped library ─────────────────────┴─> ProfileBook ──> controller (floors), planner (watts)

An object replaces the shipped profile of each product name that it claims. What contradicts itself,
another object or the shipped limits is refused by the field's name, and the last good profile of
that object stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType

from capacity.gpu_profile import GpuProfile, KernelClass
from capacity.interference.pair_model import PairRow, SharedJob
from capacity.profile_errors import UnknownGpuModel
from capacity.profile_library import ProfileLibrary, normal_name
from wattpack.api import GPUProfile
from wattpack.api.inventory import GPUProfileSpec, KernelClassSpec
from wattpack.errors import InputError
from wattpack.kube.port import JsonObject

__all__ = ["ProfileBook", "ProfileRefusal"]

# No GPU board takes this much; a larger number is in milliwatts.
SIMULATED_ANNOTATION = "wattpack.io/simulated"
"""Of GPUProfiles that ``wattpack bench profile --allow-simulated`` made."""

_MILLIWATTS_FROM_WATTS = 5000.0
# A board sold under one name does not take twice, or half, of what was measured of it.
_LIMIT_FACTOR = 2.0
# A 95th percentile beyond the limit by more than measured overshoot (1.05: docs/architecture.md,
# Words) and a sensor error of 5 % is another board's.
_P95_OVER_LIMIT = 1.10


@dataclass(frozen=True, slots=True)
class ProfileRefusal:
    """Why a GPUProfile's newest spec is not used."""

    name: str
    message: str
    generation: int


@dataclass(frozen=True, slots=True)
class ProfileBook:
    """All GPU types that are known now.

    Attributes:
        library: What is shipped.
        taken: Last good profile of each GPUProfile object, by the object's name.
        refusals: Of newest specs, by the object's name.
        shared_pairs: Measured members of pairs that share a board, by GPU type.
    """

    library: ProfileLibrary
    taken: Mapping[str, GpuProfile] = field(default_factory=dict)
    refusals: Mapping[str, ProfileRefusal] = field(default_factory=dict)
    shared_pairs: Mapping[str, tuple[PairRow, ...]] = field(default_factory=dict)
    _by_name: Mapping[str, GpuProfile] = field(default_factory=dict)

    @classmethod
    def shipped(cls, library: ProfileLibrary) -> ProfileBook:
        """The book without any object."""
        return cls(library).with_objects(())

    def with_objects(self, bodies: Iterable[JsonObject]) -> ProfileBook:
        """The book of these objects; of one that is refused its last good profile stays."""
        taken: dict[str, GpuProfile] = {}
        refusals: dict[str, ProfileRefusal] = {}
        pairs: dict[str, tuple[PairRow, ...]] = {}
        owner: dict[str, str] = {}
        for body in sorted(bodies, key=lambda b: str(b["metadata"]["name"])):
            name = str(body["metadata"]["name"])
            try:
                profile, rows = self._judged(body, owner)
            except InputError as error:
                generation = int(body["metadata"].get("generation", 0))
                refusals[name] = ProfileRefusal(name, str(error), generation)
                if name not in self.taken:
                    continue
                profile = self.taken[name]
                rows = self.shared_pairs.get(profile.model, ())
            taken[name] = profile
            pairs[profile.model] = rows
            owner.update(dict.fromkeys(_names(profile), name))
        by_name = {n: p for p in self.library.profiles.values() for n in _names(p)}
        by_name |= {n: p for p in taken.values() for n in _names(p)}
        return replace(
            self,
            taken=MappingProxyType(taken),
            refusals=MappingProxyType(refusals),
            shared_pairs=MappingProxyType({model: rows for model, rows in pairs.items() if rows}),
            _by_name=MappingProxyType(by_name),
        )

    def find(self, name: str) -> GpuProfile:
        """The profile for a model name, a driver product name or its node-label spelling.

        Raises:
            UnknownGpuModel: rather than a near match; a PCIe card is not its SXM sister.
        """
        profile = self._by_name.get(normal_name(name))
        if profile is None:
            raise UnknownGpuModel(name, self._by_name)
        return profile

    def items(self) -> Iterator[tuple[str, GpuProfile]]:
        """Every normalised name with the profile that counts for it."""
        yield from self._by_name.items()

    def profiles(self) -> list[GpuProfile]:
        """Those that count for any name, each once."""
        return list({id(p): p for p in self._by_name.values()}.values())

    def _judged(
        self, body: JsonObject, owner: Mapping[str, str]
    ) -> tuple[GpuProfile, tuple[PairRow, ...]]:
        parsed = GPUProfile.read(body)
        spec, source = parsed.spec, f"GPUProfile {parsed.name}"
        marked = (body["metadata"].get("annotations") or {}).get(SIMULATED_ANNOTATION)
        if marked is not None:
            wanted = "none: a profile of simulated rows holds for no board"
            raise InputError(f"metadata.annotations.{SIMULATED_ANNOTATION}", wanted, marked, source)
        for name in (spec.model, *spec.product_names):
            other = owner.get(normal_name(name), parsed.name)
            if other != parsed.name:
                raise InputError("spec.productNames", f"a name that {other} lacks", name, source)
        shipped = self._shipped(spec)
        _require_sense(spec, shipped, source)
        return _profile(spec, shipped, source), _pair_rows(spec, source)

    def _shipped(self, spec: GPUProfileSpec) -> GpuProfile | None:
        for name in (spec.model, *spec.product_names):
            try:
                return self.library.find(name)
            except UnknownGpuModel:
                continue
        return None


def _names(profile: GpuProfile) -> list[str]:
    return [normal_name(name) for name in (profile.model, *profile.product_names)]


def _pair_rows(spec: GPUProfileSpec, source: str) -> tuple[PairRow, ...]:
    """Both members of each measured pair, of a job beside its like one.

    Raises:
        InputError: naming a pair that is stated twice, or that contradicts itself.
    """
    rows: dict[tuple[SharedJob, SharedJob], PairRow] = {}
    for index, pair in enumerate(spec.shared_pairs):
        field_name = f"spec.sharedPairs[{index}]"
        one = SharedJob(pair.workload, pair.batch_size)
        other = SharedJob(pair.beside, pair.beside_batch_size)
        if (one, other) in rows:
            raise InputError(field_name, "each pair once", [pair.workload, pair.beside], source)
        if one == other and pair.speed != pair.beside_speed:
            both = [pair.speed, pair.beside_speed]
            raise InputError(f"{field_name}.besideSpeed", "equal speeds of equals", both, source)
        rows[one, other] = PairRow(one, other, pair.speed)
        rows[other, one] = PairRow(other, one, pair.beside_speed)
    return tuple(rows.values())


def _require_sense(spec: GPUProfileSpec, shipped: GpuProfile | None, source: str) -> None:
    """Pass a profile of one board that agrees with itself and with what was measured.

    Raises:
        InputError: naming the field.
    """
    limit = spec.max_limit_watts
    if limit > _MILLIWATTS_FROM_WATTS:
        raise InputError("spec.maxLimitWatts", "watts of one GPU, not milliwatts", limit, source)
    if shipped is not None:
        known = shipped.max_limit_watts
        if not known / _LIMIT_FACTOR < limit < known * _LIMIT_FACTOR:
            wanted = f"one GPU's watts, within a factor of 2 of {known:g} W"
            raise InputError("spec.maxLimitWatts", wanted, limit, source)
    if not spec.idle_watts < spec.default_limit_watts:
        raise InputError("spec.idleWatts", "below defaultLimitWatts", spec.idle_watts, source)
    if not spec.min_limit_watts <= spec.knee_watts <= spec.default_limit_watts:
        wanted = "between minLimitWatts and defaultLimitWatts"
        raise InputError("spec.kneeWatts", wanted, spec.knee_watts, source)
    for kernel in spec.kernel_classes:
        _require_sense_of_class(kernel, limit, source)


def _require_sense_of_class(kernel: KernelClassSpec, limit_watts: float, source: str) -> None:
    path = f"spec.kernelClasses[{kernel.name}]"
    if kernel.power_p95_watts > _P95_OVER_LIMIT * limit_watts:
        wanted = f"at most 1.1 of maxLimitWatts = {limit_watts:g} W"
        raise InputError(f"{path}.powerP95Watts", wanted, kernel.power_p95_watts, source)
    caps, work = kernel.cap_fractions, kernel.throughput_fractions
    if caps[0] <= 0.0 or any(a >= b for a, b in pairwise(caps)):
        raise InputError(f"{path}.capFractions", "shares above 0 that rise", caps, source)
    if any(a > b for a, b in pairwise(work)):
        raise InputError(f"{path}.throughputFractions", "shares that never fall", work, source)


def _profile(spec: GPUProfileSpec, shipped: GpuProfile | None, source: str) -> GpuProfile:
    context = spec.idle_watts if shipped is None else shipped.context_watts
    return GpuProfile(
        model=spec.model,
        product_names=tuple(spec.product_names),
        idle_watts=spec.idle_watts,
        context_watts=max(spec.idle_watts, min(context, spec.default_limit_watts)),
        min_limit_watts=spec.min_limit_watts,
        default_limit_watts=spec.default_limit_watts,
        max_limit_watts=spec.max_limit_watts,
        max_clock_mhz=float(spec.max_clock_mhz),
        knee_watts=spec.knee_watts,
        kernel_classes={k.name: _kernel(k, spec, source) for k in spec.kernel_classes},
        sources={"all": source},
    )


def _kernel(kernel: KernelClassSpec, spec: GPUProfileSpec, source: str) -> KernelClass:
    """The class with the one curve that an object does not carry: draw follows the cap."""
    median = kernel.power_p50_watts
    caps = tuple(kernel.cap_fractions)
    origin = kernel.source or source
    return KernelClass(
        power_p50_watts=median,
        power_p95_watts=kernel.power_p95_watts,
        power_provenance=kernel.provenance,
        power_source=origin,
        power_samples=0,
        cap_fractions=caps,
        throughput=tuple(kernel.throughput_fractions),
        draw=tuple(min(1.0, cap * spec.default_limit_watts / median) for cap in caps),
        curve_provenance=kernel.provenance,
        curve_source=origin,
        curve_samples=0,
        error_mape=kernel.error_fraction or 0.0,
        error_kind="as the object states",
        power_error=kernel.power_error_fraction,
        time_error=kernel.time_error_fraction,
    )
