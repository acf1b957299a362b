"""Groups by key and by position, and the rule that one error fails its group."""

from __future__ import annotations

import sqlite3
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rag_rewards as rr
from rag_rewards.errors import DataError, GroupError, RowError, UsageError
from rag_rewards.groups import (
    Groups,
    check_groups,
    fail_groups,
    group_by_key,
    group_by_position,
    renumber,
    singletons,
)
from rag_rewards.rows.line_groups import KeyDigests, key_digest


def row(**fields: object) -> rr.Rollout:
    return rr.decode_row({"response": "", **fields})


def test_rows_with_equal_keys_form_a_group() -> None:
    rows = [row(group="a"), row(question="b"), row(), RowError("missing"), row(group="a"), row()]
    assert group_by_key(rows) == [[0, 4], [1], [2], [3], [5]]


def test_a_numeric_group_and_its_text_are_one_key() -> None:
    assert group_by_key([row(group=7), row(group="7"), row(question="7")]) == [[0, 1, 2]]


INVALID_GROUPS: list[tuple[Groups, str]] = [
    ([[0, 1]], "groups: position 2 is in no group: put each position from 0 to 2 into one group"),
    ([[0, 1], [1, 2]], "groups: position 1 is in a group more than once, or in several groups: "),
    ([[0, 1, 1, 2]], "groups: position 1 is in a group more than once, or in several groups: "),
    ([[0, 1], [2, 3]], "groups: position 3 is not in the batch of 3 rollouts: put each position"),
    ([[0, 1], [-1]], "groups: position -1 is not in the batch of 3 rollouts: put each position"),
    ([[0, 1, 2], [2.5]], "groups: position 2.5 is not in the batch of 3 rollouts"),  # type: ignore[list-item]
    ([], "groups: position 0 is in no group"),
]
SCORES_GROUPS = {
    "rollout": rr.recipe("naive-grpo"),
    "group": rr.custom("scaled", rr.GroupMinMax(rr.rewards.Format(("answer",)))),
}


@pytest.mark.parametrize(("groups", "message"), INVALID_GROUPS)
@pytest.mark.parametrize("scope", SCORES_GROUPS)
def test_each_position_is_in_one_group(scope: str, groups: Groups, message: str) -> None:
    scheme, rows = SCORES_GROUPS[scope], [row(group=name) for name in "aab"]
    stages = rr.Curriculum((rr.Stage(scheme, 1), rr.Stage(scheme)))
    for score_each in (scheme.score_each, rr.Scorer(scheme).score_each, stages.score_each):
        with pytest.raises(UsageError) as error:
            score_each(rows, groups)
        assert str(error.value).startswith(message)


def test_valid_groups_give_one_result_for_each_rollout() -> None:
    rows = [row(group=name) for name in "aab"]
    for scheme in SCORES_GROUPS.values():
        assert len(scheme.score_each(rows, [[2], [], [1, 0]])) == 3
    check_groups([], 0)
    check_groups([(True, 0)], 2)


def test_an_incomplete_batch_is_an_error_with_both_numbers() -> None:
    assert group_by_position(4, 2) == [range(0, 2), range(2, 4)]
    with pytest.raises(GroupError, match=r"\(12\) is not a multiple of the group size \(8\)"):
        group_by_position(12, 8)


@given(st.lists(st.sampled_from("abc")), st.data())
def test_renumbered_groups_have_the_same_members(keys: list[str], data: st.DataObject) -> None:
    rows = [row(group=key) for key in keys]
    positions = [i for i in range(len(rows)) if data.draw(st.booleans())]
    groups = renumber(group_by_key(rows), positions)
    assert sorted(i for group in groups for i in group) == list(range(len(positions)))
    assert all(len({keys[positions[i]] for i in group}) == 1 for group in groups)
    assert len(groups) == len({keys[i] for i in positions})


def test_an_error_fails_only_its_group() -> None:
    broken = DataError("missing", "answers")
    broken.row = "7"
    rows = [row(id=i) for i in range(4)]
    results = fail_groups([1.0, broken, 2.0, 3.0], [[0, 1], [2, 3]], rows)
    assert results[1:] == [broken, 2.0, 3.0]
    assert isinstance(results[0], GroupError)
    assert str(results[0]) == "row 0: the group contains a row in error (row 7: answers: missing)"


def test_members_keep_their_own_errors() -> None:
    first, second = RowError("a"), DataError("b")
    results = fail_groups([None, first, second], [[0, 1, 2]])
    assert results[1:] == [first, second]
    assert str(results[0]) == "the group contains a row in error (a)"
    assert fail_groups([None, first], singletons(2)) == [None, first]


@given(st.lists(st.text(max_size=2)), st.text(max_size=2))
def test_digests_in_memory_and_in_a_file(keys: list[str], other: str) -> None:
    class FewInMemory(KeyDigests):
        IN_MEMORY = 3

    digests = FewInMemory(map(key_digest, keys))
    assert all(key_digest(key) in digests for key in keys)
    assert (key_digest(other) in digests) == (other in keys)
    assert len(digests._recent) < 3


def test_memory_of_digests_is_flat() -> None:
    class FewInMemory(KeyDigests):
        IN_MEMORY = 1 << 11

    def peak(count: int) -> int:
        tracemalloc.start()
        FewInMemory(key_digest(str(i)) for i in range(count))
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    # A set of all digests would need about 90 bytes for each of them.
    assert peak(16 << 11) < peak(2 << 11) + 5e5


def test_digests_on_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(sqlite3, "connect", connect)
    with pytest.raises(UsageError, match=r"disk is full.*set TMPDIR"):
        KeyDigests(key_digest(str(i)) for i in range(KeyDigests.IN_MEMORY))
