"""The status page in a real browser: it shows what happens, loads nothing else, runs no markup."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from conftest import ARENA, Running

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("no chromium", allow_module_level=True)
sync_api = pytest.importorskip("playwright.sync_api")

MARKUP = "<img src=x onerror=\"document.title='owned'\">"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


class Seen:
    """A page, and what its console and its network did."""

    def __init__(self, browser: Any, url: str, **context: Any) -> None:
        self.page = browser.new_context(**context).new_page()
        self.console: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.console.append(message.text))
        self.page.on("pageerror", lambda error: self.console.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(url)

    def shows(self, name: str, text: str) -> None:
        """Wait until an element has this text."""
        sync_api.expect(self.page.locator(f"#{name}")).to_have_text(text, timeout=15_000)


def test_it_shows_what_is_served_and_what_happens(
    browser: Any, serving: Callable[..., Running]
) -> None:
    running = serving("--recipe", "arena")
    rows = [ARENA, ARENA | {"supporting": [1], "response": "x"}]
    httpx.post(f"{running.url}/score", json={"rollouts": rows})
    seen = Seen(browser, running.url)
    seen.shows("scored", "2")
    assert seen.page.inner_text("#health") == "ready"
    assert seen.page.inner_text("#recipe") == "arena"
    means = seen.page.inner_text("#means")
    assert "bonus" in means
    assert "6.500" in means  # the mean reward of 13 and 0
    httpx.post(f"{running.url}/score", json={"rollouts": rows})
    seen.shows("scored", "4")
    assert seen.console == []
    assert {url.removeprefix(running.url) for url in seen.requests} <= {"/", "/status", "data:,"}


def test_markup_in_an_error_is_text(browser: Any, serving: Callable[..., Running]) -> None:
    running = serving("--recipe", "arena")
    row = {"response": "x", "answers": "a", "supporting": [MARKUP], "documents": [{"text": "d"}]}
    httpx.post(f"{running.url}/score", json={"rollouts": [row]})
    seen = Seen(browser, running.url)
    seen.shows("failed", "1")
    assert "onerror" in seen.page.inner_text("#errors")
    assert seen.page.query_selector("img") is None
    assert seen.page.title() == "rag-rewards"


def test_it_says_when_the_server_is_gone(browser: Any, serving: Callable[..., Running]) -> None:
    running = serving("--recipe", "arena")
    seen = Seen(browser, running.url)
    seen.shows("health", "ready")
    running.stop()
    seen.shows("health", "no answer")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(browser: Any, serving: Callable[..., Running], scheme: str) -> None:
    running = serving("--recipe", "ground-grpo")
    phone = {"viewport": {"width": 360, "height": 640}, "color_scheme": scheme}
    seen = Seen(browser, running.url, **phone)
    seen.shows("health", "ready")
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_token_is_asked_for_as_a_password(
    browser: Any, serving: Callable[..., Running], tmp_path: Any
) -> None:
    (tmp_path / "token").write_text("secret")
    running = serving("--recipe", "arena", "--token-file", tmp_path / "token")
    seen = Seen(browser, running.url, http_credentials={"username": "anyone", "password": "secret"})
    seen.shows("health", "ready")
