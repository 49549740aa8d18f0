"""Screenshots for the docs: kept only when asked for, so that a test run changes no file."""

from __future__ import annotations

import os
from pathlib import Path

from playwright.sync_api import Page

IMAGES = Path(__file__).parents[2] / "docs" / "images"


def keep_screenshot(page: Page, name: str, part: str = "") -> None:
    """Write the page, or one element of it, to docs/images if WATTPACK_UPDATE_SCREENSHOTS is set.

    Without the variable the picture is only taken.
    """
    path = str(IMAGES / name) if os.environ.get("WATTPACK_UPDATE_SCREENSHOTS") == "1" else None
    if part:
        picture = page.locator(part).screenshot(path=path)
    else:
        picture = page.screenshot(path=path, full_page=True)
    assert picture.startswith(b"\x89PNG")
