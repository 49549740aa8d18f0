"""Boards that HAMi shares: how many a node has, and which part of which a running pod holds.

HAMi multiplies ``nvidia.com/gpu`` by the number of pods that may share a board; boards are in an
annotation of the node, and what its scheduler gave a pod in one of the pod. Such pods name that
scheduler, so they are load here, never planned.

Source: HAMi's device plugin and scheduler, annotations ``hami.io/node-nvidia-register`` (JSON since
2.5; before that ``id,count,memory,cores,type,numa,health`` with ``:`` behind each) and
``hami.io/vgpu-devices-allocated`` (``id,type,memory,cores`` with ``:``, and ``;`` behind each
container).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from scheduler_plugin.documents.snapshot import MILLI_PER_GPU
from scheduler_plugin.documents.snapshot_limits import MAX_GPUS
from wattpack.kube.port import JsonObject

__all__ = ["HamiBoards", "registered_boards"]

_REGISTER = "hami.io/node-nvidia-register"
_ALLOCATED = "hami.io/vgpu-devices-allocated"


_ODD_TEXT = (ValueError, KeyError, IndexError, OverflowError)
#: MiB or percent; more is no amount of a board.
_MOST = 2**31


class _Board(NamedTuple):
    """One registered board."""

    id: str
    memory_mib: int


def registered_boards(node: Mapping[str, Any]) -> tuple[_Board, ...] | None:
    """Boards in the order of their annotation; None without one that can be read."""
    text = str(((node.get("metadata") or {}).get("annotations") or {}).get(_REGISTER) or "")
    try:
        found = _from_json(text) if text.startswith("[") else _from_text(text)
    except (*_ODD_TEXT, TypeError, AttributeError, RecursionError):
        return None
    return found[:MAX_GPUS] or None


def _whole(value: Any) -> int:  # noqa: ANN401
    number = int(value)
    if not 0 <= number <= _MOST:
        raise ValueError(value)
    return number


def _from_json(text: str) -> tuple[_Board, ...]:
    return tuple(_Board(str(each["id"]), _whole(each["devmem"])) for each in json.loads(text))


def _from_text(text: str) -> tuple[_Board, ...]:
    rows = [row.split(",") for row in text.split(":") if row.strip()]
    return tuple(_Board(row[0], _whole(row[2])) for row in rows)


class HamiBoards:
    """Of all nodes.

    Args:
        nodes: Node objects.
    """

    def __init__(self, nodes: Iterable[JsonObject]) -> None:
        self._of: dict[str, tuple[_Board, ...]] = {}
        for body in nodes:
            if boards := registered_boards(body):
                self._of[str(body["metadata"]["name"])] = boards

    def of_pod(self, pod: Mapping[str, Any], node: str) -> dict[str, Any]:
        """What a pod holds there, in a snapshot's fields; nothing where HAMi does not say it.

        A pod on parts of several boards holds all of each. Without a limit of cores it may draw
        all of its board.
        """
        text = (pod["metadata"].get("annotations") or {}).get(_ALLOCATED)
        numbers = {board.id: i for i, board in enumerate(self._of.get(node, ()))}
        if not numbers or not text:
            return {}
        rows = [row.split(",") for row in str(text).replace(";", ":").split(":") if row.strip()]
        try:
            held = [(numbers[row[0]], _whole(row[2]), _whole(row[3])) for row in rows]
        except _ODD_TEXT:
            return {}
        boards = sorted({number for number, _, _ in held})
        if len(held) != 1:
            return {"gpu_milli": MILLI_PER_GPU * len(boards), "gpu_boards": tuple(boards)}
        number, memory_mib, cores = held[0]
        of_memory = memory_mib / max(1, self._of[node][number].memory_mib)
        share = math.ceil(MILLI_PER_GPU * max(of_memory, cores / 100))
        share = min(MILLI_PER_GPU, max(1, share))
        drawn = 0 if cores else MILLI_PER_GPU - share
        return {"gpu_milli": share, "gpu_boards": (number,), "drawn_milli": drawn}
