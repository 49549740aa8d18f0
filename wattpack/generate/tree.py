"""Compare generated content with the files in the tree, or write it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path

# A diff longer than this says nothing that the first lines do not say.
MAX_DIFF_LINES = 40


def write(root: Path, files: Mapping[str, str]) -> list[str]:
    """The paths that were stale and have now been written."""
    written = []
    for name, content in sorted(files.items()):
        path = root / name
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
            written.append(name)
    return written


def stale(root: Path, files: Mapping[str, str]) -> dict[str, str]:
    """Path to diff, for every file that differs from what would be generated."""
    differing = {}
    for name, content in sorted(files.items()):
        path = root / name
        present = path.read_text(encoding="utf-8") if path.exists() else ""
        if present != content:
            differing[name] = diff(name, present, content)
    return differing


def orphans(root: Path, files: Mapping[str, str], patterns: Iterable[str]) -> list[str]:
    """Files that match the patterns of generated files but are no longer generated."""
    found = {str(path.relative_to(root)) for pattern in patterns for path in root.glob(pattern)}
    return sorted(found - set(files))


def diff(name: str, present: str, wanted: str) -> str:
    """A unified diff, shortened."""
    lines = list(
        difflib.unified_diff(
            present.splitlines(), wanted.splitlines(), f"{name} (tree)", name, lineterm=""
        )
    )
    if len(lines) > MAX_DIFF_LINES:
        lines = [*lines[:MAX_DIFF_LINES], f"... {len(lines) - MAX_DIFF_LINES} more lines"]
    return "\n".join(lines)
