"""A report of 20,000 rollouts: how long it takes to make, how large it is, how fast it answers.

    python benchmarks/report.py [--rows 20000]

Targets: less than 6 MB, made in less than 20 s, first paint below 2 s, a filter below 200 ms.
Needs a Chromium and playwright for what a browser feels. Results go to results/report.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORDS = (
    "river tower city empire treaty island bridge museum painter engine valley winter railway "
    "council harbour theatre colony mountain castle senate novel orchestra station comet planet "
    "voyage battle garden temple market language century emperor poet engineer physicist"
).split()
GROUP, DOCUMENTS = 8, 5
RESULTS = Path(__file__).resolve().parent / "results" / "report.md"
TITLE = f"""# `rag-rewards report`

Rollouts of a drifting run of arena: groups of {GROUP}, {DOCUMENTS} documents each; {{machine}},
{{cores}} cores. Whole commands, start-up included; the browser is Chromium, headless. A filter is
typed text over all rollouts, until the table is laid out again; the slowest of seven.

| | |
| --- | --- |"""


def text(draw: random.Random, words: int) -> str:
    """Words that compress about as well as a language model's: half of them are made up."""
    made = (
        draw.choice(WORDS)
        if draw.random() < 0.5
        else f"{draw.choice('bdfgklmnprst')}"
        f"{draw.choice('aeiou')}{draw.choice('lmnrst')}{draw.choice('aeiou')}{draw.choice('dnrst')}"
        for _ in range(words)
    )
    return " ".join(made)


def rows(n: int, seed: int = 0) -> list[dict[str, object]]:
    """Rollouts of a run that learns, drifts towards long answers, and abstains more and more."""
    draw = random.Random(seed)
    made: list[dict[str, object]] = []
    for group in range(n // GROUP):
        documents = [{"title": text(draw, 2), "text": text(draw, 90)} for _ in range(DOCUMENTS)]
        gold, step = draw.choice(WORDS), group * 200 // max(n // GROUP, 1)
        for member in range(GROUP):
            right = draw.random() < 0.3 + step / 500
            answer = gold if right else draw.choice(WORDS)
            named = "[1, 2]" if draw.random() < 0.5 else "[3]"
            analysis = text(draw, draw.randint(30, 60) + step // 2)
            made.append(
                {
                    "id": f"{group}-{member}",
                    "group": f"q{group}",
                    "step": step,
                    "question": f"Which {text(draw, 8)}?",
                    "documents": documents,
                    "supporting": [1, 2],
                    "answers": [gold],
                    "response": f"<relevance>{named}</relevance><analysis>{analysis} [1]."
                    f"</analysis><answer>{answer}</answer>",
                }
            )
    return made


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=20_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source, scored = Path(folder) / "rows.jsonl", Path(folder) / "scored.jsonl"
        page = Path(folder) / "report.html"
        with source.open("w") as handle:
            for row in rows(asked.rows):
                handle.write(json.dumps(row) + "\n")
        run("score", source, "-r", "arena", "-o", scored)
        seconds = run("report", scored, "-o", page)
        figures = {
            "rollouts": f"{asked.rows:,}, {source.stat().st_size / 1e6:.0f} MB",
            "made in": f"{seconds:.1f} s",
            "size": f"{page.stat().st_size / 1e6:.1f} MB",
            "of them with their text": f"{texts_of(page):,}",
        } | felt(page)
    lines = [TITLE.format(machine=platform.machine(), cores=os.cpu_count())]
    lines += [f"| {name} | {figure} |" for name, figure in figures.items()]
    RESULTS.write_text("\n".join(lines) + "\n", "utf-8")
    print("\n".join(lines))


def texts_of(page: Path) -> int:
    """Rollouts whose responses and documents are in the page."""
    found = re.search(r'"texts":(\d+)', page.read_text("utf-8"))
    return int(found[1]) if found else 0


def run(*arguments: object) -> float:
    started = time.perf_counter()
    command = [sys.executable, "-m", "rag_rewards", *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started


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


def felt(page: Path) -> dict[str, str]:
    """First paint, until the table stands, the slowest filter, opening a rollout: in Chromium."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        return {"in a browser": "no chromium here"}
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        shown = browser.new_page()
        shown.goto(page.as_uri())
        shown.wait_for_selector("html[data-ready]")
        paint, ready = shown.evaluate(
            "() => [performance.getEntriesByName('first-contentful-paint')[0].startTime, "
            "performance.now()]"
        )
        slowest = shown.evaluate(FILTER)
        started = time.perf_counter()
        shown.click("#table button >> nth=0")
        shown.wait_for_selector("dialog article")
        opened = time.perf_counter() - started
        browser.close()
    return {
        "first paint": f"{paint:.0f} ms",
        "table there": f"{ready:.0f} ms",
        "slowest filter": f"{slowest:.0f} ms",
        "a rollout opens": f"{opened * 1000:.0f} ms",
    }


if __name__ == "__main__":
    main()
