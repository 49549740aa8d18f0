"""What gRPC finds out after the end of a stream's event loop does no harm in another loop."""

from __future__ import annotations

import logging

import pytest
from grpc._cython.cygrpc import ExecuteBatchError

from wattpack.wire.grpc_loop import GrpcEventLoop


def test_what_comes_after_the_end_of_a_loop_is_dropped() -> None:
    loop = GrpcEventLoop()
    loop.close()
    late: list[int] = []
    loop.call_soon_threadsafe(late.append, 1)
    assert late == []


def test_what_comes_in_time_is_run() -> None:
    loop = GrpcEventLoop()
    in_time: list[int] = []
    loop.call_soon_threadsafe(in_time.append, 1)
    loop.call_soon_threadsafe(loop.stop)
    loop.run_forever()
    loop.close()
    assert in_time == [1]


def test_another_call_on_a_closed_loop_still_fails() -> None:
    loop = GrpcEventLoop()
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_soon(print)


@pytest.mark.parametrize(
    ("error", "told"), [(ExecuteBatchError("SendStatusFromServer"), []), (OSError("disk"), ["no"])]
)
def test_a_peer_that_has_just_left_is_no_failure_of_the_server(
    caplog: pytest.LogCaptureFixture, error: Exception, told: list[str]
) -> None:
    library = logging.getLogger("grpc._cython.cygrpc")
    library.error("no", exc_info=error)
    assert [record.message for record in caplog.records] == told
