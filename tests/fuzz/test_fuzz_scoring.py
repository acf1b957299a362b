"""Random rows and responses, scored by every recipe and by its hardened profile."""

from __future__ import annotations

import json
from functools import cache

from fuzz_checks import check_finite, check_results, unchanged
from fuzz_rows import ROWS_OF_RECIPES, changed, encoded, lines
from fuzz_texts import any_texts, texts
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.rows import Chunk, decode_or_error, is_object
from rag_rewards.scorer import Scorer

NAMES = tuple(ROWS_OF_RECIPES)
profiles = st.tuples(st.sampled_from(NAMES), st.booleans())


@cache
def scorer(name: str, hardened: bool) -> Scorer:
    return Scorer.load(name, hardened=hardened)


@st.composite
def groups_of_rows(draw, response=texts):
    """Draw a recipe and rows for it, of which some are hostile."""
    name, hardened = draw(profiles)
    rows = ROWS_OF_RECIPES[name]
    chosen = draw(st.lists(st.sampled_from(rows), min_size=1, max_size=3))
    return name, hardened, [draw(changed(row, response=response)) for row in chosen]


@given(groups_of_rows())
@budget(120)
def test_rollouts(given):
    name, hardened, rows = given
    with unchanged(rows):
        rollouts = list(map(decode_or_error, rows))
        with unchanged(rollouts):
            results = scorer(name, hardened).score_each(rollouts)
        assert len(results) == len(rows)
        check_results(results)
    again = scorer(name, hardened).score_each(list(map(decode_or_error, rows)))
    assert repr(again) == repr(results)


@given(groups_of_rows(any_texts))
@budget(40)
def test_rollouts_of_a_trainer(given):
    """Responses in Python can contain halves of surrogate pairs."""
    name, hardened, rows = given
    check_results(scorer(name, hardened).score_each(list(map(decode_or_error, rows))))


@given(profiles, st.lists(lines(), min_size=1, max_size=3), st.integers(0, 5))
@budget(60)
def test_lines_of_a_file(profile, hostile, at):
    """Each line has a score or an error record, and a line that is not JSON never has a score."""
    valid = [encoded(row) for row in ROWS_OF_RECIPES[profile[0]][:2]]
    given = [*valid[:at], *hostile, *valid[at:]]
    chunk = Chunk(lines=given, numbers=list(range(1, len(given) + 1)))
    result = scorer(*profile).score_rows(chunk)
    assert result == scorer(*profile).score_rows(chunk)
    assert sorted(result.numbers + result.error_numbers) == chunk.numbers
    for record in result.errors:
        fault = json.loads(record)["error"]
        assert fault["message"], fault
        assert fault["type"] != "ScoringError", fault
    assert len(result.output.splitlines()) == len(result.numbers)
    for number, line in zip(result.numbers, result.output.splitlines(), strict=True):
        assert is_object(given[number - 1])
        row = json.loads(line, object_pairs_hook=without_repetitions)
        check_finite(row["reward"])
        check_finite(row["components"])
        assert row["reward"] is not None or row["components"] is not None


def without_repetitions(pairs):
    """Return a mapping. The score of a row must not be a second field of the same name."""
    names = [name for name, _ in pairs]
    for name in ("reward", "components", "correct", "details", "error", "signature", "id"):
        assert names.count(name) < 2, f"two fields {name}"
    return dict(pairs)
