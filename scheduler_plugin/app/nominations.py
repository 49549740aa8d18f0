"""Hints for pods without our gate: ``status.nominatedNodeName``, which kube-scheduler tries first.

A nominated pod also keeps the room that is made for it from less important pods, which is what
kube-scheduler's own preemption relies on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.promises.move_book import Coming, Member
from wattpack.kube.port import PODS, JsonObject, KubeApi, KubeError

__all__ = ["Nominations", "nominated_node"]

log = logging.getLogger(__name__)


def nominated_node(pod: JsonObject) -> str:
    """The node that the pod is nominated to, or empty."""
    return str((pod.get("status") or {}).get("nominatedNodeName") or "")


class Nominations:
    """Sets the hint while room is being made, and takes it back where that is given up.

    Args:
        api: The cluster.
    """

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    def name(self, step: Coming, bodies: Mapping[str, JsonObject]) -> None:
        """Members that wait for kube-scheduler carry their node; a failure is tried again later."""
        for member in step.members:
            body = bodies.get(member.uid)
            if body is None or member.gated or pod_facts.node_name(body):
                continue
            if nominated_node(body) != member.node:
                self._write(member, body, member.node)

    def withdraw(self, step: Coming, bodies: Mapping[str, JsonObject]) -> None:
        """Take our hint back, unless somebody wrote another."""
        for member in step.members:
            body = bodies.get(member.uid)
            if body is None or member.gated or pod_facts.node_name(body):
                continue
            if nominated_node(body) == member.node:
                self._write(member, body, "")

    def _write(self, member: Member, body: JsonObject, node: str) -> None:
        metadata = body["metadata"]
        path = "/status/nominatedNodeName"
        change = (
            {"op": "add", "path": path, "value": node} if node else {"op": "remove", "path": path}
        )
        operations = [{"op": "test", "path": "/metadata/uid", "value": metadata["uid"]}, change]
        space, _, name = member.key.partition("/")
        try:
            self._api.patch_json(PODS, name, operations, space, "status")
        except KubeError as error:
            log.warning("node of %s not nominated: %s", member.key, error)
