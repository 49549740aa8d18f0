"""Forecasters of step quantiles behind one interface, each of which may be absent.

``last_day`` and ``naive`` answer from the first day, ``direct_ridge`` serves any number of series,
``boosted`` learns from all of them together, ``smoothing`` knows regular days. They are
``forecasting.forecaster.Forecaster``s; why there are several: ADR 39. Nothing heavy is imported
before it is used.
"""
