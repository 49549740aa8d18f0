"""What an inference row's classes ask and draw on earlier days, by a coarse model.

The row's own clients have the same days at the same rates; here only their means are known: prompts
take the share of a server's time that they need, the batch of answers is what keeps up with them in
the rest (Little's law) and empty as often as a Poisson count of that mean.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from simulation.inference_row.client_arrivals import (
    day_shape,
    saturated_seconds,
    servers_in_use,
)
from simulation.inference_row.request_classes import POLCA_CLASSES
from simulation.inference_row.request_lengths import LENGTHS
from simulation.inference_row.row_power import GPUS_PER_SERVER
from simulation.inference_row.served_rows import ServedRow
from simulation.inference_servers import HOUR_SECONDS, served_row_in
from simulation.scenario import Scenario

Floats = NDArray[np.float64]

STEADY_TURNS: Final = 30
"""The batch is a fixed point: tokens take longer with it."""


class ClassLoad:
    """One class of an inference row at its fitted load.

    Args:
        scenario: With an inference row.
        k: Position in ``POLCA_CLASSES``.
        servers: Of the class.
    """

    def __init__(self, scenario: Scenario, k: int, servers: int) -> None:
        settings = scenario.inference_row
        assert settings is not None
        row = served_row_in(scenario)
        self._row: ServedRow = row
        self._servers, self._begin_seconds = servers, HOUR_SECONDS * settings.begin_hours
        lengths = LENGTHS[row.lengths]
        self._prompts, self._answer = lengths.prompts(k), lengths.mean_output(k)
        self._full_seconds = saturated_seconds(POLCA_CLASSES[k], row.times, lengths)
        self._peak_rate = (1.0 + settings.hotter) * row.load * servers / self._full_seconds

    @property
    def _tokens(self) -> float:
        """Of a mean request, prompt and answer."""
        return float(self._prompts.mean()) + self._answer

    @property
    def full_tokens_per_board(self) -> float:
        """What one GPU of a full server serves, prompt and answer tokens a second."""
        return self._tokens / self._full_seconds / GPUS_PER_SERVER

    def rates(self, since_start_seconds: Floats) -> Floats:
        """Requests a second of the class at times before and after the run's start, (n,)."""
        shape = day_shape(self._begin_seconds + since_start_seconds)
        return np.asarray(self._peak_rate * shape, dtype=np.float64)

    def tokens_per_second(self, rates: Floats) -> Floats:
        """Prompt and answer tokens of so many requests a second, (n,)."""
        return rates * self._tokens

    def gpu_watts(self, rates: Floats, since_start_seconds: Floats) -> Floats:
        """GPU watts of the class's servers at request rates and times, (n,)."""
        times = self._row.times
        used = servers_in_use(self._servers, self._begin_seconds + since_start_seconds)
        each = rates / used
        of_prompts = times.seconds_of_prompt(self._prompts)
        prompts = np.minimum(1.0, each * float(of_prompts.mean()))
        hot = float(np.average(times.watts_of_prompt(self._prompts), weights=of_prompts))
        context = float(self._prompts.mean()) + 0.5 * self._answer
        most = int(np.clip(times.kv_tokens // self._tokens, 1, times.max_batch))
        batch = np.ones(len(rates))
        wanted = batch
        for _ in range(STEADY_TURNS):
            decodes = np.clip(np.rint(batch), 1, most).astype(np.int64)
            seconds = times.seconds_of_token(decodes, np.asarray(decodes * context))
            free = np.maximum(1.0 - prompts, 1e-3)
            wanted = each * self._answer * seconds / free
            batch = np.sqrt(batch * np.clip(wanted, 1.0, float(most)))
        decodes = np.clip(np.rint(batch), 1, most).astype(np.int64)
        alone = (1.0 - prompts) * (1.0 - np.exp(-wanted))
        cool = times.watts_of_decode(decodes, np.asarray(decodes * context))
        busy = prompts * hot + alone * cool
        board = busy + (1.0 - prompts - alone) * times.idle_watts
        idle = (self._servers - used) * times.idle_watts
        return np.asarray(GPUS_PER_SERVER * (used * board + idle), dtype=np.float64)
