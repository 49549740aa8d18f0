"""Replicas ahead of need.

    process:  quantiles of steps ─► replica_need ─► status.replicas
    library:  minutes of demand ─► demand_features ─► needed_quantiles ─► priced_replicas

The library forecasts the rate that the coming minutes need (``needed_rate``) for the start's own
horizon; forecasts of ten-minute bins see nothing of them. No process runs it: ``docs/decisions.md``
says what that would take, and ``benchmarks/decision_value.py`` what it saves.
"""
