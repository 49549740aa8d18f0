"""What a pod would rather have of a node, in the weights of core/v1."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler_plugin.documents.node_rules import TaintEffect
from scheduler_plugin.documents.snapshot import Pod
from scheduler_plugin.rules.matching import tolerates
from scheduler_plugin.rules.node_kinds import NodeKinds

__all__ = ["unmet_preferences"]

SOFT_TAINT_WEIGHT: Final = 100
"""Of a PreferNoSchedule taint that a pod does not tolerate: of the heaviest preferred term
(assumed; kube-scheduler weighs all taints together 3 to 2 against all terms together)."""


def unmet_preferences(kinds: NodeKinds, pod: Pod) -> npt.NDArray[np.int64]:
    """Weights of preferred affinity that nodes do not fulfil, and of taints minded there, (n,)."""
    soft = (taint for taint in kinds.taints if taint.effect is TaintEffect.PREFER_NO_SCHEDULE)
    minded = {taint for taint in soft if not tolerates(pod.tolerations, taint)}
    unmet = kinds.amounts(lambda node: sum(taint in minded for taint in node.taints))
    unmet = SOFT_TAINT_WEIGHT * unmet
    for wish in pod.preferences:
        unmet += wish.weight * ~kinds.labels.matches(wish.term)[kinds.of_node]
    return unmet
