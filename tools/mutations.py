"""Takes guards away one by one, in a copy of the tree, and says which test turns red.

    make mutations                     every guard of tests/mutations.yaml
    make mutations ARGS="forecasting:" those whose tier or words contain the text

Exit status 1 if a test stayed green, or if a guard is no longer where the list says it is.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "mutations.yaml"
#: What the copy borrows from the tree: not tracked, and not changed by tests.
LENT = (".venv", ".cache", "console/web/node_modules")
SECONDS = 600


@dataclass(frozen=True, slots=True)
class Mutation:
    """A guard, how to take it away, and what must turn red."""

    tier: str
    guard: str
    file: str
    old: str
    new: str
    tests: str = ""
    run: str = ""
    before: str = ""

    def command(self) -> list[str]:
        """What must fail."""
        if self.run:
            return shlex.split(self.run)
        return [".venv/bin/python", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider",
                *shlex.split(self.tests)]  # fmt: skip


def copy_tree(into: Path) -> None:
    """Tracked files and new ones, the built page, and links to what is borrowed."""
    listed = subprocess.run(
        ["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    ).stdout.split(b"\0")
    names = b"\0".join(name for name in listed if name and (ROOT / name.decode()).exists())
    # Through a file: between two pipes, a list of names longer than a buffer waits for ever.
    with tempfile.TemporaryFile() as archive:
        pack = ["tar", "c", "--null", "-T", "-"]
        subprocess.run(pack, cwd=ROOT, input=names, stdout=archive, check=True)
        archive.seek(0)
        subprocess.run(["tar", "x"], cwd=into, stdin=archive, check=True)
    for name in LENT:
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():
            (into / name).symlink_to((ROOT / name).resolve())
    page = ROOT / "console" / "web" / "static"
    if page.exists():
        subprocess.run(["cp", "-r", str(page), str(into / "console" / "web")], check=True)


def tried(mutation: Mutation, tree: Path, green: set[tuple[str, ...]]) -> str:
    """The test that turned red, or why none did.

    Args:
        mutation: What to change.
        tree: Where; it is as before afterwards.
        green: Commands that were seen to be green; grows.
    """
    file = tree / mutation.file
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    if text.count(mutation.old) != 1:
        return f"NOT FOUND: {text.count(mutation.old)} times in {mutation.file}"
    command = mutation.command()
    if tuple(command) not in green:
        if red := _built(mutation, tree) or _red(_done(command, tree)):
            return f"RED BEFORE: {red}"
        green.add(tuple(command))
    file.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        if why := _built(mutation, tree):
            return f"NOT BUILT: {why}"
        return _red(_done(command, tree)) or "STAYED GREEN"
    finally:
        file.write_text(text, encoding="utf-8")


def _built(mutation: Mutation, tree: Path) -> str:
    """Why what comes before the tests failed; empty if it did not."""
    return _red(_done(shlex.split(mutation.before), tree)) if mutation.before else ""


def _done(command: list[str], tree: Path) -> subprocess.CompletedProcess[str]:
    # Without byte code, so that a run never takes that of the one before for its own.
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True,
        timeout=SECONDS, check=False,
    )  # fmt: skip


def _red(done: subprocess.CompletedProcess[str]) -> str:
    """The first red test, or what a command said last; empty if it was green."""
    if done.returncode == 0:
        return ""
    found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", done.stdout, re.MULTILINE)
    lines = (done.stderr.strip() or done.stdout.strip() or "?").splitlines()
    return found[1] if found else lines[-1][:200]


def chosen(words: list[str]) -> Iterator[Mutation]:
    """The guards that match."""
    for row in yaml.safe_load(LIST.read_text(encoding="utf-8")):
        mutation = Mutation(**row)
        if not words or any(word in f"{mutation.tier}: {mutation.guard}" for word in words):
            yield mutation


def main(words: list[str]) -> int:
    """Try each and print one line of a table for it."""
    bad, green = 0, set[tuple[str, ...]]()
    with tempfile.TemporaryDirectory(prefix="wattpack-mutations-") as folder:
        tree = Path(folder)
        tree.chmod(0o755)  # some tests start programs as somebody else
        copy_tree(tree)
        for mutation in chosen(words):
            try:
                red = tried(mutation, tree, green)
            except subprocess.TimeoutExpired:
                red = f"NOT DONE: within {SECONDS} s"
            bad += red == "STAYED GREEN" or red.startswith(("NOT ", "RED BEFORE"))
            print(f"| {mutation.tier} | {mutation.guard} | {red} |", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
