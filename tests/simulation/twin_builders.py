"""Small rows that a test can run in a second or two."""

from __future__ import annotations

from simulation.scenario import Scenario, load_scenario


def small_scenario(**overrides: object) -> Scenario:
    """Eight servers behind a breaker for six, all kinds of work, a minute long."""
    values: dict[str, object] = {
        "name": "small",
        "duration_seconds": 30.0,
        "warmup_seconds": 30.0,
        "trace_rate_factor": 7.0,
        "row": {
            "groups": [
                {"gpu_model": "H200-SXM", "count": 6},
                {"gpu_model": "H100-SXM", "count": 2},
            ],
            "racks": 2,
            "rated_servers": 6.0,
            "rack_rated_servers": 3.5,
            "external_watts": 0.0,
        },
        "services": [
            {"name": "chat", "trace": "conversation", "priority_class": "high", "replicas": 4},
            {"name": "summarise", "trace": "code", "priority_class": "low", "replicas": 3},
        ],
        "training": [{"name": "pretrain", "pods": 2}],
        "batch": {"pods_per_hour": 120.0, "initial_pods": 12, "min_duration_seconds": 30.0},
        "history": {"days": 2},
    }
    return load_scenario(None, **(values | overrides))
