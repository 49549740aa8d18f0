"""Answers of a slow authority, kept for a while: many ask, few questions go out.

Whoever asks for the same thing at the same time shares one question; at most ``at_once`` questions
are under way; a refusal is kept for its own, shorter time and never displaces a good answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeVar

from wattpack.clock import Clock
from wattpack.errors import PermanentError, TransientError

__all__ = ["Keeping", "KeptAnswers"]

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long answers are kept, how many, and how many questions may be under way.

    Attributes:
        answer_ns: Of an answer.
        refusal_ns: Of a ``PermanentError``; 0 keeps none. Transient errors are never kept.
        most: Answers, and again refusals; the oldest go first.
        at_once: Questions under way.
        wait_seconds: How long one more waits for its turn, and others for a shared answer.
    """

    answer_ns: int
    refusal_ns: int = 0
    most: int = 20_000
    at_once: int = 16
    wait_seconds: float = 15.0


@dataclass(frozen=True, slots=True)
class _Kept(Generic[V]):
    answer: V
    until_ns: int


class KeptAnswers(Generic[K, V]):
    """Asks once for what many want to know. Thread-safe."""

    def __init__(self, keeping: Keeping, clock: Clock) -> None:
        self._keeping, self._clock = keeping, clock
        self._lock = threading.Lock()
        self._turns = threading.BoundedSemaphore(keeping.at_once)
        self._answers: dict[K, _Kept[V]] = {}
        self._refusals: dict[K, _Kept[PermanentError]] = {}
        self._asking: dict[K, Future[V]] = {}
        self.questions = 0

    def knows(self, key: K) -> bool:
        """Whether ``get`` would answer without asking."""
        with self._lock:
            return self._find(self._answers, key) is not None or (
                self._find(self._refusals, key) is not None
            )

    def get(self, key: K, ask: Callable[[], V]) -> V:
        """The kept answer, or that of ``ask``, which runs in this thread or another asker's.

        Raises:
            PermanentError: the authority's refusal, as ``ask`` raised it.
            TransientError: that of ``ask``, or because too many questions wait.
        """
        with self._lock:
            answer = self._find(self._answers, key)
            if answer is not None:
                return answer.answer
            refusal = self._find(self._refusals, key)
            if refusal is not None:
                # Raised once and again: without the traces of those before.
                raise refusal.answer.with_traceback(None)
            shared = self._asking.get(key)
            if shared is None:
                mine: Future[V] = Future()
                self._asking[key] = mine
        if shared is None:
            return self._ask(key, ask, mine)
        try:
            return shared.result(timeout=self._keeping.wait_seconds)
        except TimeoutError as error:
            raise TransientError("the question is still under way") from error

    def _ask(self, key: K, ask: Callable[[], V], mine: Future[V]) -> V:
        if not self._turns.acquire(timeout=self._keeping.wait_seconds):
            busy = TransientError(f"{self._keeping.at_once} questions are under way already")
            self._finish(key, mine, busy)
            raise busy
        try:
            self.questions += 1
            answer = ask()
        except BaseException as error:
            self._finish(key, mine, error)
            raise
        finally:
            self._turns.release()
        until_ns = self._clock.monotonic_ns() + self._keeping.answer_ns
        with self._lock:
            self._keep(self._answers, key, _Kept(answer, until_ns))
            self._asking.pop(key, None)
        mine.set_result(answer)
        return answer

    def _finish(self, key: K, mine: Future[V], error: BaseException) -> None:
        with self._lock:
            self._asking.pop(key, None)
            if isinstance(error, PermanentError) and self._keeping.refusal_ns > 0:
                until_ns = self._clock.monotonic_ns() + self._keeping.refusal_ns
                self._keep(self._refusals, key, _Kept(error, until_ns))
        mine.set_exception(error)

    def _find(self, kept: dict[K, _Kept[T]], key: K) -> _Kept[T] | None:
        found = kept.get(key)
        return found if found is not None and self._clock.monotonic_ns() < found.until_ns else None

    def _keep(self, kept: dict[K, _Kept[T]], key: K, value: _Kept[T]) -> None:
        """Keep the newest last; a dict remembers the order of insertion."""
        kept.pop(key, None)
        while len(kept) >= self._keeping.most:
            del kept[next(iter(kept))]
        kept[key] = value
