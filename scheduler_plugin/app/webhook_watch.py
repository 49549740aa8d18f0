"""Looks whether the cluster asks our webhook at all: in Manage, pods pass us by where it does not.

The webhook fails open, so that nobody notices from pods: they start as if wattpack were not there.
"""

from __future__ import annotations

import base64
import binascii
import logging

from scheduler_plugin.app.placement_metrics import PlacementMetrics
from scheduler_plugin.kube_objects.admission import Mode
from wattpack.clock import Clock
from wattpack.kube.port import MUTATING_WEBHOOKS, KubeApi, KubeError, NotFoundError
from wattpack.periodic import PeriodicThread
from wattpack.units import NS_PER_SECOND

log = logging.getLogger(__name__)
PERIOD_NS = 10 * NS_PER_SECOND


class WebhookWatch(PeriodicThread):
    """Sets ``wattpack_placement_webhook_missing`` every ten seconds.

    Args:
        api: The cluster.
        clock: Paces the thread.
        mode: In all but Manage no webhook is wanted.
        name: Of the MutatingWebhookConfiguration.
        metrics: Where it is told.
    """

    def __init__(
        self, api: KubeApi, clock: Clock, mode: Mode, name: str, metrics: PlacementMetrics
    ) -> None:
        super().__init__(clock, "webhook watch", PERIOD_NS)
        self._api, self._mode, self._name, self._metrics = api, mode, name, metrics
        self._told = ""

    def run_once(self) -> None:
        """Look once; while the API does not answer, the last finding stands."""
        try:
            missing = self._missing() if self._mode is Mode.MANAGE else ""
        except KubeError as error:
            log.info("webhook %s not looked at: %s", self._name, error)
            return
        self._metrics.webhook_missing.set(bool(missing))
        if missing and missing != self._told:
            log.error("pods pass placement by: %s", missing)
        self._told = missing

    def _missing(self) -> str:
        """Why the API server cannot ask us; empty if it can."""
        try:
            body = self._api.get(MUTATING_WEBHOOKS, self._name)
        except NotFoundError:
            return f"there is no MutatingWebhookConfiguration {self._name}"
        entries = body.get("webhooks") or ()
        if not entries:
            return f"MutatingWebhookConfiguration {self._name} has no webhooks"
        for entry in entries:
            bundle = (entry.get("clientConfig") or {}).get("caBundle") or ""
            try:
                pem = base64.b64decode(bundle, validate=True)
            except (binascii.Error, ValueError):
                pem = b""
            if b"-----BEGIN CERTIFICATE-----" not in pem:
                return f"webhook {entry.get('name')} of {self._name} has no caBundle"
        return ""
