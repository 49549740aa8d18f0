"""History from Prometheus or anything with its query API."""

from forecasting.prometheus.source import PrometheusSource

__all__ = ["PrometheusSource"]
