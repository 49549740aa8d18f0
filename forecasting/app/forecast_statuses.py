"""Writes the status of DemandForecast objects; rounds and verdicts share it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from forecasting.app.forecast_metrics import ForecastMetrics
from forecasting.forecast_status import conditions
from wattpack.api.demand_forecast import DemandForecast
from wattpack.kube.port import ConflictError, JsonObject, KubeApi, KubeError, NotFoundError
from wattpack.times import rfc3339
from wattpack.units import seconds_to_ns

FIELD_MANAGER: Final = "wattpack-forecaster"

log = logging.getLogger(__name__)


class ForecastStatuses:
    """One forecaster's pen.

    Args:
        kube: Where the objects live.
        metrics: Count what could not be written.
    """

    def __init__(self, kube: KubeApi, metrics: ForecastMetrics) -> None:
        self._kube, self._metrics = kube, metrics

    def say(
        self,
        body: JsonObject,
        reason: str,
        message: str,
        now_seconds: float,
        *,
        accepted: bool = True,
        version: str = "",
    ) -> bool:
        """Keep the last status but mark it not ready; False if it could not be written."""
        status = dict(body.get("status") or {})
        generation = int(body.get("metadata", {}).get("generation", 0))
        status["observedGeneration"] = generation
        judged = conditions(generation, reason, message, accepted=accepted)
        status["conditions"] = [condition.to_json() for condition in judged]
        return self.put(body, status, now_seconds, version=version)

    def put(
        self, body: JsonObject, status: dict[str, Any], now_seconds: float, *, version: str = ""
    ) -> bool:
        """Write a status, with the time at which each condition last changed.

        Args:
            body: The object as it was read.
            status: What to write.
            now_seconds: Unix time.
            version: Only over this ``resourceVersion``; empty for whatever is there.
        """
        before = {c.get("type"): c for c in (body.get("status") or {}).get("conditions", ())}
        for condition in status.get("conditions", ()):
            old = before.get(condition["type"], {})
            same = old.get("status") == condition["status"] and old.get("lastTransitionTime")
            condition["lastTransitionTime"] = (
                old["lastTransitionTime"] if same else rfc3339(seconds_to_ns(now_seconds))
            )
        namespace, name = key_of(body)
        resource = DemandForecast.meta.resource
        request = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "namespace": namespace}
            | ({"resourceVersion": version} if version else {}),
            "status": status,
        }
        try:
            self._kube.apply(
                resource, request, field_manager=FIELD_MANAGER, namespace=namespace,
                subresource="status",
            )  # fmt: skip
        except NotFoundError:
            return True
        except ConflictError:
            log.info("%s/%s was written by somebody else meanwhile", namespace, name)
            return False
        except KubeError as error:
            log.warning("cannot write %s/%s: %s", namespace, name, error)
            self._metrics.failed(error)
            return False
        return True


def key_of(body: Mapping[str, Any]) -> tuple[str, str]:
    """Namespace and name of an object."""
    metadata = body.get("metadata", {})
    return (str(metadata.get("namespace", "")), str(metadata.get("name", "")))
