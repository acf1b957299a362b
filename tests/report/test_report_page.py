"""The HTML pages in a browser: charts, filters, dialogs, and no external resources."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pages import OpenPage, rollouts

from rag_rewards.cli import main
from rag_rewards.report import report_page

Make = Callable[..., Path]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MARKUP = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
)


def training(copies: int = 1) -> list[dict[str, Any]]:
    """Twelve steps of a run whose responses grow."""
    return [
        {
            "id": f"{'' if copies == 1 else f'{copy}-'}{step}-{member}",
            "group": f"g{step}",
            "step": step,
            "question": "Which river runs through Paris?",
            "documents": [{"text": "Paris lies on the Seine."}, {"text": "Rhine."}],
            "supporting": [1],
            "answers": ["Seine"],
            "response": f"<relevance>[1]</relevance><analysis>{'so ' * (5 + 3 * step)}"
            f"</analysis><answer>{'Seine' if member <= step // 4 else 'Rhine'}</answer>",
        }
        for copy in range(copies)
        for step in range(12)
        for member in range(4)
    ]


@pytest.fixture
def compare(tmp_path: Path) -> Make:
    """Write the page of several files of rows, and return its path."""

    def page(*files: list[dict[str, Any]], arguments: tuple[str, ...] = ("-r", "arena")) -> Path:
        paths = [tmp_path / f"{name}.jsonl" for name in "abcd"[: len(files)]]
        for path, rows in zip(paths, files, strict=True):
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        with pytest.raises(SystemExit):
            main(["report", *map(str, paths), "-o", str(tmp_path / "report.html"), *arguments])
        return tmp_path / "report.html"

    return page


def test_charts_and_the_table_of_one_file(browser: Any, make: Make) -> None:
    view = OpenPage(browser, make("report", training(), "-r", "arena"))
    page = view.page
    assert page.locator("#means svg.interval").count() >= 5
    assert page.locator("#distributions svg rect").count() >= 8
    assert page.locator("#training svg path.line").count() >= 6
    assert "accuracy" in view.texts("#against thead th")
    assert page.evaluate(
        "() => { const c = document.getElementById('scatter'); const d = c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height).data; return d.some(v => v > 0); }"
    )
    assert "words per response" in " ".join(view.texts("#training .notes li"))
    assert page.locator("#searches, #outcomes, #file").count() == 0

    def found() -> str:
        return str(page.inner_text("#found"))

    assert found() == "48 of 48 rollouts"
    page.fill("#search", "seine")
    right = sum("Seine</answer>" in row["response"] for row in training())
    assert found() == f"{right} of 48 rollouts"
    page.fill("#search", "seine 3-0")
    assert found() == "1 of 48 rollouts"
    page.fill("#search", "nothing like this")
    assert "No rollout matches the filters." in page.inner_text("#table")
    page.fill("#search", "")
    page.select_option("#look", "incorrect")
    assert found() == f"{48 - right} of 48 rollouts"
    page.select_option("#look", "all")
    page.select_option("#order", "highest reward")
    assert page.locator("#table tbody tr").first.locator("td").nth(1).inner_text() == "13"
    page.fill("#step", "3")
    assert found() == "4 of 48 rollouts"
    page.fill("#least", "13")
    assert found() == "1 of 48 rollouts"
    assert view.is_quiet, (view.console, view.requests)


def test_a_rollout_opens_and_closes_with_the_keyboard(browser: Any, make: Make) -> None:
    view = OpenPage(browser, make("report", training(3), "-r", "arena"))
    page = view.page
    page.locator("#table button").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog article")
    assert "how to increase it" in page.inner_text("dialog")
    assert "Paris lies on the Seine." in page.inner_text("dialog")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    page.locator("#showcase summary").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#showcase .sides article")
    assert page.locator("#showcase details[open] .sides article").count() == 2
    assert page.inner_text("#where") == "1 to 50"
    page.click("#next")
    page.click("#next")
    assert page.inner_text("#where") == "101 to 144"
    assert page.is_disabled("#next")
    assert view.is_quiet, view.console


def test_several_files_are_compared(browser: Any, compare: Make) -> None:
    path = compare(rollouts(4), rollouts(8), arguments=("-r", "arena"))
    view = OpenPage(browser, path)
    page = view.page
    means = view.texts("#means tbody tr")
    correct = next(i for i, text in enumerate(means) if text.startswith("correct"))
    assert "0.3333" in means[correct]
    assert "+0.333" in means[correct + 1]
    assert "higher" in means[correct + 1]
    outcome = [text.split() for text in view.texts("#outcomes .outcomes tbody tr")]
    assert ["correct", "4", "8", "0"] in outcome
    assert "4 rows changed" in page.inner_text("#changed-count")
    assert page.locator("#distributions svg").count() >= 4
    assert page.locator("#training svg path.line").count() >= 8
    page.locator("#changes summary").first.click()
    page.wait_for_selector("#changes .sides article")
    assert "Rhine" in page.locator("#changes .sides > div").nth(0).inner_text()
    assert "Seine" in page.locator("#changes .sides > div").nth(1).inner_text()
    page.select_option("#direction", "lower reward")
    assert "contains 0 of them" in page.inner_text("#changed-count")
    page.select_option("#file", "1")
    page.select_option("#look", "correct")
    assert page.inner_text("#found") == "8 of 12 rollouts"
    assert "b.jsonl" in page.inner_text("#rollouts")
    assert view.is_quiet, (view.console, view.requests)


def test_recipes_that_differ_are_named_first(browser: Any, compare: Make, tmp_path: Path) -> None:
    compare(rollouts(4), rollouts(8))
    scored = []
    for name, recipe in (("a", "arena"), ("b", "naive-grpo")):
        out = tmp_path / f"{recipe}.jsonl"
        with pytest.raises(SystemExit):
            main(["score", str(tmp_path / f"{name}.jsonl"), "-r", recipe, "-o", str(out)])
        scored.append([json.loads(line) for line in out.read_text().splitlines()])
    view = OpenPage(browser, compare(*scored, arguments=()))
    assert view.texts(".notes .bad")[0].startswith("the recipes differ (a.jsonl: arena")
    assert "other recipe" in view.page.inner_text("#means")
    assert "largest change of correct is first" in view.page.inner_text("#changed-count")
    assert "naive-grpo" in view.page.inner_text(".settings")
    assert view.is_quiet, view.console


def hostile() -> list[dict[str, Any]]:
    fields = {
        "group": MARKUP,
        "question": MARKUP,
        "documents": [{"title": MARKUP, "text": MARKUP}, {"text": "x"}],
        "answers": [MARKUP],
        "response": f"{MARKUP} \u2028 <!-- <answer>{MARKUP}</answer> [1]",
    }
    return [training()[0] | fields | {"id": MARKUP + str(i)} for i in range(2)]


def test_markup_in_rows_is_text(browser: Any, make: Make, compare: Make) -> None:
    row = OpenPage(browser, make("explain", hostile(), "-r", "arena", "--id", MARKUP + "0"))
    assert MARKUP in row.page.inner_text(".response")
    assert row.page.query_selector("img") is None
    assert row.is_quiet, row.console
    files = (hostile() + rollouts(4, MARKUP), rollouts(8, MARKUP), rollouts(2, MARKUP))
    view = OpenPage(browser, compare(*files, arguments=("-r", "arena", "--title", MARKUP)))
    view.page.select_option("#other", "1")
    view.page.locator("#changes summary").first.click()
    view.page.wait_for_selector("#changes .sides article")
    assert MARKUP in view.page.inner_text("#changes")
    view.page.locator("#table button").first.click()
    view.page.wait_for_selector("dialog article")
    assert MARKUP in view.page.inner_text("dialog .response")
    assert view.page.query_selector("img") is None
    assert "owned" not in view.page.title().replace(MARKUP, "")
    assert view.is_quiet, view.console


def test_a_text_cannot_reverse_the_numbers_after_it(browser: Any, compare: Make) -> None:
    """An override of the direction of text ends with the text, as does a very long id."""
    files = [rollouts(4), rollouts(8)]
    for rows in files:
        for i, row in enumerate(rows):
            row["id"] = f"\u202e{i}" + "W" * 3000
    view = OpenPage(browser, compare(*files))
    left = """() => [...document.querySelectorAll('#changes summary .number')].map(each => {
        const at = i => { const range = document.createRange(); range.setStart(each.firstChild, i);
            range.setEnd(each.firstChild, i + 1); return range.getBoundingClientRect().left; };
        return at(0) < at(5); })"""
    directions = view.page.evaluate(left)
    assert directions
    assert all(directions)
    assert all(len(text) < 600 for text in view.texts("#changes summary"))


def test_only_the_script_of_the_page_runs(browser: Any, make: Make) -> None:
    path = make("report", training(), "-r", "arena")
    view = OpenPage(browser, path)
    view.page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = "
        "\"document.title='owned'\"; document.body.append(s); }"
    )
    assert view.page.title() != "owned"
    assert "Content Security Policy" in " ".join(view.console)
    text = path.read_text()
    outside = re.sub(r'<script type="(?:application/json|text/plain)".*?</script>', "", text)
    links = set(re.findall(r"https?://[^\s\"'<]+", outside))
    assert links == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert "default-src 'none'" in outside


@pytest.mark.parametrize(("scheme", "width"), [("light", 360), ("dark", 360), ("dark", 1400)])
def test_the_pages_fit_the_screen(
    browser: Any, make: Make, compare: Make, scheme: str, width: int
) -> None:
    screen = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
    files = (rollouts(4), rollouts(8), rollouts(12))
    rows = EXAMPLES / "ctrl-rag.jsonl"
    for path in (
        make("explain", rows, "-r", "ctrl-rag", "--id", "kinshasa-right"),
        make("report", training(), "-r", "arena"),
        compare(*files, arguments=("-r", "arena")),
    ):
        view = OpenPage(browser, path, **screen)
        assert view.page.evaluate("document.documentElement.scrollWidth") <= width
        assert view.is_quiet, view.console


def test_words_are_colored_and_citations_link_to_documents(browser: Any, make: Make) -> None:
    rows = EXAMPLES / "ctrl-rag.jsonl"
    view = OpenPage(browser, make("explain", rows, "-r", "ctrl-rag", "--id", "kinshasa-right"))
    assert "Kinshasa " in view.texts(".response .more")
    assert "Atlantic " not in view.texts(".response .more")  # it came from the other document
    view.page.get_by_role("button", name="document 2").click()
    assert "Kinshasa " not in view.texts(".response .more")
    assert "Atlantic " in " ".join(view.texts(".response .more")) + " "
    view.page.locator(".response a.cite").first.click()
    assert view.page.locator(".passage:target").inner_text().startswith("[1] Kinshasa")
    assert view.is_quiet, view.console


@pytest.mark.parametrize(
    ("files", "texts"),
    [
        ([[]], ["the file has no row that can be shown", "The file has no rollouts."]),
        ([training()[:1]], ["every group has one rollout", "within groups is undefined"]),
        ([[training()[0], training()[0] | {"id": "x"}]], ["every reward is 13"]),
        (
            [[{"response": "x", "reward": None, "components": {}}]],
            ["no rollout has a reward", "nothing to compare"],
        ),
        (
            [[], rollouts(1)],
            ["the file has no row that can be shown", "The files have no common rows"],
        ),
    ],
)
def test_empty_charts_are_explained(
    browser: Any, compare: Make, files: list[list[dict[str, Any]]], texts: list[str]
) -> None:
    needs_recipe = any("answers" in row for rows in files for row in rows)
    path = compare(*files, arguments=("-r", "arena") if needs_recipe else ())
    view = OpenPage(browser, path)
    assert [text for text in texts if text not in view.page.inner_text("body")] == []
    assert view.is_quiet, view.console


def test_a_large_page_contains_all_numbers_and_some_texts(
    browser: Any, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_page, "TEXT_BYTES", 1)
    monkeypatch.setattr(report_page, "BLOCK_ROWS", 4)
    view = OpenPage(browser, make("report", training(), "-r", "arena"))
    assert "contains the texts of 4 of 48 rollouts" in view.page.inner_text("#rollouts")
    view.page.fill("#search", "7-0")
    view.page.locator("#table button").first.click()
    view.page.wait_for_selector("dialog article")
    assert "rag-rewards explain FILE --id 7-0" in view.page.inner_text("dialog")
    assert view.is_quiet, view.console


def agent(member: int, step: int) -> dict[str, Any]:
    """A rollout of a search agent that searches more in later steps."""
    search = {
        "text": f"<think>I look.</think><search>river {MARKUP}</search>",
        "results": [{"title": "Paris", "text": f"Paris lies on the Seine. {MARKUP}"}],
    }
    answer = f"<think>So.</think><answer>{'Seine' if member else 'Rhine'}</answer> Done."
    return {
        "id": f"{step}-{member}",
        "group": f"g{step}",
        "step": step,
        "question": "Which river runs through Paris?",
        "answers": ["Seine"],
        "turns": [*[search] * (1 + step // 3), {"text": answer}],
    }


def test_turns_of_a_search_agent(browser: Any, make: Make) -> None:
    rows = [agent(member, step) for step in range(12) for member in range(2)]
    view = OpenPage(browser, make("report", rows, "-r", "search-r1"))
    page = view.page
    searches = page.inner_text("#searches")
    for expected in ("searches per rollout", "text_after_answer", "igpo (joint)"):
        assert expected in searches
    assert "close to the largest number (4)" in page.inner_text("#training .notes")
    for filter, count in (("duplicate query", 18), ("no search", 0), ("all", 24)):
        page.select_option("#look", filter)
        assert page.inner_text("#found") == f"{count} of 24 rollouts"
    page.select_option("#order", "most searches")
    page.locator("#table button").first.click()
    page.wait_for_selector("dialog article")
    assert page.locator("dialog .turn").count() == 5
    text = page.inner_text("dialog")
    for expected in ("contains the gold answer", "Malformed", "</script>"):
        assert expected in text
    row = OpenPage(browser, make("explain", rows, "-r", "search-r1", "--id", "3-1"))
    assert row.texts(".turn .head b") == ["Turn 1", "Turn 2", "Turn 3"]
    assert row.page.locator(".turn").first.locator(".result.marked").count() == 1
    for each in (view, row):
        assert each.page.title() != "owned"
        assert each.is_quiet, (each.console, each.requests)
