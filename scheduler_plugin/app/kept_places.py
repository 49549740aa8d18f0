"""New members of a promised gang take the places that were kept for them."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler_plugin.app.applier import Applied, Applier
from scheduler_plugin.documents.plan_document import Placement, Plan
from scheduler_plugin.documents.snapshot import Pod
from scheduler_plugin.promises.ledger import Ledger, Reservation
from scheduler_plugin.snapshot_builder import BuiltSnapshot

__all__ = ["claim_kept_places"]


def claim_kept_places(
    built: BuiltSnapshot, ledger: Ledger, applier: Applier
) -> tuple[Applied, dict[str, str]] | None:
    """What became of the releases, and the node by uid; None if there was nothing to take.

    Raises:
        KubeError: if the promises could not be written; all places are kept then.
    """
    pods: Mapping[str, Pod] = {pod.uid: pod for pod in built.snapshot.pods}
    places: dict[str, Reservation] = {}
    for uid in sorted(built.pending) if ledger.reservations else ():
        place = ledger.claim(pods[uid]) if pods[uid].gang else None
        if place is not None:
            places[uid] = place
    if not places:
        return None
    placements = tuple(
        Placement(uid=uid, node=place.node, gang=place.gang) for uid, place in places.items()
    )
    plan = Plan(snapshot_digest=built.snapshot.digest(), method="none", placements=placements)
    try:
        applied = applier.apply(plan, built.snapshot, built.pending)
    finally:
        for uid, place in places.items():
            kept = f"{place.gang}#{uid}" in ledger.reservations
            if uid not in ledger.promises and not kept:
                ledger.reserve(place)
    return applied, {uid: place.node for uid, place in places.items()}
