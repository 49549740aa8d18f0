"""Rates that nobody measured: a ThroughputTable over a serving model, and replicas to go with it.

The predictor speaks of boards (DC watts of one replica's GPUs); a plan of AC watts with the share
of the server. Overshoot 1.05: docs/architecture.md, Words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from capacity.gpu_profile import GpuProfile
from capacity.mix.mix_problem import Phase, ReplicaShape, ServiceRate
from capacity.profile_book import ProfileBook
from wattpack.api.capacity_question import BucketSpec, ServingSpec
from wattpack.errors import InputError

__all__ = [
    "BoardRate",
    "PredictedRates",
    "RateMargin",
    "RatePredictor",
    "RateQuestion",
    "predicted_shapes",
    "start_seconds",
]

#: Of the default limit; those below the board's least are left out.
CAP_SHARES = (1.0, 0.875, 0.75, 0.625, 0.5)
OVERSHOOT = 1.05


@dataclass(frozen=True, slots=True)
class RateQuestion:
    """One replica, one kind of request.

    Attributes:
        takes_watts: Least and largest cap that a board takes, as its profile in force says.
        phase: The whole request, or one half of it on replicas that do nothing else.
        time_to_first_token_seconds: None: any.
        time_per_output_token_seconds: None: any.
    """

    language_model: str
    gpu_model: str
    tensor_parallel: int
    cap_watts: float
    takes_watts: tuple[float, float]
    phase: Phase
    number_format: Literal["fp8", "bf16"]
    input_tokens: int
    output_tokens: int
    time_to_first_token_seconds: float | None
    time_per_output_token_seconds: float | None


@dataclass(frozen=True, slots=True)
class BoardRate:
    """What a replica serves within the limits.

    Attributes:
        requests_per_second: Mean.
        lower_requests_per_second: Lower end of the 90 % interval; 0: nothing is sure.
        board_watts: Mean draw of all boards of the replica while it does this.
    """

    requests_per_second: float
    lower_requests_per_second: float
    board_watts: float


@dataclass(frozen=True, slots=True)
class RateMargin:
    """Where lower rates come from.

    Attributes:
        time_factor: Everything that a replica does is taken to last so many times as long.
        confidence: Share of the runs of an unknown model that lasted no longer.
    """

    time_factor: float
    confidence: float


class RatePredictor(Protocol):
    """Knows what a served language model does on a GPU type under a cap."""

    def digest(self) -> str:
        """Changes when its answers may."""
        ...

    def require(self, language_model: str, gpu_models: Iterable[str]) -> None:
        """Pass what can be predicted.

        Raises:
            InputError: naming the model or GPU type that cannot.
        """
        ...

    def rate(self, question: RateQuestion) -> BoardRate | None:
        """The largest rate within the limits; None: none is."""
        ...

    def margin(self) -> RateMargin:
        """What lower rates allow for."""
        ...

    def start_seconds(
        self, language_model: str, number_format: Literal["fp8", "bf16"], gpus: int
    ) -> float:
        """Until a new replica on so many boards works, on average."""
        ...

    def kv_bytes(self, language_model: str, tokens: int) -> float:
        """KV cache of one request's prompt, over all boards of a replica."""
        ...


