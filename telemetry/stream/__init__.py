"""The stream to the controllers: the port here, gRPC in ``telemetry.stream.grpc_link``."""

from telemetry.stream.controller_link import Backoff, Link

__all__ = ["Backoff", "Link"]
