"""A browser, and pages that commands write. Tests that use them are skipped without chromium."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rag_rewards.cli import main

Make = Callable[..., Path]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium_path = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium_path is None:
        pytest.skip("no chromium")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=chromium_path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Write a page of rows with a command, and return its path."""

    def page(command: str, rows: list[dict[str, Any]] | Path, *arguments: str) -> Path:
        source = rows if isinstance(rows, Path) else tmp_path / "rows.jsonl"
        if not isinstance(rows, Path):
            source.write_text("".join(json.dumps(row) + "\n" for row in rows))
        out = tmp_path / f"{command}.html"
        with pytest.raises(SystemExit):
            main([command, str(source), "-o", str(out), *arguments])
        return out

    return page
