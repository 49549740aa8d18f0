"""Screenshots for the docs: kept only when asked for, so that a test run changes no file."""

from __future__ import annotations

import os
from pathlib import Path

from playwright.sync_api import Page

IMAGES = Path(__file__).parents[2] / "docs" / "images"


def keep_screenshot(page: Page, name: str) -> None:
    """Write the page to docs/images if WATTPACK_UPDATE_SCREENSHOTS is set; else only take it."""
    update = os.environ.get("WATTPACK_UPDATE_SCREENSHOTS") == "1"
    picture = page.screenshot(path=str(IMAGES / name) if update else None, full_page=True)
    assert picture.startswith(b"\x89PNG")
