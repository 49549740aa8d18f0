"""Names of others on a terminal or in a picture: they can be seen, and none does anything."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""The text with an escape (``\x1b``, ``\n``) for whatever a terminal would act on."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def shortened(text: str, most: int) -> str:
    """``printable`` with its middle left out where it is longer than ``most`` (at least 3)."""
    shown = printable(text)
    if len(shown) <= most:
        return shown
    front = most // 2
    return f"{shown[:front]}…{shown[len(shown) - (most - front - 1) :]}"
