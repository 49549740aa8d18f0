r"""Make the files of one recording out of what ``record_serving.py`` wrote.

    python benchmarks/data/h200_served/pack_recording.py REQUESTS.json OUT FOLDER NUMBER DATE

Iterations are summed; requests that had not ended when their run was get null.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """``FOLDER/recording-NUMBER.json.gz`` and its power log."""
    requests, out, folder = (Path(argument) for argument in sys.argv[1:4])
    number, date = sys.argv[4:6]
    asked = json.loads(requests.read_text())["runs"]
    told = json.loads((out / "served.json").read_text())
    document = {
        "recorded": f"{date}, recording {number}",
        "gpu": told["gpu"],
        "torch": told["torch"],
        "gpu_uuid_hash": told["gpu_uuid_hash"],
        "launched": "recorded pieces",
        "logit_error": told["error_recorded"],
        "marks_seconds": told["marks"],
        "runs": {name: packed(asked[name], run) for name, run in told["runs"].items()},
        **{part: told.get(part, []) for part in ("decodes", "prompts", "mixtures", "kernels")},
    }
    write(folder / f"recording-{number}.json.gz", json.dumps(document))
    write(folder / f"recording-{number}-power.csv.gz", (out / "power.csv").read_text())


def packed(asked: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
    """One run: what was asked, when it was answered, and its iterations' sums."""
    ended = {number: (first, last) for number, first, last in run["requests"]}
    rows = [
        [*request[:3], *ended.get(number, (None, None))]
        for number, request in enumerate(asked["requests"])
    ]
    beside = [row for row in run["iterations"] if row[3]]
    alone = [row for row in run["iterations"] if not row[3]]
    return {
        "trace": asked["trace"],
        "rate": asked["rate"],
        "trace_begin_seconds": asked["trace_begin_seconds"],
        "begin_seconds": run["begin"],
        "seconds": run["seconds"],
        "iterations": {
            "with_prompts": len(beside),
            "with_prompts_seconds": round(sum(row[1] for row in beside), 4),
            "prompt_tokens": sum(row[3] for row in beside),
            "decodes_beside": sum(row[2] for row in beside),
            "decodes_alone": len(alone),
            "decodes_alone_seconds": round(sum(row[1] for row in alone), 4),
        },
        "requests": rows,
    }


def write(file: Path, text: str) -> None:
    """Compressed, the same bytes each time."""
    file.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
