"""Errors of a trainer's batches."""

from __future__ import annotations

import pytest
from rag_rewards_adapters.scoring import UnscoredHandler

from rag_rewards.errors import BackendError, DataError, GroupError
from rag_rewards.rollout import Rollout, Score

GOOD, BAD = Score(1.0), BackendError("down")
INVALID = DataError("missing", "answers")


def test_an_error_of_the_first_batch_is_raised() -> None:
    with pytest.raises(BackendError, match="down"):
        UnscoredHandler().handle([GOOD, BAD])


def test_an_error_of_a_later_batch_is_counted() -> None:
    handler = UnscoredHandler()
    handler.handle([GOOD])
    assert handler.handle([GOOD, BAD]) == [GOOD, None]
    assert handler.count == 1


def test_consecutive_batches_in_which_a_model_failed_raise() -> None:
    handler = UnscoredHandler(patience=2)
    handler.handle([GOOD])
    assert handler.handle([GOOD, BAD]) == [GOOD, None]
    assert handler.handle([GOOD]) == [GOOD]
    assert handler.handle([BAD]) == [None]
    with pytest.raises(BackendError, match=r"down \(a model failed in 2 consecutive batches: "):
        handler.handle([GOOD, GroupError("of the group"), BAD])


def test_few_failures_of_a_model_in_large_batches_are_tolerated() -> None:
    """A judge that fails once in a while ends no training; a tenth of a batch is an outage."""
    handler = UnscoredHandler(patience=2)
    handler.handle([GOOD])
    group = [BAD, *[GroupError("of the group")] * 7]
    for _ in range(4):
        handler.handle([GOOD] * 73 + group)
    handler.handle([GOOD] * 72 + group)
    with pytest.raises(BackendError, match="a model failed in 2 consecutive batches"):
        handler.handle([GOOD] * 72 + group)


def test_consecutive_batches_without_a_score_raise() -> None:
    handler = UnscoredHandler(patience=2)
    handler.handle([GOOD])
    assert handler.handle([INVALID]) == [None]
    assert handler.handle([GOOD, INVALID]) == [GOOD, None]
    assert handler.handle([INVALID]) == [None]
    with pytest.raises(DataError, match=r"answers: missing \(no rollout is scored in 2 "):
        handler.handle([INVALID])


def test_a_score_without_a_value_is_an_error() -> None:
    with pytest.raises(DataError, match=r"row 7 of the batch: .*gives this rollout no reward"):
        UnscoredHandler().handle([GOOD, Score(None)], positions=[5, 7])
    handler = UnscoredHandler(patience=2)
    handler.handle([GOOD])
    assert handler.handle([GOOD, Score(None)]) == [GOOD, None]
    assert handler.handle([Score(None)]) == [None]
    assert handler.count == 2
    with pytest.raises(DataError, match="no reward"):
        handler.handle([Score(None)])


def test_a_row_without_an_id_is_named_by_its_position_and_its_question() -> None:
    rollouts = [Rollout(response="", question=f"Which river runs through {i}?") for i in range(64)]
    missing = DataError("missing", "answers")
    results = [missing if i == 41 else GOOD for i in range(64)]
    where = r"row 41 of the batch \(question 'Which river runs through 41\?'\): answers: missing"
    with pytest.raises(DataError, match=where):
        UnscoredHandler().handle(results, rollouts)


def test_an_error_with_a_row_keeps_it() -> None:
    error = BackendError("down")
    error.row = "r1"
    with pytest.raises(BackendError, match="row r1: down"):
        UnscoredHandler().handle([error], positions=[0])
