"""Rows that policies are held against each other on: the published one, and rows of newer boards.

The rows of H100 and H200 are as busy as first tokens allow (p99 of 0.5 s in the hottest hours,
without a policy) and provisioned in two ways: 40 nameplates, or 40 times what the row of 40 was
measured to peak at, where oversubscription that a static row gets for nothing is spent already.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Final

from capacity.phase_times import A100_MODEL, ServerTimes, bloom_on_a100
from capacity.step_table_times import step_table_times
from simulation.inference_row.client_arrivals import ClientArrivals
from simulation.inference_row.request_lengths import LENGTHS, LengthsName
from simulation.inference_row.row_calibration import frozen_calibration
from simulation.inference_row.row_power import GPU_SHARE, ServerPower
from wattpack.documents import parse_json
from wattpack.errors import InputError
from wattpack.units import require_number

FILE: Final = "served_rows.json"
NAMEPLATE_WATTS: Final = 10_200.0
"""DGX-H100 and DGX-H200, AC: the data sheets' highest system power."""

MEMORY_BYTES: Final = {"H100-SXM": 80e9, "H200-SXM": 141e9}
PUBLISHED: Final = "a100"
AZURE_LENGTHS: Final = "a100_azure_lengths"
ROWS: Final = (
    PUBLISHED,
    AZURE_LENGTHS,
    "h100_nameplate",
    "h100_peak",
    "h200_nameplate",
    "h200_peak",
)


@dataclass(frozen=True, slots=True)
class ServedRow:
    """A kind of row.

    Attributes:
        name: One of ``ROWS``.
        times: What its servers take and draw.
        power: The servers around the boards, and what 40 of them are provisioned for.
        load: Rate at the weekday's peak over what full servers can answer.
        burst_cv: Coefficient of variation of the gaps between a client's requests.
        sha256: Of the constants, first 12 digits.
        lengths: Of prompts and answers.
    """

    name: str
    times: ServerTimes
    power: ServerPower
    load: float
    burst_cv: float
    sha256: str
    lengths: LengthsName = "published"

    def arrivals(self, n_servers: int, *, seed: int, hotter: float = 0.0) -> ClientArrivals:
        """Requests of a row of so many servers, each as busy as in the row of 40.

        Args:
            n_servers: Of the row.
            seed: Of clients and requests.
            hotter: Share by which the load is raised.
        """
        load = self.load * (1.0 + hotter)
        return ClientArrivals(
            n_servers,
            load=load,
            burst_cv=self.burst_cv,
            seed=seed,
            times=self.times,
            lengths=LENGTHS[self.lengths],
        )


def served_row(name: str, gpu_share: float = GPU_SHARE) -> ServedRow:
    """A row by its name.

    Args:
        name: One of ``ROWS``.
        gpu_share: GPUs' draw over the server's at full load, of the published row.

    Raises:
        InputError: for another name, or a damaged file.
    """
    if name not in ROWS:
        raise InputError("row", f"one of {', '.join(ROWS)}", name)
    frozen = frozen_calibration("azure" if name == AZURE_LENGTHS else "published")
    if name in (PUBLISHED, AZURE_LENGTHS):
        power, times = ServerPower.of(gpu_share), bloom_on_a100()
        constants = frozen.load, frozen.burst_cv, frozen.sha256, frozen.lengths
        return ServedRow(name, times, power, *constants)
    boards, provisioned = name.split("_")
    model = f"{boards.upper()}-SXM"
    of_boards, sha256 = _constants()
    rated = NAMEPLATE_WATTS
    if provisioned == "peak":
        rated *= of_boards[boards]["peak_over_nameplate"]
    times = step_table_times(model, MEMORY_BYTES[model])
    power = ServerPower.of_nameplate(rated, times.tdp_watts)
    return ServedRow(name, times, power, of_boards[boards]["load"], frozen.burst_cv, sha256)


def served_row_of(gpu_model: str, lengths: LengthsName = "published") -> ServedRow:
    """Somebody's row of such boards: what its servers take, and how busy rows of its type are.

    Its power and rating are the row's own.

    Raises:
        InputError: for boards that no row is of, and for lengths that were fitted to others.
    """
    if gpu_model == A100_MODEL:
        return served_row(AZURE_LENGTHS if lengths == "azure" else PUBLISHED)
    if gpu_model not in MEMORY_BYTES:
        known = ", ".join((A100_MODEL, *MEMORY_BYTES))
        raise InputError("row.groups[].gpu_model", f"one of {known}", gpu_model)
    if lengths != "published":
        raise InputError("lengths", f"published, for servers of {gpu_model}", lengths)
    return served_row(f"{gpu_model.split('-')[0].lower()}_nameplate")


def times_of_model(gpu_model: str) -> ServerTimes:
    """What a server of such boards takes and draws.

    Raises:
        InputError: for boards that no row is of.
    """
    if gpu_model == A100_MODEL:
        return bloom_on_a100()
    if gpu_model not in MEMORY_BYTES:
        known = ", ".join((A100_MODEL, *MEMORY_BYTES))
        raise InputError("row.groups.gpu_model", f"one of {known}", gpu_model)
    return step_table_times(gpu_model, MEMORY_BYTES[gpu_model])


@lru_cache(maxsize=1)
def _constants() -> tuple[dict[str, dict[str, float]], str]:
    data = (resources.files("simulation") / "data" / "inference_row" / FILE).read_bytes()
    document = parse_json(data.decode("utf-8"), FILE)
    found = document.get("constants") if isinstance(document, dict) else None
    if not isinstance(found, dict) or set(found) != {"h100", "h200"}:
        raise InputError("constants", "mappings h100 and h200", found, FILE)
    made = {
        boards: {
            name: require_number(f"{boards}.{name}", values.get(name), exclusive_minimum=0.0)
            for name in ("load", "peak_over_nameplate")
        }
        for boards, values in found.items()
    }
    return made, hashlib.sha256(data).hexdigest()[:12]
