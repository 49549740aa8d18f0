"""How old what is shown is, said by the server so that every page tells the same.

A source is told of success and of failure; its age is the time since it last had something new.
"""

from __future__ import annotations

from dataclasses import dataclass

from wattpack.units import NS_PER_SECOND

#: From then on a panel is grey, and red; the page follows these figures.
GREY_SECONDS = 3.0
RED_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Age:
    """How old one source's figures are.

    Attributes:
        seconds: None before there are any.
        cause: Why nothing newer is there; empty while all is well.
    """

    seconds: float | None
    cause: str = ""

    @property
    def is_stale(self) -> bool:
        """Whether nobody should act on the figures."""
        return self.seconds is None or self.seconds > RED_SECONDS

    def to_json(self) -> dict[str, object]:
        """As the page reads it."""
        seconds = None if self.seconds is None else round(self.seconds, 1)
        return {"seconds": seconds, "cause": self.cause}


def seen_now_seconds(wall_time_ns: int, seen: Age) -> float:
    """The fleet's time now, Unix seconds; a simulation sets it, so no clock of ours tells it.

    Args:
        wall_time_ns: Of the newest view.
        seen: How old that is.
    """
    return wall_time_ns / NS_PER_SECOND + (seen.seconds or 0.0)


def age(now_ns: int, newest_ns: int | None, cause: str) -> Age:
    """The age at a time; the cause only counts once the figures are grey."""
    if newest_ns is None:
        return Age(None, cause or "nothing has arrived yet")
    seconds = max(0.0, (now_ns - newest_ns) / NS_PER_SECOND)
    if seconds <= GREY_SECONDS:
        return Age(seconds)
    return Age(seconds, cause or "the source answers, but with nothing new")
