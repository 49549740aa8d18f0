"""A benchmark's own arguments, read so that what is wrong is an ``InputError`` and ends nothing."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from wattpack.errors import InputError

__all__ = ["read_arguments"]


def read_arguments(
    parser: argparse.ArgumentParser, arguments: Sequence[str], usage: str
) -> argparse.Namespace:
    """What the parser makes of the arguments.

    Args:
        parser: With ``exit_on_error=False``.
        arguments: All that are left of the command line.
        usage: What may be given, for the error.

    Raises:
        InputError: for a value that the parser refuses, and for an argument that it does not know.
    """
    try:
        given, rest = parser.parse_known_args(list(arguments))
    except argparse.ArgumentError as error:
        raise InputError("arguments", usage, str(error)) from error
    if rest:
        raise InputError("arguments", usage, " ".join(rest))
    return given