@dataclass(frozen=True, slots=True)
class PredictedRates:
    """The table of one language model.

    Attributes:
        serving: What is served, and how DC becomes AC.
        buckets: By name; sizes and limits are theirs.
        gpu_types: Of which the shapes were made.
        predictor: Who knows.
    """

    serving: ServingSpec
    buckets: Mapping[str, BucketSpec]
    gpu_types: ProfileBook
    predictor: RatePredictor

    def rate(self, bucket: str, phase: Phase, shape: ReplicaShape) -> ServiceRate | None:
        """The predicted rate of a bucket that states its sizes."""
        asked = self.buckets[bucket]
        if phase is not Phase.WHOLE and not self._splits(asked, shape):
            return None
        if asked.input_tokens is None or asked.output_tokens is None:
            raise InputError(f"buckets.{bucket}.inputTokens", "sizes, to predict its rates", None)
        profile = self.gpu_types.find(shape.gpu_model)
        found = self.predictor.rate(
            RateQuestion(
                self.serving.language_model,
                shape.gpu_model,
                shape.gpus,
                shape.cap_watts,
                (profile.min_limit_watts, profile.max_limit_watts),
                phase,
                self.serving.number_format,
                asked.input_tokens,
                asked.output_tokens,
                asked.time_to_first_token_seconds,
                asked.time_per_output_token_seconds,
            )
        )
        if found is None:
            return None
        return ServiceRate(
            found.requests_per_second,
            min(found.lower_requests_per_second, found.requests_per_second),
            max(shape.idle_watts, _ac_watts(self.serving, found.board_watts, shape.gpus)),
        )

    def _splits(self, asked: BucketSpec, shape: ReplicaShape) -> bool:
        return asked.splits_phases and shape.link_bytes_per_second is not None


def predicted_shapes(
    serving: ServingSpec,
    gpu_models: Iterable[str],
    gpu_types: ProfileBook,
    predictor: RatePredictor,
) -> list[ReplicaShape]:
    """Replicas of every width and cap of these types: ``H200-SXM@700``, ``H200-SXMx2@700``.

    Types share the list of caps, so each takes those within its own range.

    Raises:
        InputError: for a GPU type without a profile, a cap that none of them takes, or a type that
            takes none of the caps.
    """
    profiles = {model: gpu_types.find(model) for model in gpu_models}
    _refuse_strange_caps(serving.caps_watts, profiles)
    shapes = []
    for model, profile in profiles.items():
        caps = serving.caps_watts or [share * profile.default_limit_watts for share in CAP_SHARES]
        allowed = sorted({round(cap, 1) for cap in caps if _takes(profile, cap)}, reverse=True)
        for gpus in sorted(set(serving.tensor_parallel)):
            width = "" if gpus == 1 else f"x{gpus}"
            link = gpus * serving.link_bytes_per_second_per_gpu or None
            start = start_seconds(serving, predictor, gpus)
            idle = _ac_watts(serving, gpus * profile.context_watts, gpus)
            shapes += [
                ReplicaShape(
                    f"{model}{width}@{cap:g}", model, cap, gpus, idle,
                    max(idle, _ac_watts(serving, gpus * cap * OVERSHOOT, gpus)), {}, link, start,
                )
                for cap in allowed
            ]  # fmt: skip
    return shapes


def start_seconds(serving: ServingSpec | None, predictor: RatePredictor | None, gpus: int) -> float:
    """Until a new replica on so many boards works, on average; 0 where nobody knows."""
    if serving is None or predictor is None:
        return 0.0
    return predictor.start_seconds(serving.language_model, serving.number_format, gpus)


def _refuse_strange_caps(caps: Sequence[float], profiles: Mapping[str, GpuProfile]) -> None:
    ranges = {
        model: f"{model} takes: {profile.min_limit_watts:g} to {profile.max_limit_watts:g} W"
        for model, profile in profiles.items()
    }
    strange = [cap for cap in caps if not any(_takes(p, cap) for p in profiles.values())]
    if profiles and strange:
        raise InputError("serving.capsWatts", f"caps that {'; '.join(ranges.values())}", strange)
    for model, profile in profiles.items():
        if caps and not any(_takes(profile, cap) for cap in caps):
            raise InputError("serving.capsWatts", f"a cap that {ranges[model]}", list(caps))


def _takes(profile: GpuProfile, cap_watts: float) -> bool:
    return profile.min_limit_watts <= cap_watts <= profile.max_limit_watts


def _ac_watts(serving: ServingSpec, board_watts: float, gpus: int) -> float:
    return (board_watts + gpus * serving.server_watts_per_gpu) / serving.supply_efficiency
