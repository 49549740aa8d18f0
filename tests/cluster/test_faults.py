"""Faults are injected at the front of the server, counted, and end by themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import urllib3

from tests.cluster.control_plane import ControlPlane
from wattpack.errors import PermanentError

pytestmark = pytest.mark.cluster

PATH = "/api/v1/namespaces/default/configmaps"
EXACTLY = f"^{PATH}$"


@pytest.fixture
def faulty(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The server, with no fault left afterwards."""
    if control_plane.kind != "own":
        pytest.skip("only the project's own server injects faults")
    yield control_plane
    control_plane.clear_faults()


@pytest.mark.parametrize("code", [410, 429, 500, 503])
def test_the_next_requests_get_the_status_then_all_is_well(faulty: ControlPlane, code: int) -> None:
    faulty.inject_fault("status", EXACTLY, code=code, count=2, retry_after_seconds=3)
    for _ in range(2):
        answer = faulty.request("GET", PATH)
        assert (answer.status, answer.body["code"]) == (code, code)
        assert answer.headers["Retry-After"] == "3"
    assert faulty.request("GET", PATH).status == 200
    assert faulty.faults()[0]["hits"] == 2


def test_a_watch_ends_with_an_expired_event(faulty: ControlPlane) -> None:
    faulty.inject_fault("watch-error", EXACTLY, code=410, watch=True)
    assert faulty.request("GET", PATH).status == 200, "a list is not a watch"
    answer = faulty.request("GET", f"{PATH}?watch=1")
    assert answer.status == 200
    assert answer.body["type"] == "ERROR"
    assert answer.body["object"]["reason"] == "Expired"


def test_a_stalled_request_outlasts_the_client_and_a_half_open_one_never_ends(
    faulty: ControlPlane,
) -> None:
    faulty.inject_fault("stall", EXACTLY, stall_seconds=30)
    with pytest.raises(urllib3.exceptions.ReadTimeoutError):
        faulty.request("GET", PATH, seconds=0.2)
    faulty.clear_faults()
    faulty.inject_fault("half-open", EXACTLY)
    with pytest.raises((urllib3.exceptions.ReadTimeoutError, urllib3.exceptions.ProtocolError)):
        faulty.request("GET", PATH, seconds=0.2)
    assert faulty.request("GET", PATH).status == 200


def test_a_reset_breaks_the_connection(faulty: ControlPlane) -> None:
    faulty.inject_fault("reset", EXACTLY)
    with pytest.raises(urllib3.exceptions.HTTPError):
        faulty.request("GET", PATH)
    assert faulty.request("GET", PATH).status == 200


def test_faults_meet_only_what_they_name(faulty: ControlPlane) -> None:
    faulty.inject_fault("status", EXACTLY, code=500, method="DELETE", user_agent="^nobody")
    assert faulty.request("GET", PATH).status == 200
    assert faulty.faults()[0]["hits"] == 0


@pytest.mark.parametrize(
    "rule",
    [
        {"kind": "explode", "path": "/"},
        {"kind": "status", "path": "/", "code": 200},
        {"kind": "status", "path": "(", "code": 500},
        {"kind": "stall", "path": "/", "stall_seconds": -1},
        {"kind": "stall", "path": "/", "typo": 1},
    ],
)
def test_a_senseless_rule_is_refused(faulty: ControlPlane, rule: dict[str, object]) -> None:
    with pytest.raises(PermanentError):
        faulty.inject_fault(**rule)  # type: ignore[arg-type]
    assert faulty.faults() == []
