"""From HTTP answers and broken connections to the port's errors.

| answer | error |
|---|---|
| 401, 403 | ForbiddenError |
| 404 | NotFoundError |
| 409 AlreadyExists | AlreadyExistsError |
| 409 otherwise | ConflictError |
| 410, or 504 Expired while paging | GoneError |
| 429 | ThrottledError with Retry-After |
| other 4xx | InvalidError |
| 5xx, no answer, broken answer | UnavailableError with Retry-After if given |
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from wattpack.kube.port import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    KubeError,
    NotFoundError,
    ThrottledError,
    UnavailableError,
)

_MAX_MESSAGE_LENGTH = 2000


def failure(status: int, body: bytes, headers: Mapping[str, str]) -> KubeError:
    """The error behind an answer that is not 2xx."""
    return status_failure(status, _status_object(body), retry_after_seconds(headers))


def status_failure(
    code: int, status: Mapping[str, Any], retry_after: float | None = None
) -> KubeError:
    """The error behind a metav1.Status, as an answer or as an event of a watch."""
    details = status.get("details")
    details = details if isinstance(details, dict) else {}
    message = _message(code, status, details)
    wait = retry_after if retry_after is not None else details.get("retryAfterSeconds")
    if code == 404:
        return NotFoundError(message)
    if code == 409:
        taken = status.get("reason") == "AlreadyExists"
        return AlreadyExistsError(message) if taken else ConflictError(message)
    if code == 410 or status.get("reason") == "Expired":
        return GoneError(message)
    if code in {401, 403}:
        return ForbiddenError(message)
    if code == 429:
        return ThrottledError(message, wait if wait is not None else 1.0)
    if 400 <= code < 500:
        return InvalidError(message)
    return UnavailableError(message, wait)


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """The Retry-After header in seconds; its date form, which Kubernetes never sends, is None."""
    text = headers.get("Retry-After", "")
    return float(text) if text.isdigit() else None


def _status_object(body: bytes) -> Mapping[str, Any]:
    try:
        status = json.loads(body)
    except (ValueError, RecursionError):
        return {"message": body[:_MAX_MESSAGE_LENGTH].decode(errors="replace")}
    return status if isinstance(status, dict) else {"message": repr(status)}


def _message(code: int, status: Mapping[str, Any], details: Mapping[str, Any]) -> str:
    causes = [
        f"{cause.get('field', '')}: {cause.get('message', '')}".removeprefix(": ")
        for cause in details.get("causes") or ()
        if isinstance(cause, dict)
    ]
    text = str(status.get("message") or f"HTTP {code}")
    extra = [cause for cause in causes if cause not in text]
    return "; ".join([text, *extra])[:_MAX_MESSAGE_LENGTH]
