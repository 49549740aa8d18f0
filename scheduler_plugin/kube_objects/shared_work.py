"""What pods that share boards do there, as a snapshot says it: kinds of work, shares, slow-downs.

pod ─┬─ label, classified profile ─> kind of work ─> measured pairs of the GPU type ─> slow-downs
     └─ annotations, else the work's kernel mix ──> shares of a board
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from capacity.catalogue.pod_works import KnownWork, PodWorks
from capacity.interference.board_share import BoardShare, share_of_mix
from capacity.interference.pair_model import SharedJob
from capacity.interference.shared_speeds import SharedSpeeds
from scheduler_plugin.documents.snapshot import Node, SlowDown
from scheduler_plugin.kube_objects.shared_amounts import asked_milli, shares_boards
from wattpack.errors import InputError
from wattpack.object_names import BATCH_SIZE_ANNOTATION, WORKLOAD_LABEL

_MOST_MILLI = 100_000
MAX_KINDS = 48
"""Kinds of work of a GPU type whose pairs a snapshot holds, those of most pods first: batch sizes
are what pods say, and the number of pairs is the square. Of the others shares count."""


class SharedWork:
    """Reads the pods of one snapshot and remembers which kinds of work it met.

    Args:
        works: What kind of work a pod does.
        speeds: What kinds of work do to one another.
        nodes: Of the snapshot.
    """

    def __init__(self, works: PodWorks, speeds: SharedSpeeds, nodes: Iterable[Node]) -> None:
        self._works, self._speeds = works, speeds
        self._models = sorted({node.gpu_model for node in nodes if shares_boards(node.resources)})
        self._met: Counter[SharedJob] = Counter()

    def of_pod(
        self, body: Mapping[str, Any], requests: Mapping[str, int]
    ) -> tuple[str, dict[str, int]]:
        """Its kind of work and thousandths of a board that it keeps busy; nothing of other pods.

        Raises:
            InputError: naming the annotation that makes no sense.
        """
        if not shares_boards(requests):
            return "", {}
        annotations = body["metadata"].get("annotations") or {}
        work = self._works.of_pod(body)
        sure = work if work is not None and work.is_sure else None
        asked = asked_milli(requests, annotations, self._share(sure))
        name = (body["metadata"].get("labels") or {}).get(WORKLOAD_LABEL) or ""
        if not name and sure is not None and sure.entry is not None:
            name = sure.entry.name
        if not isinstance(name, str) or not name:
            return "", asked
        job = SharedJob(name, _batch_size(annotations))
        self._met[job] += 1
        return job_name(job), asked

    def slow_downs(self) -> tuple[SlowDown, ...]:
        """What the kinds of work that were met do to one another, as far as it is known."""
        said: dict[tuple[str, str, str], int] = {}
        for model in self._models:
            known = [job for job in self._met if self._speeds.knows(model, job)]
            known.sort(key=lambda job: (-self._met[job], job_name(job)))
            pairs = self._speeds.slow_downs(model, known[:MAX_KINDS])
            for (one, other), (slow, other_slow) in pairs.items():
                said[model, job_name(one), job_name(other)] = _milli(slow)
                said[model, job_name(other), job_name(one)] = _milli(other_slow)
        return tuple(
            SlowDown(gpu_model=model, work=one, beside=other, slow_down_milli=milli)
            for (model, one, other), milli in said.items()
        )

    def _share(self, work: KnownWork | None) -> BoardShare | None:
        """The largest on the types that share boards here; None if the work is unknown."""
        if work is None:
            return None
        mixes = [mix for model in self._models if (mix := work.mix(model)) is not None]
        shares = [share_of_mix(mix) for mix in mixes]
        if not shares:
            return None
        return BoardShare(max(s.compute for s in shares), max(s.bandwidth for s in shares))


def job_name(job: SharedJob) -> str:
    """The kind of work in a snapshot."""
    return job.model if job.batch_size == 1 else f"{job.model}#{job.batch_size}"


def _milli(slow_down: float) -> int:
    return min(_MOST_MILLI, round(1000.0 * slow_down))


def _batch_size(annotations: Mapping[str, str]) -> int:
    text = annotations.get(BATCH_SIZE_ANNOTATION, "1")
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text)):
        field = f"metadata.annotations.{BATCH_SIZE_ANNOTATION}"
        raise InputError(field, "a whole number from 1 to 999999999", text)
    return int(text)
