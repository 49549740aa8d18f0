"""Profile of hypothesis for every tier; how many examples a test tries says ``tests.examples``.

The plain form tries the same examples each time, so that one commit has one verdict; the long form
(``make test-long``) searches anew with every run. What it finds becomes an ``@example``.
"""

from __future__ import annotations

from hypothesis import settings

from tests.examples import LONG, examples

settings.register_profile("wattpack", examples(100), print_blob=True, derandomize=not LONG)
settings.load_profile("wattpack")
