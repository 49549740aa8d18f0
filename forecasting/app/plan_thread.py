"""Answers CapacityPlans: judges each new spec at once, then solves one plan at a time.

    plans, forecasts, GPU profiles (informers) ──> due? ──> solve, explain ──> status on change

A solve takes a bounded time in this thread; nothing waits for it. The figures of an earlier answer
stay until there is a better one, and Ready says that they are not of this question.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from capacity.mix.mix_answer import AnswerOptions, answer_mix, status_of
from capacity.mix.mix_question import Knowledge, problem_of
from capacity.mix.predicted_rates import RatePredictor
from capacity.profile_book import ProfileBook
from capacity.profile_library import shipped_library
from forecasting.app.plan_metrics import PlanMetrics
from forecasting.forecast_book import ForecastBook
from forecasting.plan_due import LOWER_SECONDS, has_moved, is_early, reasons_of
from forecasting.plan_lengths import rows_with
from forecasting.plan_question import PlanQuestion, QuestionReader
from forecasting.plan_verdict import PlanVerdict, accepted, refused, said_of, solved, told_of
from forecasting.timed_predictor import TimedPredictor
from wattpack.api.capacity_plan import CapacityPlan, CapacityPlanStatus, PlanReason
from wattpack.clock import Clock
from wattpack.errors import InputError, WattpackError
from wattpack.heartbeat import Heartbeat
from wattpack.kube.informer import Key
from wattpack.kube.port import JsonObject, KubeApi
from wattpack.kube.write_budget import StatusWriter
from wattpack.periodic import PeriodicThread
from wattpack.times import rfc3339
from wattpack.units import NS_PER_SECOND, ns_to_seconds, seconds_to_ns

FIELD_MANAGER: Final = "wattpack-forecaster-plans"
LOOK_SECONDS: Final = 2
RETRY_SECONDS: Final = 600.0
PATIENCE_SECONDS: Final = 1800.0
RESOURCE: Final = CapacityPlan.meta.resource

_GOOD_REASONS: Final = frozenset({PlanReason.SOLVED.value, PlanReason.GAP_LEFT.value})

log = logging.getLogger(__name__)
Bodies = Callable[[], Iterable[JsonObject]]


@dataclass(frozen=True, slots=True)
class PlanSources:
    """Where everything comes from; all shared and not changed here.

    Attributes:
        plans: CapacityPlans.
        forecasts: DemandForecasts.
        gpu_profiles: GPUProfiles.
        predictor: Rates of language models, None: only rates that shapes give.
        are_read: Whether all of them were read: what is missing must not pass for gone.
    """

    plans: Bodies
    forecasts: Bodies
    gpu_profiles: Bodies
    predictor: RatePredictor | None = None
    are_read: Callable[[], bool] = lambda: True


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The last solve that failed, so that it is not repeated for nothing."""

    digest: str
    demand: Mapping[str, float]
    verdict: PlanVerdict
    again_ns: int


