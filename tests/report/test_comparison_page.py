"""The page that compares files, in a browser, and the options of `report` for several files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pages import OpenPage, rollouts

from rag_rewards.cli import main

Make = Callable[..., Path]
MARKUP = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
)


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., list[Path]]:
    """Write files of rows, and return their paths."""

    def write(*files: list[dict[str, Any]]) -> list[Path]:
        paths = [tmp_path / f"{name}.jsonl" for name in "abcd"[: len(files)]]
        for path, rows in zip(paths, files, strict=True):
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return paths

    return write


def page(paths: list[Path], *arguments: str) -> Path:
    out = paths[0].with_name("report.html")
    with pytest.raises(SystemExit):
        main(["report", *map(str, paths), "-o", str(out), *arguments])
    return out


def test_values_rows_and_charts(browser: Any, files: Any) -> None:
    view = OpenPage(browser, page(files(rollouts(4), rollouts(8)), "-r", "arena", "-l", "human"))
    assert view.is_quiet, (view.console, view.requests)
    means = view.texts("#means tbody tr")
    correct = next(i for i, text in enumerate(means) if text.startswith("correct"))
    assert "0.3333" in means[correct]
    assert "+0.333" in means[correct + 1]
    assert "higher" in means[correct + 1]
    outcome = [text.split() for text in view.texts("#outcomes .outcomes tbody tr")]
    assert ["correct", "4", "8", "0"] in outcome
    assert "4 rows changed" in view.page.inner_text("#changed-count")
    assert view.page.locator("#distributions svg").count() >= 4
    assert view.page.locator("#training svg path.line").count() >= 8
    assert "0.667" in view.page.inner_text("#agreement")
    view.page.locator("#changes summary").first.click()
    view.page.wait_for_selector("#changes .sides article")
    assert "Rhine" in view.page.locator("#changes .sides > div").nth(0).inner_text()
    assert "Seine" in view.page.locator("#changes .sides > div").nth(1).inner_text()
    view.page.select_option("#file", "1")
    assert view.page.inner_text("#found") == "12 of 12 rollouts"
    view.page.select_option("#look", "correct")
    assert view.page.inner_text("#found") == "8 of 12 rollouts"
    assert "b.jsonl" in view.page.inner_text("#rollouts")
    view.page.select_option("#direction", "lower reward")
    assert "contains 0 of them" in view.page.inner_text("#changed-count")


def test_recipes_that_differ_are_named_first(browser: Any, files: Any, tmp_path: Path) -> None:
    first, second = files(rollouts(4), rollouts(8))
    scored = [tmp_path / "first.jsonl", tmp_path / "second.jsonl"]
    for source, out, recipe in zip((first, second), scored, ("arena", "naive-grpo"), strict=True):
        with pytest.raises(SystemExit):
            main(["score", str(source), "-r", recipe, "-o", str(out)])
    view = OpenPage(browser, page(scored))
    assert view.texts(".notes .bad")[0].startswith("the recipes differ (first.jsonl: arena")
    assert "other recipe" in view.page.inner_text("#means")
    assert "largest change of correct is first" in view.page.inner_text("#changed-count")
    assert "naive-grpo" in view.page.inner_text(".settings")
    assert view.is_quiet, view.console


def test_markup_in_rows_is_text(browser: Any, files: Any) -> None:
    paths = files(rollouts(4, MARKUP), rollouts(8, MARKUP), rollouts(2, MARKUP))
    view = OpenPage(browser, page(paths, "-r", "arena", "--title", MARKUP))
    view.page.select_option("#other", "1")
    view.page.locator("#changes summary").first.click()
    view.page.wait_for_selector("#changes .sides article")
    assert MARKUP in view.page.inner_text("#changes")
    assert view.page.query_selector("img") is None
    assert "owned" not in view.page.title().replace(MARKUP, "")
    assert view.is_quiet, view.console


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_the_page_fits_the_screen(browser: Any, files: Any, scheme: str, width: int) -> None:
    paths = files(rollouts(4), rollouts(8), rollouts(12))
    screen = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
    view = OpenPage(browser, page(paths, "-r", "arena", "-l", "human"), **screen)
    assert view.page.evaluate("document.documentElement.scrollWidth") <= width
    assert view.is_quiet, view.console


def test_files_without_rows_or_common_rows(browser: Any, files: Any) -> None:
    view = OpenPage(browser, page(files([], rollouts(1)), "-r", "arena"))
    text = view.page.inner_text("body")
    assert "the file has no row that can be shown" in text
    assert "The files have no common rows" in text
    assert view.is_quiet, view.console


def test_agreement_on_the_page_of_one_file(browser: Any, make: Make) -> None:
    view = OpenPage(browser, make("report", rollouts(4), "-r", "arena", "--label", "human"))
    first = view.texts("#agreement tbody tr")[0].split()
    assert first[:4] == ["correct", "12", "6", "0"]
    assert "0.667" in first  # κ and recall: four of the six labels yes
    assert view.is_quiet, view.console


def test_a_text_cannot_reverse_the_numbers_after_it(browser: Any, files: Any) -> None:
    """An override of the direction of text ends with the text, as does a very long id."""
    rows = [rollouts(4), rollouts(8)]
    for each in rows:
        for i, row in enumerate(each):
            row["id"] = f"\u202e{i}" + "W" * 3000
    view = OpenPage(browser, page(files(*rows), "-r", "arena"))
    left = """() => [...document.querySelectorAll('#changes summary .number')].map(each => {
        const at = i => { const range = document.createRange(); range.setStart(each.firstChild, i);
            range.setEnd(each.firstChild, i + 1); return range.getBoundingClientRect().left; };
        return at(0) < at(5); })"""
    directions = view.page.evaluate(left)
    assert directions
    assert all(directions)
    assert all(len(text) < 600 for text in view.texts("#changes summary"))
