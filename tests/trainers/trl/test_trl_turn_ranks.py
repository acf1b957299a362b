"""Credit of turns for groups whose members are on two ranks."""

from __future__ import annotations

from typing import Any

import pytest
from rank_turns import MEMBERS
from test_trl_turn_credit import OTHER, OWN, spans_of
from trl_runs import reports_of_ranks

from rag_rewards.training.credit import return_to_go, spread


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: Any) -> list[dict[str, Any]]:
    """Return the reports of two processes of data-parallel training over gloo."""
    return reports_of_ranks("rank_turns.py", tmp_path_factory.mktemp("turn ranks"))


def test_each_rank_trains_on_the_credit_of_the_whole_group(ranks: list[dict[str, Any]]) -> None:
    golden = return_to_go(MEMBERS)
    for number, rank in enumerate(ranks):
        assert rank["wrapped"] == "DistributedDataParallel"
        assert len(rank["advantages"]) == 2
        members = range(2 * number, 2 * number + 2)
        length = max(len(MEMBERS[i]) for i in members) * (OWN + OTHER) - OTHER
        expected = [spread(golden[i], spans_of(len(MEMBERS[i])), length) for i in members]
        for step in rank["advantages"]:
            assert [row[:length] for row in step] == [
                pytest.approx(row, abs=1e-6) for row in expected
            ]
            assert not any(value for row in step for value in row[length:])


def test_the_share_of_flat_groups_is_that_of_all_ranks(ranks: list[dict[str, Any]]) -> None:
    assert [rank["logged"]["credit/zero_groups"] for rank in ranks] == [0.0, 0.0]
