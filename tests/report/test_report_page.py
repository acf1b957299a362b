"""The HTML pages in a browser: charts, filters, dialogs, and no external resources."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pages import OpenPage

Make = Callable[..., Path]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MARKUP = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
)


def training() -> list[dict[str, Any]]:
    """Twelve steps of a run whose responses grow."""
    rows = []
    for step in range(12):
        for member in range(4):
            right = member <= step // 4
            answer = "Seine" if right else "Rhine"
            rows.append(
                {
                    "id": f"{step}-{member}",
                    "group": f"g{step}",
                    "step": step,
                    "question": "Which river runs through Paris?",
                    "documents": [{"text": "Paris lies on the Seine."}, {"text": "Rhine."}],
                    "supporting": [1],
                    "answers": ["Seine"],
                    "response": f"<relevance>[1]</relevance><analysis>{'so ' * (5 + 3 * step)}"
                    f"</analysis><answer>{answer}</answer>",
                }
            )
    return rows


def test_charts_are_drawn_without_external_resources(browser: Any, make: Make) -> None:
    view = OpenPage(browser, make("report", training(), "-r", "arena"))
    assert view.is_quiet, (view.console, view.requests)
    bars = view.page.locator("#distributions svg rect").count()
    assert bars >= 8
    assert view.page.locator("#training svg path.line").count() >= 6
    assert "accuracy" in view.texts("#against thead th")
    drawn = view.page.evaluate(
        "() => { const c = document.getElementById('scatter'); const d = c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height).data; return d.some(v => v > 0); }"
    )
    assert drawn
    assert "words per response" in " ".join(view.texts("#training .notes li"))


def test_the_table_can_be_searched_filtered_and_sorted(browser: Any, make: Make) -> None:
    view = OpenPage(browser, make("report", training(), "-r", "arena"))
    page = view.page
    assert page.inner_text("#found") == "48 of 48 rollouts"
    page.fill("#search", "seine")
    right = int(page.inner_text("#found").split()[0])
    assert right == sum("Seine</answer>" in row["response"] for row in training())
    page.fill("#search", "seine 3-0")
    assert page.inner_text("#found") == "1 of 48 rollouts"
    page.fill("#search", "nothing like this")
    assert "No rollout matches the filters." in page.inner_text("#table")
    page.fill("#search", "")
    page.select_option("#look", "incorrect")
    assert page.inner_text("#found") == f"{48 - right} of 48 rollouts"
    page.select_option("#look", "all")
    page.select_option("#order", "highest reward")
    assert page.locator("#table tbody tr").first.locator("td").nth(1).inner_text() == "13"
    page.fill("#step", "3")
    assert page.inner_text("#found") == "4 of 48 rollouts"
    page.fill("#least", "13")
    assert page.inner_text("#found") == "1 of 48 rollouts"
    assert view.is_quiet, view.console


def test_a_rollout_opens_and_closes_with_the_keyboard(browser: Any, make: Make) -> None:
    view = OpenPage(browser, make("report", training(), "-r", "arena"))
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
    assert view.is_quiet, view.console


def test_the_table_has_pages(browser: Any, make: Make) -> None:
    rows = [row | {"id": f"{n}-{row['id']}"} for n in range(3) for row in training()]
    view = OpenPage(browser, make("report", rows, "-r", "arena"))
    assert view.page.inner_text("#where") == "1 to 50"
    view.page.click("#next")
    view.page.click("#next")
    assert view.page.inner_text("#where") == "101 to 144"
    assert view.page.is_disabled("#next")


def hostile() -> list[dict[str, Any]]:
    row = training()[0]
    return [
        row
        | {
            "id": MARKUP + str(i),
            "group": MARKUP,
            "question": MARKUP,
            "documents": [{"title": MARKUP, "text": MARKUP}, {"text": "x"}],
            "answers": [MARKUP],
            "response": f"{MARKUP} \u2028 <!-- <answer>{MARKUP}</answer> [1]",
        }
        for i in range(2)
    ]


def test_markup_in_rows_is_text(browser: Any, make: Make) -> None:
    path = make("report", hostile(), "-r", "arena", "--title", MARKUP)
    view = OpenPage(browser, path)
    view.page.locator("#table button").first.click()
    view.page.wait_for_selector("dialog article")
    assert MARKUP in view.page.inner_text("dialog .response")
    assert view.page.query_selector("img") is None
    assert "owned" not in (view.page.title().replace(MARKUP, ""))
    assert view.is_quiet, view.console
    row = OpenPage(browser, make("explain", hostile(), "-r", "arena", "--id", MARKUP + "0"))
    assert MARKUP in row.page.inner_text(".response")
    assert row.page.query_selector("img") is None
    assert row.is_quiet, row.console


def test_only_the_script_of_the_page_runs(browser: Any, make: Make) -> None:
    view = OpenPage(browser, make("report", training(), "-r", "arena"))
    view.page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = "
        "\"document.title='owned'\"; document.body.append(s); }"
    )
    assert view.page.title() != "owned"
    assert "Content Security Policy" in " ".join(view.console)


def test_a_page_refers_to_no_other_file(make: Make) -> None:
    text = make("report", training(), "-r", "arena").read_text()
    outside = re.sub(r'<script type="(?:application/json|text/plain)".*?</script>', "", text)
    links = set(re.findall(r"https?://[^\s\"'<]+", outside))
    assert links == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert "default-src 'none'" in outside


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_the_page_fits_narrow_and_wide_screens(
    browser: Any, make: Make, scheme: str, width: int
) -> None:
    screen = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
    for path in (
        make("report", training(), "-r", "arena"),
        make("explain", EXAMPLES / "ctrl-rag.jsonl", "-r", "ctrl-rag", "--id", "kinshasa-right"),
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
    link = view.page.locator(".response a.cite").first
    link.click()
    assert view.page.locator(".passage:target").inner_text().startswith("[1] Kinshasa")
    assert view.is_quiet, view.console


@pytest.mark.parametrize(
    ("rows", "texts"),
    [
        ([], ["the file has no row that can be shown", "The file has no rollouts."]),
        (training()[:1], ["every group has one rollout", "spread within groups is undefined"]),
        ([training()[0], training()[0] | {"id": "x"}], ["every reward is 13"]),
        (
            [{"response": "x", "reward": None, "components": {}}],
            ["no rollout has a reward", "nothing to compare"],
        ),
    ],
)
def test_empty_charts_are_explained(
    browser: Any, make: Make, rows: list[dict[str, Any]], texts: list[str]
) -> None:
    recipe = ("-r", "arena") if rows and "answers" in rows[0] else ()
    view = OpenPage(browser, make("report", rows, *recipe))
    text = view.page.inner_text("body")
    for expected in texts:
        assert expected in text
    assert view.is_quiet, view.console


def test_a_large_page_contains_all_numbers_and_some_texts(
    browser: Any, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rag_rewards.report import report_page

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
    page = {"title": "Paris", "text": f"Paris lies on the Seine. {MARKUP}"}
    searches = [
        {"text": f"<think>I look.</think><search>river {MARKUP}</search>", "results": [page]}
        for _ in range(1 + step // 3)
    ]
    answer = "Seine" if member else "Rhine"
    return {
        "id": f"{step}-{member}",
        "group": f"g{step}",
        "step": step,
        "question": "Which river runs through Paris?",
        "answers": ["Seine"],
        "turns": [*searches, {"text": f"<think>So.</think><answer>{answer}</answer> Done."}],
    }


def test_turns_of_a_search_agent(browser: Any, make: Make) -> None:
    rows = [agent(member, step) for step in range(12) for member in range(2)]
    view = OpenPage(browser, make("report", rows, "-r", "search-r1"))
    page = view.page
    assert "searches per rollout" in page.inner_text("#searches")
    assert "text_after_answer" in page.inner_text("#searches")
    assert "igpo (joint)" in page.inner_text("#searches")
    assert "close to the largest number (4)" in page.inner_text("#training .notes")
    page.select_option("#look", "duplicate query")
    assert page.inner_text("#found") == "18 of 24 rollouts"
    page.select_option("#look", "no search")
    assert page.inner_text("#found") == "0 of 24 rollouts"
    page.select_option("#look", "all")
    page.select_option("#order", "most searches")
    page.locator("#table button").first.click()
    page.wait_for_selector("dialog article")
    assert page.locator("dialog .turn").count() == 5
    text = page.inner_text("dialog")
    assert "contains the gold answer" in text
    assert "Malformed" in text
    assert "</script>" in text
    assert page.title() != "owned"
    assert view.is_quiet, (view.console, view.requests)


def test_the_page_of_a_search_agent(browser: Any, make: Make) -> None:
    rows = [agent(member, 3) for member in range(2)]
    view = OpenPage(browser, make("explain", rows, "-r", "search-r1", "--id", "3-1"))
    assert view.texts(".turn .head b") == ["Turn 1", "Turn 2", "Turn 3"]
    assert view.page.locator(".turn").first.locator(".result.marked").count() == 1
    assert view.page.title() != "owned"
    assert view.is_quiet, (view.console, view.requests)


def test_reports_without_a_search_agent_have_no_searches(browser: Any, make: Make) -> None:
    view = OpenPage(browser, make("report", training(), "-r", "arena"))
    assert view.page.locator("#searches").count() == 0
    assert "searches" not in view.texts("#table th")
