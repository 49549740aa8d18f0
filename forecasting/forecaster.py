"""What a forecaster is: bins in, quantiles, joint paths and window peaks of many series out.

Tiers (``forecasting.tiers``), plug-ins (entry points of the group ``wattpack.forecasters``) and
their combination keep this one interface. Why there are four steps and not one model:
``docs/adr/0039-forecasts-in-four-steps.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from forecasting.series_source import Floats, History


@dataclass(frozen=True, slots=True)
class Provenance:
    """What stands behind an answer.

    Attributes:
        model: Name and version, for example ``ridge/2``: equal names answer equally.
        data_until_seconds: End of the newest bin that was taken in, Unix time.
        fitted_until_seconds: End of the data that the parameters were fitted on; at most the above.
    """

    model: str
    data_until_seconds: int
    fitted_until_seconds: int


class Forecaster(Protocol):
    """Forecasts of many series at once.

    Deterministic: the same batches give the same answers, bit for bit. Rows are the series of the
    newest batch, in its order. A series that it has no answer for (too short, too sparse, no fit
    yet) is a row of NaN; it is never an error of the others. Before the first batch there are no
    rows.
    """

    @property
    def provenance(self) -> Provenance:
        """What stands behind the answers."""
        ...

    def update(self, batch: History) -> None:
        """Take bins in, so that answers begin where the batch ends.

        Args:
            batch: Newest bins of every series, NaN for gaps. It may reach back as far as it likes:
                what was known before is kept only where it does not reach. A series that was not in
                the batch before is new, one that is not in it any more is dropped.

        Raises:
            InputError: the batch ends before the one before it, or has another width of bins.
        """
        ...

    def quantiles(self, horizon: int, levels: Sequence[float]) -> Floats:
        """Step quantiles, shape (n_series, horizon, n_levels), sorted over levels.

        Args:
            horizon: Steps ahead, at least 1.
            levels: In (0, 1), ascending.

        Raises:
            InputError: levels out of order, a horizon that it cannot reach.
        """
        ...

    def paths(self, horizon: int, n: int) -> Floats:
        """Joint paths, shape (n_series, n, horizon): path j of every series errs as one past hour.

        Raises:
            InputError: as ``quantiles``; ``n`` below 1.
        """
        ...

    def peak_quantile(self, window: int, level: float) -> Floats:
        """Quantile of the highest of the next ``window`` bins, shape (n_series,).

        Raises:
            InputError: as ``quantiles``.
        """
        ...
