"""``python -m wattpack.generate [--check]``: write what is generated, or say what is stale."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from wattpack.generate import crds, tree, wire_messages

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (wire_messages, crds)


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0 when the tree is up to date, 1 when ``--check`` found a stale file."""
    parser = argparse.ArgumentParser(prog="python -m wattpack.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, list what is stale")
    options = parser.parse_args(arguments)
    files = {name: text for source in SOURCES for name, text in source.produce(ROOT).items()}
    patterns = [pattern for source in SOURCES for pattern in source.PATTERNS]
    leftover = tree.orphans(ROOT, files, patterns)
    if options.check:
        return _report(tree.stale(ROOT, files), leftover)
    for name in leftover:
        (ROOT / name).unlink()
        print(f"removed {name}")
    for name in tree.write(ROOT, files):
        print(f"wrote {name}")
    return 0


def _report(stale: dict[str, str], leftover: list[str]) -> int:
    for name, text in stale.items():
        print(f"stale: {name}\n{text}\n")
    for name in leftover:
        print(f"no longer generated: {name}")
    if stale or leftover:
        print("run `make generate` and commit the result", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
