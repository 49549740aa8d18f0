"""Forecasters of step quantiles behind one interface, each of which may be absent.

``last_day`` and ``naive`` answer from the first day, ``direct_ridge`` is the workhorse. They are
``forecasting.forecaster.Forecaster``s; why there are several: ADR 39. Nothing heavy is imported
before it is used.
"""
