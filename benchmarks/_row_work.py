"""What a window of the row got done, over another run of the same window.

Counted by the clock, a policy that holds the row back before the window begins works that off in
it, and shows more work than a row that nobody held back. So work is counted by the requests, too:
of those that come in the window, what is answered by the end of the run.

    run:       run-up | window | drain
    work:               ######            whatever was begun before
    from_start: ###############           the row begins empty: nothing is left over
    answered:           ###### ·····      requests of the window, until the drain ends
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from capacity.phase_times import ServerTimes
from simulation.inference_row.client_arrivals import RowRequests
from simulation.inference_row.request_classes import HIGH, LOW, POLCA_CLASSES
from simulation.inference_row.row_under_policy import PolicyRun, Window

__all__ = ["WindowWork"]

Floats = NDArray[np.float64]

NAMES: Final = {"low": LOW, "high": HIGH}


@dataclass(frozen=True, slots=True)
class WindowWork:
    """Work of ``LOW`` and ``HIGH``, full-speed seconds, (2,) each.

    Attributes:
        inside: Done while the window lasts, for whichever requests; of boards.
        from_start: Done from the run's begin to the window's end; of boards.
        answered: Of the requests that come in the window and are answered by the end of the run;
            one that is not counts nothing. Of servers.
    """

    inside: Floats
    from_start: Floats
    answered: Floats

    @classmethod
    def of(cls, run: PolicyRun, window: Window, times: ServerTimes) -> WindowWork:
        """Of one run of a window.

        Args:
            run: Of the row.
            window: What was run.
            times: What its servers take.
        """
        end = window.lead_seconds + window.seconds
        return cls(
            inside=run.result.work_between(window.lead_seconds, end),
            from_start=run.result.work_between(0.0, end),
            answered=_answered(run, window, times),
        )

    def over(self, other: WindowWork) -> dict[str, float]:
        """Each over that of the other run; NaN where the other got nothing done."""
        kinds = {
            "work": (self.inside, other.inside),
            "work_from_start": (self.from_start, other.from_start),
            "answered_work": (self.answered, other.answered),
        }
        return {
            f"{kind}_{name}": float(mine[which] / theirs[which]) if theirs[which] else float("nan")
            for kind, (mine, theirs) in kinds.items()
            for name, which in NAMES.items()
        }


def _answered(run: PolicyRun, window: Window, times: ServerTimes) -> Floats:
    servers = run.work.servers
    requests = servers.requests
    begin, end = window.counted
    arrival = requests.arrival_seconds
    counted = (arrival >= begin) & (arrival < end) & np.isfinite(servers.done_seconds)
    priority = np.array([one.priority for one in POLCA_CLASSES])[requests.of_class]
    asked = _full_speed_seconds(requests, times)
    return np.array([asked[counted & (priority == which)].sum() for which in (LOW, HIGH)])


def _full_speed_seconds(requests: RowRequests, times: ServerTimes) -> Floats:
    """Work of each request as servers count it, the first token with its prompt, (n,)."""
    answer = (requests.output_tokens - 1.0) * times.work_seconds_per_token
    return times.seconds_of_prompt(requests.prompt_tokens) + answer
