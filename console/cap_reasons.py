"""Why a GPU is capped, in one sentence with its figures: the answer behind every cap."""

from __future__ import annotations

from controller.tick_values import CapReason
from wattpack.errors import InputError
from wattpack.live_view import LiveDomain, LiveView

_SENTENCES = {
    CapReason.NOT_CAPPED: "It is not capped: its limit is what its work asks for.",
    CapReason.DOMAIN_BAND: (
        "{domain} drew {draw:,.0f} W against a cap band of {band_watts:,.0f} W, and work of "
        "priority {priority} is reduced before anything more important. It is lifted once "
        "{domain} stays below its release level."
    ),
    CapReason.SURVIVABLE_JUMP: (
        "If every GPU below {domain} reached its cap at once it would draw {worst:,.0f} W "
        "against a rating of {rating:,.0f} W, more than the breaker survives until leases end (I2)."
    ),
    CapReason.BRAKE: (
        "{domain} is in the brake: breaker heat {heat:.2f}, draw {draw:,.0f} W against a rating "
        "of {rating:,.0f} W. Every GPU below it holds its guaranteed cap."
    ),
    CapReason.WAITING_FOR_READ_BACK: (
        "The power that it will get is still held by another GPU whose lower cap has not been "
        "read back yet (I6)."
    ),
    CapReason.RAISE_RATE: "{domain} is restoring caps slowly, so that the load cannot bounce.",
    CapReason.OVERRIDE: "A PowerOverride caps it by hand.",
    CapReason.STARTING: "A new leader raises nothing until one lease has passed (I4).",
    CapReason.UNCONTROLLED: (
        "Its node sends no fresh report or has no actuator, so it is budgeted at its default limit."
    ),
    CapReason.DRY_RUN: "It would be capped, but {domain} is in DryRun: nothing is written.",
}


def explain_gpu(view: LiveView, uuid: str) -> dict[str, object]:
    """The sentence and the figures behind it.

    Raises:
        InputError: for a GPU that is not in the view.
    """
    try:
        index = view.gpus.uuid.index(uuid)
    except ValueError as error:
        raise InputError("uuid", "a GPU in the live view", uuid) from error
    gpus = view.gpus
    reason = CapReason(gpus.reason[index])
    binding = gpus.binding_domain[index]
    domain = view.domains[binding] if binding >= 0 else _domain_of(view, gpus.rack[index])
    sentence = _SENTENCES[reason].format(
        domain=domain.name,
        draw=domain.draw_watts,
        band_watts=domain.cap_band_watts,
        worst=domain.worst_watts,
        rating=domain.rating_watts,
        heat=domain.heat,
        priority=gpus.priority[index],
    )
    return {
        "uuid": uuid,
        "node": gpus.node[index],
        "rack": gpus.rack[index],
        "model": gpus.model[index],
        "pod": gpus.pod[index],
        "priority": gpus.priority[index],
        "drawWatts": gpus.draw_watts[index],
        "limitWatts": gpus.limit_watts[index],
        "requestWatts": gpus.request_watts[index],
        "reason": reason.name,
        "bindingDomain": domain.name if binding >= 0 else None,
        "sentence": sentence,
        "tick": view.tick,
        "epoch": view.epoch,
    }


def _domain_of(view: LiveView, name: str) -> LiveDomain:
    """The domain of that name; a view always carries the domain above each GPU."""
    return next(domain for domain in view.domains if domain.name == name)
