"""A kubelet that answers what a test wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from telemetry.attribution.kubelet import METHOD
from wattpack.wire.v1 import podresources_pb2 as messages

Serve = Callable[[Callable[..., messages.ListPodResourcesResponse]], Path]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    servers = []

    def start(answer: Callable[..., messages.ListPodResourcesResponse]) -> Path:
        handler = grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=messages.ListPodResourcesRequest.FromString,
            response_serializer=messages.ListPodResourcesResponse.SerializeToString,
        )
        service, method = METHOD.strip("/").split("/")
        server = grpc.server(futures.ThreadPoolExecutor(1))
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {method: handler}),)
        )
        server.add_insecure_port(f"unix://{tmp_path}/kubelet.sock")
        server.start()
        servers.append(server)
        return tmp_path / "kubelet.sock"

    yield start
    for server in servers:
        server.stop(0)
