"""What a domain in DryRun would hold is told apart from what is held, everywhere it is told."""

from __future__ import annotations

import numpy as np
import pytest

from controller.app.controller_metrics import ControllerMetrics
from controller.cap_reason import CapReason
from tests.console.test_caps_lift_as_told import HOT, view_of
from tests.controller.obedient_row import ObedientRow, big_topology

CAPPED = "wattpack_domain_capped_gpus"
WOULD_BE = "wattpack_domain_would_be_capped_gpus"


def hot_row(*, enforce: bool) -> ObedientRow:
    topology = big_topology(enforce=enforce)
    row = ObedientRow(topology, gpu_controlled=np.full(topology.n_gpus, enforce))
    row.run(60)
    row.caps[:] = 700.0
    row.demand[:] = HOT
    row.run(3)
    return row


def exported(row: ObedientRow) -> dict[str, dict[str, float]]:
    """Both figures by domain."""
    metrics = ControllerMetrics()
    metrics.observe(row.topology, row.seen, row.decisions)
    found: dict[str, dict[str, float]] = {CAPPED: {}, WOULD_BE: {}}
    for family in metrics.registry.collect():
        for sample in family.samples:
            if sample.name in found:
                found[sample.name][sample.labels["domain"]] = sample.value
    return found


@pytest.mark.parametrize("enforce", [True, False])
def test_only_caps_that_hold_are_counted_as_held(enforce: bool) -> None:
    row = hot_row(enforce=enforce)
    some = int(np.isin(row.decisions.reason, (CapReason.DOMAIN_BAND, CapReason.DRY_RUN)).sum())
    assert some > 0
    held, would_be = (some, 0) if enforce else (0, some)
    top = row.topology.tree.names[0]
    told = exported(row)
    assert (told[CAPPED][top], told[WOULD_BE][top]) == (held, would_be)
    view = view_of(row).domains[0]
    assert (view.capped_gpus, view.would_be_capped_gpus) == (held, would_be)


def test_every_gpu_below_its_request_is_counted_once() -> None:
    row = hot_row(enforce=True)
    reason = row.decisions.reason
    reason[::3] = CapReason.DRY_RUN
    told = view_of(row).domains[0]
    assert told.would_be_capped_gpus == len(reason[::3])
    assert told.capped_gpus + told.would_be_capped_gpus == (reason != CapReason.NOT_CAPPED).sum()
