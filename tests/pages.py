"""A page in a browser, and rows, for tests of HTML pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from processes import WAIT_SECONDS


class OpenPage:
    """A page in a browser, with its console messages and network requests."""

    def __init__(self, browser: Any, place: Path | str, **context: Any) -> None:
        self.page = browser.new_context(**context).new_page()
        self.console: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.console.append(message.text))
        self.page.on("pageerror", lambda error: self.console.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        address = place if isinstance(place, str) else place.as_uri()
        self.page.goto(address)
        if address.rpartition("/")[2].startswith("report"):
            self.page.wait_for_selector("html[data-ready]", timeout=1000 * WAIT_SECONDS)

    @property
    def is_quiet(self) -> bool:
        """Whether there were no console messages and no network requests."""
        loaded = [url for url in self.requests if not url.startswith(("file:", "data:"))]
        return not self.console and not loaded and len(self.requests) <= 2

    def texts(self, selector: str) -> list[str]:
        return list(self.page.locator(selector).all_inner_texts())


def rollouts(right: int, text: str = "") -> list[dict[str, Any]]:
    """Twelve rollouts in three steps, of which some are correct."""
    return [
        {
            "id": f"r{i}{text}",
            "step": i // 4,
            "question": f"Which river runs through Paris? {i} {text}",
            "documents": [{"text": f"Paris lies on the Seine. {text}"}],
            "supporting": [1],
            "answers": ["Seine"],
            "human": "correct" if i < 6 else "incorrect",
            "response": f"<relevance>[1]</relevance><analysis>{text}</analysis>"
            f"<answer>{'Seine' if i < right else 'Rhine'}</answer>",
        }
        for i in range(12)
    ]
