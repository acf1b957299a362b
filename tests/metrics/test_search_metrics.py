"""Metrics of search agents: hand-computed values, a naive twin, and bad input."""

from __future__ import annotations

import random

import pytest

from rag_rewards.cli import main
from rag_rewards.errors import DataError, UsageError
from rag_rewards.metrics import SearchRecall, metric_of
from rag_rewards.metrics.metric import AnswerCache
from rag_rewards.metrics.search import new_shares
from rag_rewards.rows import decode_row


def search(query, *documents):
    results = [each if isinstance(each, dict) else {"text": each} for each in documents]
    return {"text": f"<search>{query}</search>", "results": results}


ANSWER = {"text": "<answer>Seine</answer>"}


def row(*turns, **fields):
    return decode_row({"answers": ["Seine"], "turns": [*turns, ANSWER]} | fields)


def values(name, *rows):
    metric = metric_of(name)
    gauge = metric.gauge(AnswerCache())
    numbers = [gauge(each) for each in rows]
    sums = {part: sum(each[i] for each in numbers) for i, part in enumerate(metric.parts)}
    return metric.values(sums)


def test_number_of_searches_by_hand():
    result = values(
        "searches",
        row(
            search("sea", "x"), search("The Sea!"), {"text": "hm"}
        ),  # 2 searches, a repetition, 4 turns
        row(),
    )
    assert result["searches"] == 1.0
    assert result["turns"] == 2.5
    assert result["duplicates"] == 0.5
    assert result["empty"] == 0.5
    assert result["malformed"] == 1 / 5  # no_action
    assert [result[f"search{t}"] for t in range(1, 6)] == [0.5, 0.5, 0, 0, 0]


def test_recall_of_supporting_documents_by_hand():
    # G = {1, 2}: the turns find {1}, {1}, {1, 2}, as in the example of coverage of StepSearch.
    one, two = {"id": 1, "text": "one"}, {"id": "02", "text": "two"}
    rollout = row(search("a", one), search("b", one), search("c", one, two), supporting=[1, 2])
    result = values("search-recall", rollout)
    assert result["search-recall"] == 1.0
    assert [result[f"recall{t}"] for t in (1, 2, 3)] == [0.5, 0.5, 1.0]
    assert [result[f"new{t}"] for t in (1, 2, 3)] == [0.5, 0.0, 0.5]
    assert result["per_search"] == pytest.approx(2 / 3)
    assert "recall4" not in result


def test_later_searches_are_means_over_the_rollouts_that_have_them():
    long = row(search("a", "no"), search("b", "the Seine"))
    short = row(search("a", "no"))
    result = values("search-recall", long, short, row())
    assert result["search-recall"] == pytest.approx(1 / 3)
    assert (result["recall1"], result["recall2"], result["new2"]) == (0.0, 1.0, 1.0)


def test_several_required_answers_are_parts():
    rollout = row(
        search("a", "Paris."), search("b", "Rome and Paris"), answers=[["Paris"], ["Rome"]]
    )
    result = values("search-recall", rollout)
    assert (result["recall1"], result["recall2"], result["new2"]) == (0.5, 1.0, 0.5)


def test_a_document_without_an_id_is_found_by_its_text():
    documents = [{"text": "The Seine is a river."}, {"text": "Other."}]
    rollout = row(search("a", "seine is river"), documents=documents, supporting=[1])
    assert values("search-recall", rollout)["search-recall"] == 1.0
    rollout = row(search("a", "other"), documents=documents, supporting=[1])
    assert values("search-recall", rollout)["search-recall"] == 0.0


def test_gold_documents_are_found_by_their_texts():
    gold = ["The Seine is a river.", "Paris\nParis is a city.", "Lyon."]
    titled = {"title": "Paris", "text": "Paris is a city.", "id": 7}
    rollout = row(search("a", "seine is river"), search("b", titled), gold_documents=gold)
    result = values("search-recall", rollout)
    assert result["search-recall"] == pytest.approx(2 / 3)
    assert (result["new1"], result["new2"]) == (pytest.approx(1 / 3), pytest.approx(1 / 3))
    without_title = row(search("a", "Paris is a city."), gold_documents=["Paris is a city."])
    assert values("search-recall", without_title)["search-recall"] == 1.0
    # The gold answer of the row is Seine: the field can be chosen.
    assert values("search-recall(gold=answers)", rollout)["search-recall"] == 1.0
    both = row(search("a", {"id": 1, "text": "x"}), gold_documents=gold, supporting=[1])
    assert values("search-recall", both)["search-recall"] == 1.0
    assert values("search-recall(gold=documents)", both)["search-recall"] == 0.0


@pytest.mark.parametrize("gold", [None, [], ["", " the "]])
def test_missing_gold_documents(gold):
    with pytest.raises(DataError, match="gold_documents"):
        values("search-recall(gold=documents)", row(search("a", "x"), gold_documents=gold))


def test_supporting_documents_that_were_never_retrieved_are_legal():
    rollout = row(search("a", {"id": "x", "text": "x"}), supporting=["x", "y"])
    assert values("search-recall", rollout)["search-recall"] == 0.5


def test_an_answer_inside_a_word_is_not_found():
    assert values("search-recall", row(search("a", "Seinemaritime")))["search-recall"] == 0.0


def test_closed_questions_are_counted():
    metric = SearchRecall()
    numbers = metric.gauge(AnswerCache())(row(search("a", "yes"), answers=["yes"]))
    assert dict(zip(metric.parts, numbers, strict=True))["closed"] == 1.0


def test_shares_against_a_naive_twin():
    draw = random.Random(3)
    for _ in range(200):
        size = draw.randrange(1, 6)
        found = [
            frozenset(i for i in range(size) if draw.random() < 0.4)
            for _ in range(draw.randrange(6))
        ]
        recalls, gains = new_shares(found, size)
        for t, parts in enumerate(found):
            new = [i for i in parts if all(i not in found[k] for k in range(t))]
            assert recalls[t] == len(parts) / size
            assert gains[t] == len(new) / size
        union = set().union(*found)
        assert sum(gains) == pytest.approx(len(union) / size)


def test_a_transcript_is_read_in_its_dialect():
    text = "<search>a</search><information>Doc 1(Title: Seine) A river.</information> x"
    rollout = decode_row({"response": text, "answers": ["Seine"]})
    assert values("search-recall", rollout)["search-recall"] == 1.0
    assert values("searches(dialect=r1-searcher)", rollout)["searches"] == 0.0


@pytest.mark.parametrize("name", ["searches(dialect=react)", "search-recall(dialect=react)"])
def test_an_unknown_dialect_is_an_error(name):
    with pytest.raises(UsageError, match="unknown dialect 'react': choose auto, search-r1"):
        metric_of(name)


def test_rows_without_gold_data_are_counted_as_errors(tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"response": "<search>a</search>", "answers": ["x"]}\n')
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", str(path), "--metrics", "search-recall(gold=supporting)"])
    assert ended.value.code == 3
    assert "supporting" in capsys.readouterr().out
