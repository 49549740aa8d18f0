"""What a comment or page points at exists: pages, files beside them, and headings in them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = re.compile(r"\bdocs/[\w./-]+\.md\b")
PATH = re.compile(r"`([\w.-]+(?:/[\w.*-]+)*)(?:::(\w+))?/?`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
TEXT = {".py", ".md", ".go", ".ts", ".sh", ".mk", ".yaml", ".tpl", ".txt", ".proto", ".toml"}


def tracked(*suffixes: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    return [ROOT / name for name in listed if Path(name).suffix in suffixes]


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub links to them."""
    headings = re.findall(r"^#+ +(.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


def test_every_cited_page_exists() -> None:
    missing = {
        f"{file.relative_to(ROOT)}: {page}"
        for file in tracked(*TEXT)
        if file.is_file()
        for page in PAGE.findall(file.read_text(encoding="utf-8"))
        if not (ROOT / page).is_file()
    }
    assert missing == set()


@pytest.mark.parametrize("page", tracked(".md"), ids=lambda page: page.name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    """A path of the tree, a test or module by its file name, and the function after ``::``."""
    suffixes = (*TEXT, "", ".json", ".jsonl", ".service", ".gz")
    tree = [file.relative_to(ROOT) for file in tracked(*suffixes)]
    rooms = {name for file in tree for name in map(str, (file, *file.parents))}
    tops = {file.parts[0] for file in tree if len(file.parts) > 1}
    missing = []
    for path, function in PATH.findall(page.read_text(encoding="utf-8")):
        if "/" in path and path.split("/")[0] in tops:
            found = [file for file in tree if file.match(path)] if path not in rooms else [path]
        elif path.endswith(".py"):
            found = [file for file in tree if file.match(path)]
        else:
            continue
        told = [f for f in found if not function or f"def {function}(" in (ROOT / f).read_text()]
        missing += [] if told else [path + ("::" + function if function else "")]
    assert missing == []


@pytest.mark.parametrize("page", tracked(".md"), ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        target, _, anchor = link.partition("#")
        if "://" in link:
            continue
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(file), f"{page.name}: {link} has no such heading"


def test_no_comment_cites_a_section_by_number() -> None:
    """Our own pages have headings without numbers; other people's are cited by their title."""
    citing = [
        f"{file.relative_to(ROOT)}"
        for file in tracked(".py", ".go", ".ts", ".proto")
        if file.is_file()
        and file != Path(__file__)
        and re.search(
            r"(\bdesign|\.md),?[\s#]+section|section [0-9]+ of docs",
            file.read_text(encoding="utf-8"),
            re.IGNORECASE,
        )
    ]
    assert citing == []
