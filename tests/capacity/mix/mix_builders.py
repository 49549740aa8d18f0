"""Mix problems in a line: a bucket, a shape that serves it, an offer of its type."""

from __future__ import annotations

from collections.abc import Mapping

from capacity.mix.mix_problem import (
    Bucket,
    MixProblem,
    Offer,
    Phase,
    ReplicaShape,
    ServiceRate,
    Tier,
)


def bucket(name: str = "chat", requests_per_second: float = 10.0, **more: object) -> Bucket:
    values: dict[str, object] = {"tier": Tier.BEST_EFFORT, **more}
    return Bucket(name, requests_per_second, **values)  # type: ignore[arg-type]


def shape(
    gpu_model: str,
    rates: Mapping[str, float | ServiceRate] | Mapping[tuple[str, Phase], float | ServiceRate],
    *,
    cap_watts: float = 700.0,
    idle_watts: float = 100.0,
    **more: object,
) -> ReplicaShape:
    """Serves each bucket whole at that rate, busy at its cap."""

    def rate(value: float | ServiceRate) -> ServiceRate:
        if isinstance(value, ServiceRate):
            return value
        return ServiceRate(value, value, cap_watts)

    keyed = {
        key if isinstance(key, tuple) else (key, Phase.WHOLE): rate(value)
        for key, value in rates.items()
    }
    values: dict[str, object] = {
        "name": f"{gpu_model}@{cap_watts:g}",
        "gpus": 1,
        "p99_watts": cap_watts * 1.1,
        **more,
    }
    return ReplicaShape(
        gpu_model=gpu_model,
        cap_watts=cap_watts,
        idle_watts=idle_watts,
        rates=keyed,
        **values,  # type: ignore[arg-type]
    )


def offer(gpu_model: str, dollars: float, gpus: int = 100, **more: object) -> Offer:
    values: dict[str, object] = {"name": gpu_model.lower(), **more}
    return Offer(  # type: ignore[misc]
        gpu_model=gpu_model,
        gpus=gpus,
        dollars_per_gpu_hour=dollars,
        **values,  # type: ignore[arg-type]
    )


def toy(requests_per_second: float = 30.0) -> MixProblem:
    """The toy example of melange-release (melange/config/example.json at ebba701): figures only."""
    names = ("ss", "sl", "ls", "ll")
    return MixProblem(
        tuple(
            bucket(name, requests_per_second * share)
            for name, share in zip(names, (0.2, 0.1, 0.5, 0.2), strict=True)
        ),
        (
            shape("A10G", dict(zip(names, (2.0, 1.0, 5.0, 2.0), strict=True)), cap_watts=300.0),
            shape("A100", dict(zip(names, (20.0, 20.0, 40.0, 20.0), strict=True)), cap_watts=400.0),
        ),
        (offer("A10G", 1.01), offer("A100", 3.67)),
    )
