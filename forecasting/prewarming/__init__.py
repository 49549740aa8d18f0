"""Replicas ahead of need.

    minutes of demand ─► minute_needs (demand_features, needed_quantiles) ─► replica_band ─► status
    quantiles of steps ─► replica_need ─► status, where nobody has minutes

``forecasting.app.replica_minutes`` decides each minute, ``forecasting.app.replica_needs`` with each
round; ``benchmarks/decision_value.py`` says what it saves.
"""
