"""What requests saw under a policy, against the same requests without one.

A loss is a quantile over the same quantile without a policy, less 1, as POLCA counts; its targets
are p50 < 1 % and p99 < 5 % for high, p50 < 5 % and p99 < 50 % for low priority.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulation.inference_row.batching_servers import BatchingServers
from simulation.inference_row.request_classes import HIGH, LOW, POLCA_CLASSES, RequestClass

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

QUANTILES = (50, 99)


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """Times of requests, each (n,); a request that is not through counts with its age.

    Attributes:
        whole_seconds: From arrival to the last token.
        first_seconds: From arrival to the first token.
        token_seconds: Mean time between two tokens of the answer; NaN before the first.
    """

    whole_seconds: Floats
    first_seconds: Floats
    token_seconds: Floats

    @classmethod
    def of(cls, servers: BatchingServers, end_seconds: float) -> RequestTimes:
        """All requests of a run that ended at a time."""
        requests = servers.requests
        first = np.where(np.isnan(servers.first_seconds), end_seconds, servers.first_seconds)
        done = np.where(np.isnan(servers.done_seconds), end_seconds, servers.done_seconds)
        arrival = requests.arrival_seconds
        between = (done - first) / np.maximum(1.0, requests.output_tokens - 1.0)
        begun = np.isfinite(servers.first_seconds)
        return cls(done - arrival, first - arrival, np.where(begun, between, np.nan))

    def only(self, chosen: Bools) -> RequestTimes:
        """Of some of the requests."""
        return RequestTimes(
            self.whole_seconds[chosen], self.first_seconds[chosen], self.token_seconds[chosen]
        )


def latency_losses(
    run: BatchingServers,
    uncapped: BatchingServers,
    counted: tuple[float, float],
    end_seconds: float,
    classes: tuple[RequestClass, ...] = POLCA_CLASSES,
) -> Mapping[str, float]:
    """Losses by priority and class, such as ``high_whole_p50``; keys end with the quantile.

    Args:
        run: Under a policy.
        uncapped: The same requests without one.
        counted: Arrivals in [begin, end) count.
        end_seconds: When both runs ended.
        classes: Kinds of requests.
    """
    requests = run.requests
    inside = (requests.arrival_seconds >= counted[0]) & (requests.arrival_seconds < counted[1])
    priority = np.array([one.priority for one in classes])[requests.of_class]
    groups: dict[str, Bools] = {
        "high": inside & (priority == HIGH),
        "low": inside & (priority == LOW),
        **{
            one.name.replace("-", "_"): inside & (requests.of_class == k)
            for k, one in enumerate(classes)
        },
    }
    times, plain = RequestTimes.of(run, end_seconds), RequestTimes.of(uncapped, end_seconds)
    losses: dict[str, float] = {}
    for name, chosen in groups.items():
        for kind in ("whole", "first", "token"):
            mine, theirs = (getattr(t, f"{kind}_seconds")[chosen] for t in (times, plain))
            for quantile in QUANTILES:
                losses[f"{name}_{kind}_p{quantile}"] = _loss(mine, theirs, quantile)
    return losses


def _loss(mine: Floats, theirs: Floats, quantile: float) -> float:
    """Quantile over quantile, less 1; NaN where nothing is known."""
    known, plain = mine[np.isfinite(mine)], theirs[np.isfinite(theirs)]
    if not len(known) or not len(plain):
        return float("nan")
    return float(np.percentile(known, quantile) / np.percentile(plain, quantile) - 1.0)
