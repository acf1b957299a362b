"""Measure a report of 20,000 rollouts: the time to write it, its size, its speed in a browser.

    python benchmarks/report.py [--rows 20000]

Targets: less than 6 MB, written in less than 20 s, first paint below 2 s, a filter below 200 ms.
The speed in the browser needs Chromium and playwright. The results are in results/report.md.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import tempfile
import time
from pathlib import Path

from harness import Page, machine, parser, run_command

WORDS = (
    "river tower city empire treaty island bridge museum painter engine valley winter railway "
    "council harbour theatre colony mountain castle senate novel orchestra station comet planet "
    "voyage battle garden temple market language century emperor poet engineer physicist"
).split()
GROUP, DOCUMENTS = 8, 5
INTRODUCTION = (
    f"Rollouts of a simulated training run with the recipe `arena`: groups of {GROUP}, {DOCUMENTS} "
    "documents each; {machine}. The times include the start-up of the command. The browser is "
    "Chromium without a window. The time of a filter lasts from a typed letter until the new table "
    "has a layout; the table shows the slowest of seven filters."
)


def text(draw: random.Random, words: int) -> str:
    """Return random words that compress about as well as real text. Half of them are invented."""
    drawn = (
        draw.choice(WORDS)
        if draw.random() < 0.5
        else f"{draw.choice('bdfgklmnprst')}"
        f"{draw.choice('aeiou')}{draw.choice('lmnrst')}{draw.choice('aeiou')}{draw.choice('dnrst')}"
        for _ in range(words)
    )
    return " ".join(drawn)


def rows(n: int, seed: int = 0) -> list[dict[str, object]]:
    """Return rollouts of a run whose answers become right more often, and longer."""
    draw = random.Random(seed)
    rollouts: list[dict[str, object]] = []
    for group in range(n // GROUP):
        documents = [{"title": text(draw, 2), "text": text(draw, 90)} for _ in range(DOCUMENTS)]
        gold, step = draw.choice(WORDS), group * 200 // max(n // GROUP, 1)
        for member in range(GROUP):
            right = draw.random() < 0.3 + step / 500
            answer = gold if right else draw.choice(WORDS)
            relevance = "[1, 2]" if draw.random() < 0.5 else "[3]"
            analysis = text(draw, draw.randint(30, 60) + step // 2)
            rollouts.append(
                {
                    "id": f"{group}-{member}",
                    "group": f"q{group}",
                    "step": step,
                    "question": f"Which {text(draw, 8)}?",
                    "documents": documents,
                    "supporting": [1, 2],
                    "answers": [gold],
                    "response": f"<relevance>{relevance}</relevance><analysis>{analysis} [1]."
                    f"</analysis><answer>{answer}</answer>",
                }
            )
    return rollouts


def main() -> None:
    rows_in_page = parser(__doc__, rows=20_000).parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        source, scored = Path(folder) / "rows.jsonl", Path(folder) / "scored.jsonl"
        report = Path(folder) / "report.html"
        with source.open("w") as handle:
            for row in rows(rows_in_page):
                handle.write(json.dumps(row) + "\n")
        run_command("score", source, "-r", "arena", "-o", scored)
        usage = run_command("report", scored, "-o", report)
        figures = {
            "rollouts": f"{rows_in_page:,}, {source.stat().st_size / 1e6:.0f} MB",
            "time to write": f"{usage['seconds']:.1f} s",
            "size": f"{report.stat().st_size / 1e6:.1f} MB",
            "rollouts with text": f"{rollouts_with_text(report):,}",
        } | measure_in_browser(report)
    page = Page("`rag-rewards report`", INTRODUCTION.format(machine=machine()))
    page.table("measure", "value", rows=figures.items())
    page.write("report")


def rollouts_with_text(page: Path) -> int:
    """Return the number of rollouts whose responses and documents are in the page."""
    match = re.search(r'"texts":(\d+)', page.read_text("utf-8"))
    return int(match[1]) if match else 0


FILTER = """() => {
  const times = [];
  const field = document.getElementById("search");
  for (const text of ["r", "ri", "river", "river to", "", "99", "castle"]) {
    field.value = text;
    const started = performance.now();
    field.dispatchEvent(new Event("input"));
    document.body.offsetHeight;
    times.push(performance.now() - started);
  }
  return Math.max(...times);
}"""


def measure_in_browser(page: Path) -> dict[str, str]:
    """Return the times of the page in Chromium."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        return {"browser": "Chromium is not installed"}
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page()
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-ready]")
        paint, ready = tab.evaluate(
            "() => [performance.getEntriesByName('first-contentful-paint')[0].startTime, "
            "performance.now()]"
        )
        slowest = tab.evaluate(FILTER)
        start = time.perf_counter()
        tab.click("#table button >> nth=0")
        tab.wait_for_selector("dialog article")
        seconds = time.perf_counter() - start
        browser.close()
    return {
        "first paint": f"{paint:.0f} ms",
        "table complete": f"{ready:.0f} ms",
        "slowest filter": f"{slowest:.0f} ms",
        "opening a rollout": f"{seconds * 1000:.0f} ms",
    }


if __name__ == "__main__":
    main()
