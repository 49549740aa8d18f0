"""What making a GPU weighs in each hour that it is used.

Proportional: the CO2e of the board is spread over the hours of its life in which it works. From
FLOPs to Footprints (2025) reports -67 % for utilisation from 20 to 60 %, about the same for three
years of life instead of one, and up to -93 % jointly, where this model says -89 %.
"""

from __future__ import annotations

from dataclasses import dataclass

from wattpack.units import require_number

__all__ = ["Embodied"]

HOURS_PER_YEAR = 8766.0


@dataclass(frozen=True, slots=True)
class Embodied:
    """CO2e of one board with its share of the server.

    Attributes:
        kilograms_per_gpu: Of making it.
        lifetime_years: Until it is scrapped; for boards that are kept anyway, their whole life.
        utilisation: Share of its life in which it is used.
    """

    kilograms_per_gpu: float
    lifetime_years: float
    utilisation: float

    def __post_init__(self) -> None:
        """Refuse lives that are none."""
        require_number("embodied.kilogramsPerGpu", self.kilograms_per_gpu, minimum=0)
        require_number(
            "embodied.lifetimeYears", self.lifetime_years, exclusive_minimum=0, maximum=50
        )
        require_number("embodied.utilisation", self.utilisation, exclusive_minimum=0, maximum=1)

    @property
    def grams_per_used_hour(self) -> float:
        """CO2e of one hour in use."""
        hours = self.lifetime_years * HOURS_PER_YEAR * self.utilisation
        return 1000.0 * self.kilograms_per_gpu / hours
