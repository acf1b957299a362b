"""Real rollouts of two search agents, against a list that was made by reading them."""

from __future__ import annotations

from collections import Counter

import pytest
from real_rollouts import LISTED, digest, rollouts

from rag_rewards import decode_row


@pytest.mark.parametrize("listed", LISTED, ids=lambda each: f"{each['file']}-{each['position']}")
@pytest.mark.parametrize("dialect", ["auto", "r1-searcher"])
def test_every_listed_query_and_document_is_found(shared, listed, dialect):
    if dialect == "auto" and not listed["searches"]:
        pytest.skip("a rollout without a query has no dialect")
    row = decode_row(rollouts(shared, listed["file"])[listed["position"]])
    *searches, last = row.steps(dialect)
    found = [
        {
            "query": digest(*turn.queries),
            "documents": [digest(result.text) for result in turn.results],
        }
        for turn in searches
    ]
    assert found == listed["searches"]
    assert last.queries == ()
    assert last.results is None
    assert last.answer


def test_all_rollouts_are_read(shared):
    searches: Counter[int] = Counter()
    for name, count in (
        ("bamboogle_llama", 125),
        ("bamboogle_qwen", 125),
        ("hotpotqa_qwen_first200", 200),
    ):
        rows = [decode_row(row) for row in rollouts(shared, name)]
        assert len(rows) == count
        for row in rows:
            turns = row.steps("r1-searcher")
            tags = row.response.count("<|begin_of_query|>")
            assert sum(turn.is_search for turn in turns) == tags
            assert sum(len(turn.results or ()) for turn in turns) == 5 * tags
            assert not any(turn.malformed for turn in turns)
            assert turns[-1].answer
            searches[tags] += 1
    assert max(searches) == 7
    assert searches[0] > 0
