"""How many examples a property test tries: the long form (``make test-long``) ten times as many."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

LONG = os.environ.get("LONG") == "1"


def examples(count: int, **options: Any) -> settings:
    """Settings of a property test that tries ``count`` examples, or ten times as many."""
    return settings(max_examples=count * (10 if LONG else 1), **{"deadline": None, **options})