class PlanThread(PeriodicThread):
    """Keeps every CapacityPlan answered.

    Args:
        clock: Time.
        kube: Where statuses go.
        sources: Questions and knowledge.
        metrics: Exported after each look.
        options: What one solve may take.
        lower_seconds: From an answer to one for less.
    """

    def __init__(
        self,
        clock: Clock,
        kube: KubeApi,
        sources: PlanSources,
        metrics: PlanMetrics,
        options: AnswerOptions | None = None,
        lower_seconds: float = LOWER_SECONDS,
    ) -> None:
        super().__init__(clock, "capacity-plans", LOOK_SECONDS * NS_PER_SECOND)
        self._lower_seconds = lower_seconds
        self._clock, self._sources, self._metrics = clock, sources, metrics
        self._options = options or AnswerOptions()
        self._reader = QuestionReader(sources.predictor, lower_seconds)
        self._writer = StatusWriter(kube, clock, FIELD_MANAGER)
        self._gpu_types = ProfileBook.shipped(shipped_library())
        self._profile_versions: tuple[str, ...] | None = None
        self._statuses: dict[Key, CapacityPlanStatus] = {}
        self._attempts: dict[Key, _Attempt] = {}
        self._unanswered_since_ns: dict[Key, int] = {}
        self._uids: dict[Key, str] = {}
        self._beat = Heartbeat(clock, PATIENCE_SECONDS)

    def failure(self) -> str:
        """Why no look comes any more; empty while they come."""
        return "CapacityPlans are not looked at" if self._beat.is_late() else ""

    def run_once(self) -> None:
        """Judge all, solve the one that has waited longest, write what changed."""
        self._beat.next_at(self._clock.monotonic_ns() + seconds_to_ns(LOOK_SECONDS))
        if not self._sources.are_read():
            return
        now_ns = self._clock.wall_time_ns()
        book = ForecastBook.of("", self._sources.forecasts())
        self._read_gpu_types()
        seen: dict[Key, JsonObject] = {}
        due: list[tuple[tuple[bool, int], Key, PlanQuestion]] = []
        for body in self._sources.plans():
            key = (str(body["metadata"].get("namespace", "")), str(body["metadata"]["name"]))
            seen[key] = body
            self._begin(key, body)
            question = self._judged(key, body, book, now_ns)
            if question is not None:
                due.append((self._turn(key, question), key, question))
        self._forget_gone(seen)
        self._writer.flush()
        if due:
            _, key, question = min(due, key=lambda entry: entry[:2])
            self._solve(key, question)
            self._writer.flush()
        self._show()

    def _read_gpu_types(self) -> None:
        """Build the book anew only where an object changed."""
        bodies = tuple(self._sources.gpu_profiles())
        versions = tuple(str(body["metadata"].get("resourceVersion", "")) for body in bodies)
        if versions != self._profile_versions:
            self._gpu_types = self._gpu_types.with_objects(bodies)
            self._profile_versions = versions

    def _begin(self, key: Key, body: JsonObject) -> None:
        """An object made anew under an old name starts from nothing."""
        uid = str(body["metadata"].get("uid", ""))
        if self._uids.setdefault(key, uid) != uid:
            self._drop(key)
            self._uids[key] = uid

    def _judged(
        self, key: Key, body: JsonObject, book: ForecastBook, now_ns: int
    ) -> PlanQuestion | None:
        """Say what can be said without solving; the question if it has to be solved."""
        status = self._statuses.get(key) or _status_as_read(body)
        plan = CapacityPlan.model_construct(metadata=body["metadata"], status=status)
        try:
            question = self._reader.question(
                body, status, book, self._gpu_types, now_ns / NS_PER_SECOND
            )
        except InputError as error:
            self._say(key, plan, status, refused(error))
            return None
        except Exception as error:
            # A defect that one plan meets must not leave the others without an answer.
            log.exception("CapacityPlan %s/%s cannot be judged", *key)
            self._say(key, plan, status, told_of(error))
            return None
        plan = question.plan
        if self._is_answered(question):
            self._say(key, plan, plan.status, self._standing(question))
            return None
        failed = self._attempts.get(key)
        if failed is not None and _is_same(failed, question, self._clock.monotonic_ns()):
            self._say(key, plan, plan.status, failed.verdict)
            return None
        if plan.status.answered_generation != plan.generation or failed is not None:
            self._say(key, plan, plan.status, accepted())
        self._unanswered_since_ns.setdefault(key, self._clock.monotonic_ns())
        return question

    def _turn(self, key: Key, question: PlanQuestion) -> tuple[bool, int]:
        """Who waits longest comes first, and behind all others what failed before."""
        failed = self._attempts.get(key)
        if failed is not None and failed.digest == question.digest:
            return True, failed.again_ns
        return False, self._unanswered_since_ns[key]

    def _is_answered(self, question: PlanQuestion) -> bool:
        """Whether the figures answer it, or may: forecasts are away, or it is early for less."""
        status = question.plan.status
        if status.inputs_digest != question.digest:
            return False
        if question.outlooks.unfit or not has_moved(status, question.demand):
            return True
        now_seconds = self._clock.wall_time_ns() / NS_PER_SECOND
        return is_early(status, question.demand, now_seconds, self._lower_seconds)

    def _standing(self, question: PlanQuestion) -> PlanVerdict:
        """What is said of figures that still answer."""
        if question.outlooks.unfit:
            return _unfit(question, "the figures are for the last demand that was known")
        said = {c.type: c for c in question.plan.status.conditions}.get("Ready")
        if said is not None and said.status.value == "True" and said.reason in _GOOD_REASONS:
            return PlanVerdict(True, True, PlanReason(said.reason), said.message)
        return PlanVerdict(True, True, PlanReason.SOLVED, "the figures answer this spec")

    def _solve(self, key: Key, question: PlanQuestion) -> None:
        began_ns = self._clock.monotonic_ns()
        predictor = self._sources.predictor and TimedPredictor(self._sources.predictor, self._clock)
        knowledge = Knowledge(self._gpu_types, predictor, question.outlooks.rates)
        spec, plan = question.plan.spec, question.plan
        options = replace(
            self._options, keep_owned_within_cost_ratio=spec.keep_owned_within_cost_ratio
        )
        try:
            problem = problem_of(spec, f"CapacityPlan {plan.name}", knowledge)
            answer = answer_mix(problem, self._clock, options)
        except Exception as error:
            verdict = told_of(error)
            is_expected = isinstance(error, WattpackError)
            log.warning("CapacityPlan %s/%s: %s", *key, error, exc_info=not is_expected)
            again_ns = self._clock.monotonic_ns() + seconds_to_ns(RETRY_SECONDS)
            self._attempts[key] = _Attempt(question.digest, question.demand, verdict, again_ns)
            self._say(key, plan, plan.status, verdict)
        else:
            verdict = solved(answer)
            if question.outlooks.unfit:
                verdict = _unfit(question, "the figures are for the demand that the spec states")
            update = {
                "answered_generation": plan.generation,
                "solved_at": rfc3339(self._clock.wall_time_ns()),
                "inputs_digest": question.digest,
                "rates_from": _rates_from(question),
            }
            margin = predictor.margin() if predictor and spec.serving is not None else None
            reasons = reasons_of(spec, question.outlooks)
            figures = status_of(answer, question.demand, margin, reasons)
            rows = rows_with(figures.demand, question.lengths)
            figures = figures.model_copy(update={**update, "demand": rows})
            self._attempts.pop(key, None)
            self._say(key, plan, figures, verdict)
        seconds = ns_to_seconds(self._clock.monotonic_ns() - began_ns)
        self._metrics.solved(verdict.reason.value, seconds)

    def _say(
        self, key: Key, plan: CapacityPlan, figures: CapacityPlanStatus, verdict: PlanVerdict
    ) -> None:
        now_ns = self._clock.wall_time_ns()
        status = said_of(plan, figures, verdict, now_ns)
        self._statuses[key] = status
        if verdict.is_ready:
            self._unanswered_since_ns.pop(key, None)
        else:
            self._unanswered_since_ns.setdefault(key, self._clock.monotonic_ns())
        self._writer.offer(RESOURCE, key[1], status, key[0])

    def _forget_gone(self, seen: Mapping[Key, JsonObject]) -> None:
        for key in self._uids.keys() - seen.keys():
            self._drop(key)
            del self._uids[key]

    def _drop(self, key: Key) -> None:
        for book in (self._statuses, self._attempts, self._unanswered_since_ns):
            book.pop(key, None)
        self._reader.forget(key)
        self._writer.forget(RESOURCE, key[1], key[0])

    def _show(self) -> None:
        now_ns = self._clock.monotonic_ns()
        waiting = {
            key: ns_to_seconds(now_ns - self._unanswered_since_ns.get(key, now_ns))
            for key in self._statuses
        }
        self._metrics.show(self._statuses, waiting, self._clock.wall_time_ns() / NS_PER_SECOND)


def _status_as_read(body: JsonObject) -> CapacityPlanStatus:
    """What the object says of itself; nothing where that cannot be read."""
    try:
        status = {"spec": {"buckets": [{"name": "x"}]}, "status": body.get("status") or {}}
        return CapacityPlan.read({"metadata": body["metadata"], **status}).status
    except InputError:
        return CapacityPlanStatus()


def _unfit(question: PlanQuestion, what: str) -> PlanVerdict:
    why = f"{'; '.join(question.outlooks.unfit)}; {what}"
    return PlanVerdict(True, False, PlanReason.FORECAST_UNFIT, why)


def _is_same(failed: _Attempt, question: PlanQuestion, now_ns: int) -> bool:
    """Whether a solve would fail as it did before."""
    if failed.digest != question.digest or now_ns >= failed.again_ns:
        return False
    return dict(failed.demand) == dict(question.demand)


def _rates_from(question: PlanQuestion) -> str:
    spec = question.plan.spec
    if spec.serving is None:
        return "Given"
    return "Both" if spec.shapes else "Predicted"
