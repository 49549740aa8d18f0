"""Marks are asked as numpy asks them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from wattpack.masks import every, some


@pytest.mark.parametrize(
    "marks",
    [
        np.zeros(0, dtype=np.bool_),
        np.zeros((2, 0)),
        np.zeros(3, dtype=np.bool_),
        np.ones((2, 3), dtype=np.bool_),
        np.array([[False, True], [False, False]]),
        np.array([True, False, True, False])[::2],
        np.array([0.0, np.nan]),
        np.array([-1, 0]),
        np.bool_(True),
    ],
)
def test_marks_are_asked_as_numpy_asks_them(marks: Any) -> None:
    found = some(np.asarray(marks)), every(np.asarray(marks))
    assert found == (bool(np.any(marks)), bool(np.all(marks)))
    assert all(isinstance(one, bool) for one in found)
