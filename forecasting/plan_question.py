"""A CapacityPlan with everything that its answer rests on; each spec is read and checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from capacity.mix.mix_question import Knowledge, demand_of, problem_of
from capacity.mix.predicted_rates import RatePredictor
from capacity.profile_book import ProfileBook
from forecasting.forecast_book import ForecastBook
from forecasting.plan_due import LOWER_SECONDS, Outlooks, digest_of, outlooks_of, parts_of
from forecasting.plan_lengths import PlannedLength, planned_lengths, spec_with
from wattpack.api.capacity_plan import CapacityPlan, CapacityPlanStatus
from wattpack.api.capacity_question import CapacityPlanSpec
from wattpack.errors import InputError
from wattpack.kube.port import JsonObject

__all__ = ["PlanQuestion", "QuestionReader"]

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """What to solve.

    Attributes:
        plan: With the status that was said last, and the lengths that are planned for.
        outlooks: What its forecasts say.
        demand: Requests per second by bucket.
        digest: Of all else that the answer rests on.
        lengths: Of answers that a forecast is asked for, by bucket.
    """

    plan: CapacityPlan
    outlooks: Outlooks
    demand: Mapping[str, float]
    digest: str
    lengths: Mapping[str, PlannedLength]


@dataclass(frozen=True, slots=True)
class _Read:
    """One generation of one object: its spec, or why it cannot be used."""

    uid: str
    generation: int
    plan: CapacityPlan | None
    error: InputError | None


@dataclass(frozen=True, slots=True)
class _Digest:
    """Of one generation with these lengths, as long as the GPU types are the same."""

    mark: tuple[int, tuple[int, ...]]
    gpu_types: ProfileBook
    digest: str


class QuestionReader:
    """Reads plans; what depends on spec and GPU types alone is kept until these change.

    Args:
        predictor: Rates of language models; None: only rates that shapes give.
        lower_seconds: From an answer to one for shorter lengths.
    """

    def __init__(
        self, predictor: RatePredictor | None, lower_seconds: float = LOWER_SECONDS
    ) -> None:
        self._predictor, self._lower_seconds = predictor, lower_seconds
        self._read: dict[Key, _Read] = {}
        self._digests: dict[Key, _Digest] = {}

    def question(
        self,
        body: JsonObject,
        status: CapacityPlanStatus,
        book: ForecastBook,
        gpu_types: ProfileBook,
        now_seconds: float,
    ) -> PlanQuestion:
        """The object's question as it is now.

        Args:
            body: As the API gave it.
            status: What was said last.
            book: Forecasts.
            gpu_types: Every GPU type that is known.
            now_seconds: Unix time.

        Raises:
            InputError: naming what of the spec cannot be used.
        """
        metadata = body["metadata"]
        key = (str(metadata.get("namespace", "")), str(metadata["name"]))
        plan = self._plan(key, body).model_copy(update={"status": status})
        outlooks = outlooks_of(plan, book, now_seconds)
        lengths = planned_lengths(plan, outlooks.lengths, now_seconds, self._lower_seconds)
        plan = plan.model_copy(update={"spec": spec_with(plan.spec, lengths)})
        demand = demand_of(plan.spec, outlooks.rates)
        tokens = tuple(one.tokens for one in lengths.values())
        digest = self._digest(key, plan, gpu_types, tokens)
        return PlanQuestion(plan, outlooks, demand, digest, lengths)

    def forget(self, key: Key) -> None:
        """Drop what is known of an object that is gone."""
        self._read.pop(key, None)
        self._digests.pop(key, None)

    def _plan(self, key: Key, body: JsonObject) -> CapacityPlan:
        metadata = body["metadata"]
        mark = str(metadata.get("uid", "")), int(metadata.get("generation", 0))
        kept = self._read.get(key)
        if kept is None or (kept.uid, kept.generation) != mark:
            try:
                kept = _Read(*mark, self._checked(body), None)
            except InputError as error:
                kept = _Read(*mark, None, error)
            self._read[key] = kept
            self._digests.pop(key, None)
        if kept.plan is None:
            raise kept.error or InputError("spec", "a readable one", None)
        return kept.plan

    def _checked(self, body: JsonObject) -> CapacityPlan:
        """The plan, checked as far as that is cheap: with predicted rates only its names."""
        plan = CapacityPlan.read({name: part for name, part in body.items() if name != "status"})
        spec = plan.spec
        if spec.serving is None:
            source = f"CapacityPlan {plan.name}"
            problem_of(spec, source, Knowledge(forecasts=_some_demand(spec)))
        elif self._predictor is not None:
            models = sorted({offer.gpu_model for offer in spec.offers})
            self._predictor.require(spec.serving.language_model, models)
        return plan

    def _digest(
        self, key: Key, plan: CapacityPlan, gpu_types: ProfileBook, tokens: tuple[int, ...]
    ) -> str:
        kept = self._digests.get(key)
        mark = plan.generation, tokens
        if kept is None or kept.mark != mark or kept.gpu_types is not gpu_types:
            predictor = self._predictor.digest() if self._predictor else ""
            kept = _Digest(mark, gpu_types, digest_of(plan.spec, gpu_types, predictor))
            self._digests[key] = kept
        return kept.digest


def _some_demand(spec: CapacityPlanSpec) -> dict[tuple[str, str], float]:
    """Something for each forecast: a demand of nothing would hide what is wrong with a bucket."""
    asked = [part.forecast for part in parts_of(spec) if part.forecast]
    return {(one.name, one.mark): 1.0 for one in asked}
