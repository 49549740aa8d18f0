"""The event stream of one browser: what changed, and every second a pulse that tells all ages.

A browser that hears no pulse knows that the connection is dead, and one that hears pulses knows how
old each source is; so no page can call itself live on figures that stand still.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace

from starlette.concurrency import run_in_threadpool

from console.app.capacity_plan_source import CapacityPlanSource
from console.app.live_source import LiveSource
from console.app.placement_source import PlacementSource
from console.app.service_forecast_source import ServiceForecastSource
from console.cap_reasons import shown_pod
from console.frames import Cursor, Event, FrameBook
from console.freshness import GREY_SECONDS, RED_SECONDS, seen_now_seconds
from console.overview import overview
from wattpack.live_view import LiveView

PERIOD_SECONDS = 1.0
#: A right that was taken back ends a stream after this long, and the answers' own age.
ADMITTED_PERIODS = 60
MAX_STREAMS = 256
#: Views are encoded once for everybody who may see the same namespaces.
MAX_BOOKS = 16

Namespaces = frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Position:
    """What one stream has sent, and of which book: another one counts its versions anew."""

    book: FrameBook | None = None
    cursor: Cursor = field(default_factory=Cursor)
    placement: int = -1
    capacity: int = -1
    forecasts: int = -1
    namespaces: Namespaces = None


class Hub:
    """Everything that streams have in common. Thread-safe.

    Args:
        live: The controllers' view.
        placement: Pods and plans.
        capacity: CapacityPlans.
        forecasts: DemandForecasts of services.
        build: Names this release's front end: a page of another one loads itself anew.
    """

    def __init__(
        self,
        live: LiveSource,
        placement: PlacementSource,
        capacity: CapacityPlanSource,
        forecasts: ServiceForecastSource,
        build: str,
    ) -> None:
        self._live, self._placement, self._build = live, placement, build
        self._capacity, self._forecasts = capacity, forecasts
        self._lock = threading.Lock()
        self._books: dict[Namespaces, tuple[LiveView, FrameBook]] = {}
        self._open = 0

    def hello(self) -> Event:
        """The first event of a stream."""
        body = {"build": self._build, "greySeconds": GREY_SECONDS, "redSeconds": RED_SECONDS}
        return "hello", _json(body)

    def is_full(self) -> bool:
        """Whether as many streams are open as may be."""
        with self._lock:
            return self._open >= MAX_STREAMS

    def enter(self) -> None:
        """Count a stream in."""
        with self._lock:
            self._open += 1

    def leave(self) -> None:
        """Count it out."""
        with self._lock:
            self._open -= 1

    def events(self, position: Position, namespaces: Namespaces) -> tuple[list[Event], Position]:
        """What a browser lacks, with the pulse at its end."""
        if namespaces != position.namespaces:
            position = Position(namespaces=namespaces)
        view, age = self._live.latest()
        found: list[Event] = []
        if view is not None:
            with self._lock:
                book = self._book(view, namespaces)
                cursor = position.cursor if position.book is book else Cursor()
                found, cursor = book.since(cursor)
            position = replace(position, book=book, cursor=cursor)
        version, placement = self._placement.view(namespaces)
        if version != position.placement:
            found.append(("placement", _json(placement)))
            position = replace(position, placement=version)
        version, capacity = self._capacity.view(namespaces)
        if version != position.capacity:
            found.append(("capacity", _json(capacity)))
            position = replace(position, capacity=version)
        now_seconds = None if view is None else seen_now_seconds(view.wall_time_ns, age)
        version, forecasts = self._forecasts.view(namespaces, now_seconds)
        if version != position.forecasts:
            found.append(("service-forecasts", _json(forecasts)))
            position = replace(position, forecasts=version)
        ages = {
            "live": age,
            **self._placement.ages(),
            **self._capacity.ages(),
            **self._forecasts.ages(),
        }
        first_line = overview(view, age)
        pulse = {
            "ages": {name: value.to_json() for name, value in ages.items()},
            "state": first_line.state,
            "why": first_line.why,
        }
        found.append(("pulse", _json(pulse)))
        return found, position

    def _book(self, view: LiveView, namespaces: Namespaces) -> FrameBook:
        """The frames for those who may see these namespaces; the lock is held."""
        seen, book = self._books.get(namespaces, (None, None))
        if book is None:
            if len(self._books) >= MAX_BOOKS:
                self._books.pop(next(iter(self._books)))
            book = FrameBook()
        if seen is not view:
            _, age = self._live.latest()
            book.take(with_shown_pods(view, namespaces), age)
            self._books[namespaces] = view, book
        return book


def with_shown_pods(view: LiveView, namespaces: Namespaces) -> LiveView:
    """The view without the names of pods that somebody may not list."""
    if namespaces is None:
        return view
    pods = [shown_pod(pod, namespaces) for pod in view.gpus.pod]
    return view.model_copy(update={"gpus": view.gpus.model_copy(update={"pod": pods})})


async def stream(
    hub: Hub,
    is_gone: Callable[[], Awaitable[bool]],
    admitted: Callable[[], Namespaces | Exception],
) -> AsyncIterator[str]:
    """Frames for one browser until it goes or may no longer look; slow ones miss ticks, no data.

    Args:
        hub: What is there to send.
        is_gone: Whether the browser has left.
        admitted: Whose pods the caller may see now, or the refusal; may block.
    """
    position, beats = Position(), 0
    namespaces: Namespaces = frozenset()
    hub.enter()
    try:
        yield _event(hub.hello())
        while not await is_gone():
            if beats % ADMITTED_PERIODS == 0:
                answer = await run_in_threadpool(admitted)
                if isinstance(answer, Exception):
                    return
                namespaces = answer
            events, position = await run_in_threadpool(hub.events, position, namespaces)
            for event in events:
                yield _event(event)
            beats += 1
            await asyncio.sleep(PERIOD_SECONDS)
    finally:
        hub.leave()


def build_of(index: bytes) -> str:
    """A name for a built front end: its start page names every file by content."""
    return hashlib.sha256(index).hexdigest()[:12]


def _event(event: Event) -> str:
    name, body = event
    return f"event: {name}\ndata: {body}\n\n"


def _json(body: object) -> str:
    return json.dumps(body, separators=(",", ":"))
