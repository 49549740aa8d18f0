"""Who answers requests in a run: its services, or the classes of an inference row.

Accounts, forecasts and pods name them alike; only what they are asked, and their queues, differ.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulation.inference_row.request_classes import LOW, POLCA_CLASSES, class_of_servers
from simulation.scenario import Scenario


class RequestWorkload(NamedTuple):
    """One kind of requests with replicas of its own.

    Attributes:
        name: Also of its pods and its series.
        priority_class: PriorityClass name.
        replicas: Pods.
        gpus: Of one replica.
    """

    name: str
    priority_class: str
    replicas: int
    gpus: int


def request_workloads(scenario: Scenario) -> tuple[RequestWorkload, ...]:
    """In the order in which accounts number them."""
    settings, row = scenario.inference_row, scenario.row
    if settings is None:
        return tuple(
            RequestWorkload(one.name, one.priority_class, one.replicas, one.tensor_parallel)
            for one in scenario.services
        )
    of_server = class_of_servers(row.servers)
    return tuple(
        RequestWorkload(
            one.name,
            settings.low_priority_class if one.priority == LOW else settings.high_priority_class,
            int(np.count_nonzero(of_server == k)),
            row.gpus_per_server,
        )
        for k, one in enumerate(POLCA_CLASSES)
    )
