"""What operators want, kept by informers: domains, policies, overrides, forecasts, pods.

``DesiredState.topology(fleet)`` builds the arrays anew whenever an object or the fleet changed.
A change that would break I1 or that cannot be understood is not accepted: what ran before runs on
(``acceptedSpec``), and the refusal becomes the object's ``Accepted`` condition.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError

from controller.app.fleet import Fleet
from controller.model import Topology
from wattpack.api import ApiObject, DemandForecast, PowerDomain, PowerOverride, PowerPolicy
from wattpack.errors import InputError, WattpackError
from wattpack.kube.port import JsonObject

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an object's newest spec does not run."""

    kind: str
    name: str
    reason: str
    message: str
    generation: int


@dataclass(slots=True)
class Desired:
    """Parsed objects by name; a pod by UID."""

    domains: dict[str, PowerDomain] = field(default_factory=dict)
    policies: dict[str, PowerPolicy] = field(default_factory=dict)
    overrides: dict[str, PowerOverride] = field(default_factory=dict)
    forecasts: dict[str, DemandForecast] = field(default_factory=dict)
    priority_classes: dict[str, JsonObject] = field(default_factory=dict)
    pods: dict[str, JsonObject] = field(default_factory=dict)
