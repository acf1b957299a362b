"""Statistics of search agents in a report, and warnings about their collapse."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rag_rewards.groups import group_by_key
from rag_rewards.report.facts import facts_of
from rag_rewards.report.statistics import Alarm, Statistics, statistics
from rag_rewards.report.turn_statistics import CREDIT, TurnStatistics, search_drift
from rag_rewards.rows import ScoredRow, decode_row
from rag_rewards.turns.trajectory import turn_counts

ANSWER = {"text": "<think>So.</think><answer>Seine</answer>"}


def search(query: str, *results: str) -> dict[str, Any]:
    text = f"<think>I look.</think><search>{query}</search>"
    return {"text": text, "results": [{"text": result} for result in results]}


def make_row(turns: list[dict[str, Any]] | None, **fields: Any) -> ScoredRow:
    row = {"turns": turns, "reward": 1.0, "components": {"outcome": 1.0}} | fields
    return msgspec.json.decode(msgspec.json.encode(row), type=ScoredRow)


def statistics_of(rows: list[ScoredRow]) -> Statistics:
    return statistics(rows, [facts_of(row) for row in rows], group_by_key(rows))


def turns_of(rows: list[ScoredRow]) -> TurnStatistics:
    result = statistics_of(rows).turns
    assert result is not None
    return result


def test_counts_by_hand() -> None:
    turns = [
        search("Paris", "A city."),
        search("the paris!"),  # repeats the first query, and finds nothing
        {"text": "<think>Hm.</think>"},  # no action
        {"text": "<search> </search>", "results": []},  # empty query
        {"text": "<search>river</search>"},  # no results of the environment
        ANSWER,
    ]
    counts = turn_counts(decode_row({"turns": turns}).trajectory())
    assert (counts.turns, counts.searches, counts.query_turns, counts.empty) == (6, 2, 3, 2)
    assert (counts.queries, counts.repeated, counts.malformed) == (3, 1, 2)
    assert counts.names == {"no_action": 1, "empty_query": 1}

    turns = [{"text": "", "queries": ["a", "b", "A"], "results": [[], [], []]}, {"text": "c"}]
    counts = turn_counts(decode_row({"turns": turns}).trajectory())
    assert (counts.query_turns, counts.queries, counts.repeated, counts.empty) == (1, 3, 0, 1)
    for queries in (["...", "!!!"], ["the", "a"], ["東京", "大阪"]):  # no words after `squad`
        different = [*(search(query, "x") for query in queries), ANSWER]
        assert turn_counts(decode_row({"turns": different}).trajectory()).repeated == 0


def test_rates_are_shares_of_queries_and_turns() -> None:
    rows = [
        make_row([search("a", "x"), search("a"), ANSWER]),
        make_row([ANSWER], finish_reason="max_turns"),
    ]
    assert turns_of(rows).rates == {
        "searches per rollout": 1.0,
        "turns per rollout": 2.0,
        "rollouts without a search": 0.5,
        "duplicate queries": 0.5,
        "turns without results": 0.5,
        "malformed turns": 0.25,  # truncated
        "rollouts at the turn limit": 0.5,
    }
    assert [each.name for each in turns_of(rows).malformed] == ["truncated"]


def test_words_are_those_of_the_policy_in_all_turns() -> None:
    row = make_row([search("one two", "many words of the environment"), ANSWER])
    # "<think>I", "look.</think><search>one", "two</search>" and the last turn
    assert facts_of(row).words == 4
    transcript = (
        "<search>one</search><information>many words of a page</information><answer>x</answer>"
    )
    assert facts_of(make_row(None, response=transcript)).words == 2
    assert statistics_of([make_row(None, response="Paris")]).turns is None


def group(*entries: list[float | None]) -> list[ScoredRow]:
    return [
        make_row(
            [*(search(f"q{t}", f"page {t}") for t in range(len(each) - 1)), ANSWER],
            group="g",
            turn_rewards=each,
            reward=sum(value or 0.0 for value in each),
        )
        for each in entries
    ]


def dead(rows: list[ScoredRow]) -> dict[str, float | None]:
    return {each.method: each.dead for each in turns_of(rows).credit}


def test_a_group_with_equal_sums_can_have_a_signal_in_its_turns() -> None:
    # The rewards from turn 2 on differ. `return` divides by the spread of the sums, which is 0.
    rows = group([0.2, 0.0, 1.0], [0.0, 0.2, 1.0])
    assert statistics_of(rows).signals[0].dead == 1.0
    assert dead(rows)["return"] == 1.0
    assert dead(rows)["igpo (joint)"] == 0.0
    assert dead(rows)["mt_grpo"] == 0.0


def test_a_group_with_equal_entries_has_no_signal() -> None:
    signals = dead(group([None, 1.0], [None, 1.0]))
    assert set(signals) == set(CREDIT)
    assert set(signals.values()) == {1.0}


def test_without_rewards_of_turns_there_is_no_credit() -> None:
    assert turns_of([make_row([search("a", "x"), ANSWER])]).credit == []


def test_unscored_members_and_single_rollouts_are_left_out() -> None:
    rows = [*group([0.5, 1.0], [0.0, 0.0]), make_row([ANSWER], reward=None, group="g")]
    assert dead(rows)["return"] == 0.0
    assert dead(group([0.5, 1.0]))["return"] is None


def test_huge_rewards_do_not_break_the_report() -> None:
    assert set(dead(group([1e308, 1e308], [-1e308, 0.0]))) == set(CREDIT)


def test_an_entry_for_each_turn_is_not_required() -> None:
    rows = group([0.5, 1.0], [0.0, 0.0])
    short = msgspec.json.decode(msgspec.json.encode(rows[0]), type=dict) | {"turn_rewards": [1.0]}
    rows[0] = msgspec.json.decode(msgspec.json.encode(short), type=ScoredRow)
    assert dead(rows)["gigpo"] is not None


# --- collapse over training ----------------------------------------------------------------------


def run(turns: Any, **fields: Any) -> list[Alarm]:
    rows = [
        make_row([*turns(step), ANSWER], step=step, group=f"{step}", **fields)
        for step in range(12)
        for _ in range(2)
    ]
    return statistics_of(rows).alarms


def names(alarms: list[Alarm]) -> set[str]:
    return {alarm.name for alarm in alarms} - {"words per response", "tags per response"}


COLLAPSES = {
    "fell from 2 to 0 per rollout": lambda early, step: [search("a", "x")] * 2 * early,
    "grew from 1 to 4 per rollout": lambda early, step: [
        search(f"{i}", "x") for i in range(1 + step // 3)
    ],
    "duplicate queries: increased from 0% to 67%": lambda early, step: [
        search(f"{i * early}", "x") for i in range(3)
    ],
    "turns without results: increased from 0% to 100%": lambda early, step: [
        search("a", *["x"] * early)
    ],
    "malformed turns: increased from 0% to 33%": lambda early, step: [
        search("a", "x"),
        {"text": "<search>b</search>" if early else "so"},
    ],
    "rollouts without a search: increased from 0% to 100%": lambda early, step: (
        [search("a", "x")] * early
    ),
}


@pytest.mark.parametrize("words", COLLAPSES)
def test_collapses_give_warnings(words: str) -> None:
    alarms = run(lambda step: COLLAPSES[words](step < 6, step))
    assert words in "\n".join(f"{alarm.name}: {alarm.message}" for alarm in alarms)


def test_a_steady_run_gives_no_warning() -> None:
    assert names(run(lambda step: [search("a", "x"), search("b", "y")])) == set()


@pytest.mark.parametrize(("first", "last", "most"), [(1.0, 1.6, 4), (3.0, 4.0, 4), (0.1, 0.0, 1)])
def test_small_changes_of_the_number_of_searches_give_no_warning(
    first: float, last: float, most: int
) -> None:
    assert list(search_drift(first, last, most)) == []


def test_the_length_of_the_words_of_the_policy_collapses() -> None:
    def turns(step: int) -> list[dict[str, Any]]:
        return [search("a " * (1 if step > 6 else 40), "x " * (200 if step > 6 else 1))]

    assert "words per response" in {alarm.name for alarm in run(turns)}


def test_notes_name_what_is_wrong_without_steps() -> None:
    assert "no rollout contains a search with results" in statistics_of([make_row([ANSWER])]).notes
    rows = [make_row([search("a"), search("a"), ANSWER])]
    assert "turns without results: 100%" in statistics_of(rows).notes
    assert "duplicate queries: 50%" in statistics_of(rows).notes
