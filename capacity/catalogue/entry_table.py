"""Text of tables of catalogue entries by GPU type: one line an entry, for a readable diff."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def entry_table_text(document: Mapping[str, Any]) -> str:
    """The file's content of a document with ``schema`` and ``types`` (GPU type, entry, figures)."""
    types = ",\n".join(
        f" {json.dumps(gpu)}: {{\n"
        + ",\n".join(f"  {json.dumps(name)}: {json.dumps(told)}" for name, told in entries.items())
        + "\n }"
        for gpu, entries in document["types"].items()
    )
    return f'{{"schema": {json.dumps(document["schema"])}, "types": {{\n{types}\n}}}}\n'
