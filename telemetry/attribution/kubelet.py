"""The kubelet's pod-resources API over its Unix socket: which pod was given which GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc

from telemetry.attribution.claimed_devices import claimed_gpus
from telemetry.attribution.device_grants import KUBELET_SOCKET, DeviceGrant
from wattpack.errors import DeadlineExceededError, PermanentError, TransientError
from wattpack.gpu_resources import gpu_kind
from wattpack.wire.v1 import podresources_pb2 as messages

METHOD = "/v1.PodResourcesLister/List"
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""A node with 250 pods answers some 100 KiB; what is far beyond is no kubelet."""


def grants(answer: messages.ListPodResourcesResponse) -> tuple[DeviceGrant, ...]:
    """Every GPU grant in the kubelet's answer, in its order; devices of claims by their names."""
    return tuple(
        DeviceGrant(pod.namespace, pod.name, container.name, resource, device_id)
        for pod in answer.pod_resources
        for container in pod.containers
        for resource, device_id in (*_of_plugins(container), *_of_claims(container))
    )


def _of_plugins(container: messages.ContainerResources) -> Iterator[tuple[str, str]]:
    for devices in container.devices:
        if gpu_kind(devices.resource_name) is not None:
            for device_id in devices.device_ids:
                yield devices.resource_name, device_id


def _of_claims(container: messages.ContainerResources) -> Iterator[tuple[str, str]]:
    for claim in container.dynamic_resources:
        for entry in claim.claim_resources:
            cdi_names = [device.name for device in entry.cdi_devices]
            yield from claimed_gpus(entry.driver_name, entry.device_name, cdi_names)


class PodResources:
    """A client of one kubelet."""

    def __init__(self, socket: Path = KUBELET_SOCKET, *, timeout_seconds: float = 1.0) -> None:
        self._timeout_seconds = timeout_seconds
        self._socket = socket
        self._channel = grpc.insecure_channel(
            f"unix://{socket}", options=[("grpc.max_receive_message_length", MAX_MESSAGE_BYTES)]
        )
        self._list = self._channel.unary_unary(
            METHOD,
            request_serializer=messages.ListPodResourcesRequest.SerializeToString,
            response_deserializer=messages.ListPodResourcesResponse.FromString,
        )

    def list(self) -> tuple[DeviceGrant, ...]:
        """Every GPU that a pod on this node holds.

        Raises:
            DeadlineExceededError: the kubelet did not answer in time.
            TransientError: it does not answer now.
            PermanentError: it does not offer this API, or refuses this process.
        """
        try:
            answer = self._list(messages.ListPodResourcesRequest(), timeout=self._timeout_seconds)
        except grpc.RpcError as error:
            code = error.code()
            text = f"kubelet at {self._socket}: {code.name}: {error.details()}"
            if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise DeadlineExceededError(text) from error
            if code in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.PERMISSION_DENIED):
                raise PermanentError(text) from error
            raise TransientError(text) from error
        return grants(answer)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()
