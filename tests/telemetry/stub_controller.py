"""A controller replica that keeps what it was sent and answers as the test says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent import futures
from queue import Queue

import grpc

from wattpack.wire.certificates import Identity
from wattpack.wire.v1 import power_pb2, power_pb2_grpc

Answer = Callable[[power_pb2.NodeReport], power_pb2.LeaseBatch | None]


class StubController(power_pb2_grpc.PowerControlServicer):
    """Serves on a free loopback port."""

    def __init__(
        self, *, answer: Answer = lambda report: None, version: int = 1, period_ms: int = 0
    ) -> None:
        self.answer = answer
        self.version = version
        self.period_ms = period_ms
        self.refuse: grpc.StatusCode | None = None
        self.welcome_first = True
        self.mute = False
        self.tokens: list[str] = []
        self.hellos: Queue[power_pb2.Hello] = Queue()
        self.reports: Queue[power_pb2.NodeReport] = Queue()
        self._server: grpc.Server | None = None
        self.target = ""

    def start(self, identity: Identity | None = None, target: str = "127.0.0.1:0") -> None:
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        power_pb2_grpc.add_PowerControlServicer_to_server(self, self._server)
        if identity is None:
            port = self._server.add_insecure_port(target)
        else:
            credentials = grpc.ssl_server_credentials(
                [(identity.key_pem, identity.certificate_pem)]
            )
            port = self._server.add_secure_port(target, credentials)
        self._server.start()
        self.target = f"127.0.0.1:{port}"

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(0).wait(10)

    def Stream(  # noqa: N802 - the name in the proto file
        self, request_iterator: Iterator[power_pb2.AgentMessage], context: grpc.ServicerContext
    ) -> Iterator[power_pb2.ControllerMessage]:
        self.tokens.append(dict(context.invocation_metadata()).get("authorization", ""))
        if self.refuse is not None:
            context.abort(self.refuse, "not today")
        first = next(request_iterator)
        assert first.WhichOneof("body") == "hello"
        self.hellos.put(first.hello)
        if self.mute:
            for _ in request_iterator:
                pass
            return
        if self.welcome_first:
            yield power_pb2.ControllerMessage(
                welcome=power_pb2.Welcome(
                    version=self.version, controller="stub", report_period_ms=self.period_ms
                )
            )
        else:
            yield power_pb2.ControllerMessage(leases=power_pb2.LeaseBatch(epoch=1))
        for message in request_iterator:
            self.reports.put(message.report)
            batch = self.answer(message.report)
            if batch is not None:
                yield power_pb2.ControllerMessage(leases=batch)
