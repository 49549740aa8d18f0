"""Forecasts of a tree of series that add up: cluster, domain, service.

Totals are forecast directly, since errors of many bursty leaves cancel in them, and what they say
is pushed down (MinT). Sums are kept path by path, so that a quantile of a sum is never a sum of
quantiles: that reserved 3.1 times the realised peak on four cluster totals.
"""
