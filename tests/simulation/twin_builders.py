"""Small rows that a test can run in a second or two."""

from __future__ import annotations

from simulation.scenario import Scenario, load_scenario


def small_scenario(**overrides: object) -> Scenario:
    """Four servers behind a breaker for three, all kinds of work, forty seconds long."""
    values: dict[str, object] = {
        "name": "small",
        "duration_seconds": 20.0,
        "warmup_seconds": 20.0,
        "trace_rate_factor": 4.0,
        "row": {
            "groups": [
                {"gpu_model": "H200-SXM", "count": 3},
                {"gpu_model": "H100-SXM", "count": 1},
            ],
            "racks": 2,
            "rated_servers": 3.2,
            "rack_rated_servers": 1.8,
            "external_watts": 0.0,
        },
        "services": [
            {"name": "chat", "trace": "conversation", "priority_class": "high", "replicas": 2},
            {"name": "summarise", "trace": "code", "priority_class": "low", "replicas": 1},
        ],
        "training": [{"name": "pretrain", "pods": 2, "gpus_per_pod": 4}],
        "batch": {"pods_per_hour": 120.0, "initial_pods": 6, "min_duration_seconds": 30.0},
        "history": {"days": 2},
    }
    return load_scenario(None, **(values | overrides))
