"""Random work and its oracle for the row of a scenario."""

from __future__ import annotations

from simulation.row_control.faults import RowFaults
from simulation.row_control.oracle_run import NO_FAULTS, BoardConstants, OracleRun
from simulation.row_control.random_work import RandomWork, RandomWorkSettings
from simulation.row_control.row_plant import RowPlant
from simulation.row_control.share_curves import ShareCurves
from simulation.row_control.work import Floats
from simulation.row_control.work_layout import WorkShape


class RandomRow:
    """Work of one seed, as often as it is needed: for a policy, for another, for the oracle.

    Args:
        plant: The row; only its constants are read.
        seed: Of the work.
        settings: How much of which work.
    """

    def __init__(
        self, plant: RowPlant, seed: int, settings: RandomWorkSettings | None = None
    ) -> None:
        self._plant, self._seed, self._settings = plant, seed, settings
        profiles, of_node = plant.boards.profiles, plant.boards.profile_of_node
        knee = plant.scenario.plant.decode_clock_knee_ratio
        self.shape = WorkShape.of(profiles, of_node, plant.rack_of_node, plant.node_of_gpu, knee)
        self.curves = ShareCurves.of(profiles)

    def work(self) -> RandomWork:
        """Fresh work."""
        return RandomWork(self.shape, self.curves, self._seed, self._settings)

    def oracle(
        self,
        floor_watts: Floats,
        faults: RowFaults = NO_FAULTS,
        *,
        declared_worst: bool = False,
        keeps_reserve: bool = False,
        most_watts: Floats | None = None,
    ) -> OracleRun:
        """The oracle on the same arrivals.

        Args:
            floor_watts: What policies promise each board, (n_gpus,).
            faults: Of the run that it is compared with.
            declared_worst: Count the declared worst of servers in place of what they draw.
            keeps_reserve: Draw no more than the required feeds carry, also while all are there.
            most_watts: What each board may be let draw, None for its default limit, (n_gpus,).
        """
        bank = self._plant.bank
        default = bank.default_limit_watts
        most = default if most_watts is None else most_watts
        nodes = self._plant.node_of_gpu
        boards = BoardConstants(nodes, floor_watts, bank.hold_watts, default, most)
        work = RandomWork(self.shape, self.curves.hulled(), self._seed, self._settings)
        return OracleRun(
            self._plant.scenario,
            boards,
            work,
            faults,
            declared_worst=declared_worst,
            keeps_reserve=keeps_reserve,
        )
