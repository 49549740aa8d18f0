"""Manage without a webhook that the API server can ask is told, because pods do not tell it."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from scheduler_plugin.app.placement_metrics import PlacementMetrics
from scheduler_plugin.app.webhook_watch import WebhookWatch
from scheduler_plugin.kube_objects.admission import Mode
from simulation.kube.embedded_api import EmbeddedKube
from wattpack.clock import ManualClock
from wattpack.kube.fault_injection import FaultRates, FaultyKube
from wattpack.kube.port import MUTATING_WEBHOOKS, JsonObject, KubeApi

NAME = "wattpack-placement"
PEM = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nx\n").decode()


def configuration(*webhooks: JsonObject) -> JsonObject:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": list(webhooks),
    }


def webhook(**client: Any) -> JsonObject:
    return {"name": "placement.wattpack.io", "clientConfig": client}


def missing(body: JsonObject | None, mode: Mode = Mode.MANAGE) -> float | None:
    """The gauge after one look."""
    clock = ManualClock()
    api = EmbeddedKube(clock)
    if body is not None:
        api.create(MUTATING_WEBHOOKS, body)
    return looked_at(api, clock, mode, PlacementMetrics())


def looked_at(
    api: KubeApi, clock: ManualClock, mode: Mode, metrics: PlacementMetrics
) -> float | None:
    WebhookWatch(api, clock, mode, NAME, metrics).run_once()
    return metrics.registry.get_sample_value("wattpack_placement_webhook_missing")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (None, 1.0),
        (configuration(), 1.0),
        (configuration(webhook()), 1.0),
        (configuration(webhook(caBundle="")), 1.0),
        (configuration(webhook(caBundle="not base64!")), 1.0),
        (configuration(webhook(caBundle=base64.b64encode(b"no certificate").decode())), 1.0),
        (configuration(webhook(caBundle=PEM), webhook()), 1.0),
        (configuration(webhook(caBundle=PEM)), 0.0),
    ],
)
def test_manage_wants_a_webhook_that_can_be_asked(body: JsonObject | None, expected: float) -> None:
    assert missing(body) == expected


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.SHADOW])
def test_other_modes_want_none(mode: Mode) -> None:
    assert missing(None, mode) == 0.0


def test_while_the_api_does_not_answer_the_last_finding_stands() -> None:
    clock, metrics = ManualClock(), PlacementMetrics()
    api = EmbeddedKube(clock)
    assert looked_at(api, clock, Mode.MANAGE, metrics) == 1.0
    silent = FaultyKube(api, FaultRates(server_error=1.0), seed=1)
    assert looked_at(silent, clock, Mode.MANAGE, metrics) == 1.0
