"""Scored rows to a page, and what is said beside it."""

from __future__ import annotations

import subprocess
import sys

import pytest


def test_rows_are_scored_where_a_recipe_is_given(cli, write, arena, tmp_path):
    page = tmp_path / "report.html"
    rows = write([arena(), arena(id="b", response="x")])
    said = cli("report", rows, "-r", "arena", "-o", page, code=0).err
    assert "2 rollouts in" in said
    assert page.read_text().startswith("<!doctype html>")


def test_rows_in_error_are_counted_and_said(cli, write, arena, tmp_path):
    rows = write([arena(), arena(id="b", answers=None), '{"response": 1}', '{"response": NaN}'])
    said = cli("report", rows, "-r", "arena", "-o", tmp_path / "r.html", code=3).err
    assert "line 3: response: expected" in said
    assert "b: answers: missing" in said
    assert "NaN" in said or "not a finite number" in said


def test_a_reward_that_is_not_a_number_is_named(cli, write, arena, tmp_path):
    bad = '{"id": "n", "response": "x", "reward": NaN, "components": {}}'
    rows = write([arena(reward=1.0, components={"accuracy": 1.0}), bad])
    said = cli("report", rows, "-o", tmp_path / "r.html", code=3).err
    assert "line 2: reward: not a finite number" in said


def test_rows_without_a_reward_name_the_way_out(cli, write, arena, tmp_path):
    said = cli("report", write([arena()]), "-o", tmp_path / "r.html", code=2).err
    assert "score them first, or set --recipe" in said
    assert not (tmp_path / "r.html").exists()


def test_an_empty_file_says_so_on_its_page(cli, write, tmp_path):
    page = tmp_path / "r.html"
    said = cli("report", write([]), "-o", page, code=0).err
    assert "the file has no row that can be shown" in said
    assert "the file has no row that can be shown" in page.read_text()


@pytest.mark.parametrize("count", [1, 3])
def test_rewards_without_spread_are_said(cli, write, arena, tmp_path, count):
    rows = write([arena(id=str(i)) for i in range(count)])
    said = cli("report", rows, "-r", "arena", "-o", tmp_path / "r.html", code=0).err
    assert ("every group has one rollout" if count == 1 else "every reward is 13") in said


def test_the_page_goes_to_standard_output(write, arena):
    rows = write([arena()])
    command = [sys.executable, "-m", "rag_rewards", "report", str(rows), "-r", "arena", "-o", "-"]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert done.stdout.startswith(b"<!doctype html>")
