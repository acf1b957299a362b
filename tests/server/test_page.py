"""The status page in a browser."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pages import OpenPage
from processes import WAIT_SECONDS
from running_server import ARENA, Running

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("no chromium", allow_module_level=True)
sync_api = pytest.importorskip("playwright.sync_api")

MARKUP = "<img src=x onerror=\"document.title='owned'\">"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def wait_for_text(view: OpenPage, name: str, text: str) -> None:
    """Wait until an element has this text."""
    place = view.page.locator(f"#{name}")
    sync_api.expect(place).to_have_text(text, timeout=1000 * WAIT_SECONDS)


def test_shows_recipe_health_and_means(browser: Any, serving: Callable[..., Running]) -> None:
    running = serving("--recipe", "arena")
    rows = [ARENA, ARENA | {"supporting": [1], "response": "x"}]
    running.post("/score", json={"rollouts": rows})
    view = OpenPage(browser, running.url)
    wait_for_text(view, "scored", "2")
    assert view.page.inner_text("#health") == "ready"
    assert view.page.inner_text("#recipe") == "arena"
    means = view.page.inner_text("#means")
    assert "bonus" in means
    assert "6.500" in means  # the mean reward of 13 and 0
    running.post("/score", json={"rollouts": rows})
    wait_for_text(view, "scored", "4")
    assert view.console == []
    assert {url.removeprefix(running.url) for url in view.requests} <= {"/", "/status", "data:,"}


def test_markup_in_an_error_is_text(browser: Any, serving: Callable[..., Running]) -> None:
    running = serving("--recipe", "arena")
    row = {"response": "x", "answers": "a", "supporting": [MARKUP], "documents": [{"text": "d"}]}
    running.post("/score", json={"rollouts": [row]})
    view = OpenPage(browser, running.url)
    wait_for_text(view, "failed", "1")
    assert "onerror" in view.page.inner_text("#errors")
    assert view.page.query_selector("img") is None
    assert view.page.title() == "rag-rewards"


def test_shows_that_the_server_has_stopped(browser: Any, serving: Callable[..., Running]) -> None:
    running = serving("--recipe", "arena")
    view = OpenPage(browser, running.url)
    wait_for_text(view, "health", "ready")
    running.stop()
    wait_for_text(view, "health", "no response")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fits_a_narrow_screen(browser: Any, serving: Callable[..., Running], scheme: str) -> None:
    running = serving("--recipe", "ground-grpo")
    phone = {"viewport": {"width": 360, "height": 640}, "color_scheme": scheme}
    view = OpenPage(browser, running.url, **phone)
    wait_for_text(view, "health", "ready")
    assert view.page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_password_is_the_token(
    browser: Any, serving: Callable[..., Running], tmp_path: Any
) -> None:
    (tmp_path / "token").write_text("secret")
    running = serving("--recipe", "arena", "--token-file", tmp_path / "token")
    view = OpenPage(
        browser, running.url, http_credentials={"username": "anyone", "password": "secret"}
    )
    wait_for_text(view, "health", "ready")
