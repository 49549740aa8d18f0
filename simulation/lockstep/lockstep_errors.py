"""What can go wrong with shared simulated time; the tree stands in the package's docstring."""

from __future__ import annotations

from wattpack.errors import PermanentError


class LockstepError(PermanentError):
    """Simulated time cannot go on."""


class LockstepEndedError(LockstepError):
    """The conductor is gone or has stopped."""


class LockstepStalledError(LockstepError):
    """Something holds time."""
