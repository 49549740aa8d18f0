"""The console's HTTP application: JSON, one event stream, and the built front end. Read only.

Who may look is decided in one place (``wattpack.http_access``): the Host header on everything, a
bearer token with the right to read the live view on everything below ``/api``, and pods' names and
CapacityPlans and DemandForecasts only of namespaces where the caller may list pods.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse

from console.app.capacity_plan_source import CapacityPlanSource
from console.app.event_stream import Hub, Namespaces, build_of, stream, with_shown_pods
from console.app.gpu_types_source import GpuTypesSource
from console.app.live_source import LiveSource
from console.app.placement_source import PlacementSource
from console.app.service_forecast_source import ServiceForecastSource
from console.cap_reasons import explain_gpu
from console.freshness import seen_now_seconds
from wattpack.errors import InputError
from wattpack.http_access import LIVE_VIEW, HttpAccess, HttpRefusal, pods_in
from wattpack.live_view import LiveView

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; "
    "style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
RETRY_SECONDS = 5
#: Longer without an attempt to read: the reading itself hangs, and a restart helps.
HANGING_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Sources:
    """What the console shows and who may see it."""

    live: LiveSource
    placement: PlacementSource
    gpu_types: GpuTypesSource
    capacity: CapacityPlanSource
    forecasts: ServiceForecastSource
    access: HttpAccess


def create_app(sources: Sources, static: Path) -> FastAPI:
    """The application; ``static`` is the folder of the built front end."""
    app = FastAPI(title="wattpack console", version="v1", docs_url=None, redoc_url=None)
    build = build_of((static / "index.html").read_bytes())
    hub = Hub(sources.live, sources.placement, sources.capacity, sources.forecasts, build)
    app.middleware("http")(_harden)
    _add_health(app, sources)
    _add_views(app, sources)
    _add_forecasts(app, sources)
    _add_stream(app, sources, hub)
    _add_front_end(app, static)
    return app


async def _harden(
    request: Request, call_next: Callable[[Request], Awaitable[Response]]
) -> Response:
    """Only GET, and the security headers on everything."""
    if request.method not in {"GET", "HEAD"}:
        return Response("read only\n", status_code=405, headers=SECURITY_HEADERS)
    answer = await call_next(request)
    answer.headers.update(SECURITY_HEADERS)
    return answer


def _add_health(app: FastAPI, sources: Sources) -> None:
    @app.get("/healthz")
    def healthz() -> JSONResponse:
        """200 while what is shown is fresh; 503 with the cause when it is not."""
        view, age = sources.live.latest()
        ages = {
            "live": age,
            **sources.placement.ages(),
            **sources.capacity.ages(),
            **sources.forecasts.ages(),
        }
        stale = {name: a.cause or "stale" for name, a in ages.items() if a.is_stale}
        if view is not None and not view.leading:
            stale["live"] = "no controller leads"
        body = {
            "fresh": not stale,
            "stale": stale,
            "ages": {name: a.to_json() for name, a in ages.items()},
        }
        return JSONResponse(body, status_code=503 if stale else 200)

    @app.get("/livez")
    def livez() -> JSONResponse:
        """200 while this process itself works: restarting it mends no silent controller."""
        idle = sources.live.idle_seconds()
        works = not sources.live.urls or idle < HANGING_SECONDS
        body = {"works": works, "idleSeconds": round(idle, 1)}
        return JSONResponse(body, status_code=200 if works else 503)


def _add_views(app: FastAPI, sources: Sources) -> None:
    def shown() -> LiveView:
        view, age = sources.live.latest()
        if view is None:
            raise HTTPException(503, age.cause)
        return view

    allowed = Depends(_reader(sources))

    @app.get("/api/v1/live")
    def live_view(namespaces: Namespaces = allowed) -> Response:
        """The newest live view, and its age in ``X-Age-Seconds``."""
        body = with_shown_pods(shown(), namespaces).model_dump_json()
        _, age = sources.live.latest()
        headers = {"X-Age-Seconds": f"{age.seconds or 0.0:.1f}"}
        return Response(body, media_type="application/json", headers=headers)

    @app.get("/api/v1/history/{domain}")
    def history(domain: str, namespaces: Namespaces = allowed) -> Mapping[str, Any]:
        """The last half hour of a domain."""
        return sources.live.history(domain)

    @app.get("/api/v1/day/{domain}")
    def day(domain: str, namespaces: Namespaces = allowed) -> Mapping[str, Any]:
        """The last day of a domain in ten-minute means."""
        return sources.live.day(domain)

    @app.get("/api/v1/placement")
    def placement_now(namespaces: Namespaces = allowed) -> Mapping[str, Any]:
        """Counts, pending pods grouped by cause, the newest plans."""
        return sources.placement.view(namespaces)[1]

    @app.get("/api/v1/gpu-types")
    def gpu_types(namespaces: Namespaces = allowed) -> list[dict[str, Any]]:
        """Roofline, draw over intensity and cap curves of every known GPU type."""
        return sources.gpu_types.views()

    @app.get("/api/v1/capacity")
    def capacity_now(namespaces: Namespaces = allowed) -> Mapping[str, Any]:
        """CapacityPlans with their answers."""
        return sources.capacity.view(namespaces)[1]

    @app.get("/api/v1/explain/gpu/{uuid}")
    def explain(uuid: str, namespaces: Namespaces = allowed) -> Mapping[str, Any]:
        """Why a GPU is capped."""
        try:
            return explain_gpu(shown(), uuid, namespaces)
        except InputError as error:
            raise HTTPException(404, str(error)) from error


def _add_forecasts(app: FastAPI, sources: Sources) -> None:
    allowed = Depends(_reader(sources))

    @app.get("/api/v1/forecasts")
    def forecasts_now(namespaces: Namespaces = allowed) -> Mapping[str, Any]:
        """DemandForecasts of services, the worst first."""
        view, age = sources.live.latest()
        now = None if view is None else seen_now_seconds(view.wall_time_ns, age)
        return sources.forecasts.view(namespaces, now)[1]

    @app.get("/api/v1/forecasts/{namespace}/{name}")
    def forecast_fan(
        namespace: str, name: str, namespaces: Namespaces = allowed
    ) -> Mapping[str, Any]:
        """Steps of one of them, and what the console saw of its last day."""
        fan = sources.forecasts.fan(f"{namespace}/{name}", namespaces)
        if fan is None:
            raise HTTPException(404, "no such DemandForecast of a service")
        return fan


def _add_stream(app: FastAPI, sources: Sources, hub: Hub) -> None:
    allowed = Depends(_reader(sources))

    @app.get("/api/v1/stream")
    def event_stream(request: Request, _: Namespaces = allowed) -> StreamingResponse:
        """Server-sent events; see ``console.frames`` for their names."""
        if hub.is_full():
            raise HTTPException(
                429, "too many open streams", headers={"Retry-After": str(RETRY_SECONDS)}
            )

        def admitted() -> Namespaces | Exception:
            try:
                return _visible(sources, request)
            except HttpRefusal as refusal:
                return refusal

        return StreamingResponse(
            stream(hub, request.is_disconnected, admitted),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )


def _add_front_end(app: FastAPI, static: Path) -> None:
    # A name is looked up, never made into a path: nothing outside can be meant.
    files = {str(f.relative_to(static)): f for f in static.rglob("*") if f.is_file()}

    @app.get("/{path:path}", include_in_schema=False)
    def front_end(path: str) -> FileResponse:
        """The built front end; never a file outside its folder. It holds nothing secret."""
        file = files.get(path or "index.html")
        if file is None:
            raise HTTPException(404, "no such page")
        # Files are named by content; only the start page may change under its name.
        caching = "no-cache" if file.name == "index.html" else "max-age=31536000, immutable"
        return FileResponse(file, headers={"Cache-Control": caching})


def _reader(sources: Sources) -> Callable[[Request], Namespaces]:
    """A dependency: the namespaces whose pods the caller may see, or an HTTP error."""

    def admit(request: Request) -> Namespaces:
        try:
            return _visible(sources, request)
        except HttpRefusal as refusal:
            raise HTTPException(
                refusal.status, str(refusal), headers=dict(refusal.headers)
            ) from refusal

    return admit


def _visible(sources: Sources, request: Request) -> Namespaces:
    """Whose pods the caller may see, None for all.

    Raises:
        HttpRefusal: where the caller may see nothing.
    """
    headers, access = request.headers, sources.access
    caller = access.admit(headers.getlist("host"), headers.getlist("authorization"), LIVE_VIEW)
    if access.allows(caller, pods_in("")):
        return None
    view, _ = sources.live.latest()
    pods = () if view is None else view.gpus.pod
    namespaces = {pod.partition("/")[0] for pod in pods if pod}
    for source in (sources.placement, sources.capacity, sources.forecasts):
        namespaces |= source.namespaces()
    return access.visible_namespaces(caller, namespaces)
