"""Every error that wattpack raises on purpose.

WattpackError
├── InputError            the caller gave something wrong; names the field and what was expected
├── TransientError        the same call may succeed later; carries how long to wait, if known
│   └── DeadlineExceededError  no answer within the deadline
├── PermanentError        retrying cannot help: the environment or the request has to change
└── SafetyError           the call would break an invariant (I1 to I10); nothing was changed

Packages hang their own errors below these, so that one ``except TransientError`` is a retry rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class WattpackError(Exception):
    """The root: catch it at a process boundary, never deeper.

    It can be pickled whatever its constructor takes: a worker process that raises it would else
    leave whoever waits for the answer waiting.
    """

    def __reduce__(self) -> tuple[object, ...]:
        """Type, words and attributes, without asking the constructor."""
        return _again, (type(self), self.args, dict(self.__dict__))


class InputError(WattpackError):
    """A value from outside was refused and nothing was applied.

    Args:
        field: Dotted path of the offending field, for example ``spec.ratingWatts``.
        expected: What would have been accepted, in words, with its unit.
        got: The refused value; only its shortened ``repr`` is kept.
        source: The file, socket or object that the value came from.
    """

    def __init__(self, field: str, expected: str, got: object = None, source: str = "") -> None:
        self.field = field
        self.expected = expected
        self.got = _shown(got)
        self.source = ""
        super().__init__(f"{field}: expected {expected}, got {self.got}")
        self.name_source(source)

    def name_source(self, source: str) -> None:
        """Say where the value came from, if nobody has said so yet."""
        if source and not self.source:
            self.source = source
            self.args = (f"{source}: {self.args[0]}",)


def _again(
    kind: type[WattpackError], words: tuple[object, ...], attributes: dict[str, object]
) -> WattpackError:
    """The error that was pickled."""
    made = kind.__new__(kind, *words)
    made.__dict__.update(attributes)
    return made


@contextmanager
def read_from(source: str) -> Iterator[None]:
    """What is refused inside names this file, socket or object."""
    try:
        yield
    except InputError as error:
        error.name_source(source)
        raise


def _shown(value: object) -> str:
    """A short ``repr``, also of what Python itself refuses to print."""
    try:
        return repr(value)[:200]
    except (ValueError, RecursionError):
        return f"a {type(value).__name__} too large or too deep to show"


class TransientError(WattpackError):
    """The same call may succeed later."""

    def __init__(self, message: str, retry_after_seconds: float | None = None) -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__(message)


class DeadlineExceededError(TransientError):
    """No answer came within the deadline; what was asked may or may not have happened."""


class PermanentError(WattpackError):
    """Retrying cannot help: the environment or the request has to change."""


class SafetyError(WattpackError):
    """The call would break a safety invariant, so it was refused.

    Args:
        invariant: The invariant's name in docs/architecture.md, for example ``I1``.
        message: What would have gone wrong, with the figures.
    """

    def __init__(self, invariant: str, message: str) -> None:
        self.invariant = invariant
        super().__init__(f"{invariant}: {message}")


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP arrived: whoever cleans up after Ctrl-C cleans up after this."""
