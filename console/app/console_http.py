"""The console's HTTP application: JSON, one event stream, and the built front end. Read only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import FileResponse, StreamingResponse

from console.app.view_sources import HttpLiveSource, PlacementSource
from console.cap_reasons import explain_gpu
from console.frames import FrameMaker
from wattpack.errors import InputError

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; "
    "style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
# Browsers ask again after this long when the stream breaks.
RETRY_MS = 1000
STREAM_PERIOD_SECONDS = 1.0
HEARTBEAT_PERIODS = 15
MAX_STREAMS = 64


def create_app(live: HttpLiveSource, placement: PlacementSource, static: Path) -> FastAPI:
    """The application; ``static`` is the folder of the built front end."""
    app = FastAPI(title="wattpack console", version="v1", docs_url=None, redoc_url=None)
    open_streams = {"count": 0}

    @app.middleware("http")
    async def harden(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        """Only GET, and the security headers on everything."""
        if request.method not in {"GET", "HEAD"}:
            return Response("read only\n", status_code=405, headers=SECURITY_HEADERS)
        answer = await call_next(request)
        answer.headers.update(SECURITY_HEADERS)
        return answer

    @app.get("/healthz")
    async def healthz() -> dict[str, bool]:
        """Alive, and whether a live view has arrived."""
        return {"alive": True, "live": live.latest() is not None}

    @app.get("/api/v1/live")
    async def live_view() -> Response:
        """The newest live view."""
        view = live.latest()
        if view is None:
            raise HTTPException(503, "no controller has answered yet")
        return Response(view.model_dump_json(), media_type="application/json")

    @app.get("/api/v1/history/{domain}")
    async def history(domain: str) -> dict[str, list[float]]:
        """The last half hour of a domain."""
        return live.history(domain)

    @app.get("/api/v1/placement")
    async def placement_now() -> dict[str, Any]:
        """Pods, pending pods with reasons, the newest plans."""
        return placement.latest()

    @app.get("/api/v1/explain/gpu/{uuid}")
    async def explain(uuid: str) -> dict[str, object]:
        """Why a GPU is capped."""
        view = live.latest()
        if view is None:
            raise HTTPException(503, "no controller has answered yet")
        try:
            return explain_gpu(view, uuid)
        except InputError as error:
            raise HTTPException(404, str(error)) from error

    @app.get("/api/v1/stream")
    async def stream(request: Request) -> StreamingResponse:
        """Server-sent events: ``topology`` and ``tick``."""
        if open_streams["count"] >= MAX_STREAMS:
            raise HTTPException(429, "too many open streams", headers={"Retry-After": "5"})
        return StreamingResponse(
            _events(request, live, open_streams),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    @app.get("/{path:path}", include_in_schema=False)
    def front_end(path: str) -> FileResponse:
        """The built front end; never a file outside its folder."""
        file = (static / (path or "index.html")).resolve()
        if not file.is_relative_to(static.resolve()) or not file.is_file():
            raise HTTPException(404, "no such page")
        return FileResponse(file)

    return app


async def _events(
    request: Request, live: HttpLiveSource, open_streams: dict[str, int]
) -> AsyncIterator[str]:
    """Frames for one browser, dropping to the newest view when it is slow."""
    maker, seen, idle = FrameMaker(), -1, 0
    open_streams["count"] += 1
    try:
        yield f"retry: {RETRY_MS}\n\n"
        while not await request.is_disconnected():
            view = live.latest()
            if view is not None and view.tick != seen:
                seen, idle = view.tick, 0
                for name, body in maker.frames(view):
                    yield f"id: {view.tick}\nevent: {name}\ndata: {body}\n\n"
            else:
                idle += 1
                if idle % HEARTBEAT_PERIODS == 0:
                    yield ": still here\n\n"
            await asyncio.sleep(STREAM_PERIOD_SECONDS)
    finally:
        open_streams["count"] -= 1
