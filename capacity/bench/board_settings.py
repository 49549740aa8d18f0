"""Caps and clock locks that a run may hold for a while, where somebody may write them.

The benchmark itself writes nothing: it asks whoever has the right to (the node's actuator), and
gives the board back whatever happens. Without that right a run measures at the default alone and
says so.

SettingsRefused   the board's settings may not be changed now
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from wattpack.errors import PermanentError


class SettingsRefused(PermanentError):
    """The board's settings may not be changed now; the message says why."""


@dataclass(frozen=True, slots=True)
class BoardSetting:
    """What holds the board while one point is measured; nothing by default.

    Attributes:
        lock_max_mhz: Upper end of a clock lock.
    """

    cap_watts: float | None = None
    lock_max_mhz: int | None = None

    def __bool__(self) -> bool:
        return (self.cap_watts, self.lock_max_mhz) != (None, None)

    def __str__(self) -> str:
        cap = "" if self.cap_watts is None else f"{self.cap_watts:g} W"
        return cap if self.lock_max_mhz is None else f"{cap}{self.lock_max_mhz} MHz"


AS_IT_STANDS: Final = BoardSetting()


class BoardSettings(Protocol):
    """Who may write the board's settings."""

    def hold(self, setting: BoardSetting) -> None:
        """Until the next call, or for ten seconds: the adapter lets go if this process dies.

        Raises:
            SettingsRefused: nothing was changed, or it did not come to be.
        """
        ...

    def restore(self) -> None:
        """As it was before the first ``hold``."""
        ...


@contextmanager
def given_back(settings: BoardSettings | None) -> Iterator[None]:
    """The board is given back however the block ends."""
    try:
        yield
    finally:
        if settings is not None:
            settings.restore()
