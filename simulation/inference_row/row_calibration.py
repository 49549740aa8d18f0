"""The frozen constants of the inference row, fitted to published marks without any policy.

A change of them needs an ADR and every baseline again; their hash is in every result.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Final

from simulation.inference_row.client_arrivals import ClientArrivals
from simulation.inference_row.request_lengths import LENGTHS, LengthsName
from simulation.inference_row.row_power import RATED_SERVERS
from wattpack.documents import parse_json
from wattpack.errors import InputError
from wattpack.units import require_number

FILES: Final[dict[LengthsName, str]] = {
    "published": "calibration.json",
    "azure": "azure_calibration.json",
}


@dataclass(frozen=True, slots=True)
class Marks:
    """What POLCA publishes of a production row of 40 servers in six weeks, shares of its rating.

    Source: POLCA (arXiv 2308.12908), characterisation of the inference row, read second-hand.
    """

    peak: float = 0.79
    rise_2_seconds: float = 0.09
    rise_40_seconds: float = 0.118


PUBLISHED = Marks()


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fitted constants.

    Attributes:
        load: Rate at the weekday's peak over what full servers can answer.
        burst_cv: Coefficient of variation of the gaps between a client's requests.
        sha256: Of the file, first 12 digits.
        lengths: Of prompts and answers, for which they were fitted.
    """

    load: float
    burst_cv: float
    sha256: str
    lengths: LengthsName = "published"

    def arrivals(
        self, n_servers: int = RATED_SERVERS, *, seed: int, hotter: float = 0.0
    ) -> ClientArrivals:
        """Requests of a row of so many servers, each as busy as the published row's.

        Args:
            n_servers: Of the row.
            seed: Of clients and requests.
            hotter: Share by which the load is raised.
        """
        return ClientArrivals(
            n_servers,
            load=self.load * (1.0 + hotter),
            burst_cv=self.burst_cv,
            seed=seed,
            lengths=LENGTHS[self.lengths],
        )


@lru_cache(maxsize=2)
def frozen_calibration(lengths: LengthsName = "published") -> Calibration:
    """The shipped constants for requests of these lengths.

    Raises:
        InputError: for a damaged file.
    """
    file = FILES[lengths]
    data = (resources.files("simulation") / "data" / "inference_row" / file).read_bytes()
    document = parse_json(data.decode("utf-8"), file)
    if not isinstance(document, dict) or not isinstance(document.get("constants"), dict):
        raise InputError("constants", "a mapping", document, file)
    fitted = {
        name: require_number(name, document["constants"].get(name), exclusive_minimum=0.0)
        for name in ("load", "burst_cv")
    }
    return Calibration(**fitted, sha256=hashlib.sha256(data).hexdigest()[:12], lengths=lengths)
