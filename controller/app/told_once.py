"""A problem that lasts is logged when it begins and when it ends, not at each question."""

from __future__ import annotations

import logging

__all__ = ["ToldOnce"]


class ToldOnce:
    """What was told last, by name.

    Args:
        log: Of the module whose problems they are.
        begins: Format of name and problem.
        ends: Format of the name.
    """

    def __init__(self, log: logging.Logger, begins: str, ends: str) -> None:
        self._log, self._begins, self._ends = log, begins, ends
        self._problems: dict[str, str] = {}

    def tell(self, name: str, problem: str) -> None:
        """Log the first of a row of problems, and the first time without one after them."""
        if problem and not self._problems.get(name):
            self._log.warning(self._begins, name, problem)
        elif not problem and self._problems.get(name):
            self._log.info(self._ends, name)
        self._problems[name] = problem
