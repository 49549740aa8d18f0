"""History from Prometheus or anything with its query API."""

from forecasting.prometheus.query import BadAnswerError, QueryApi
from forecasting.prometheus.range_source import PrometheusSource

__all__ = ["BadAnswerError", "PrometheusSource", "QueryApi"]
