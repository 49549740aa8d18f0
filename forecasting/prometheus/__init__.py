"""History from Prometheus or anything with its query API."""

from forecasting.prometheus.query import BadAnswerError, QueryApi
from forecasting.prometheus.source import PrometheusSource

__all__ = ["BadAnswerError", "PrometheusSource", "QueryApi"]
