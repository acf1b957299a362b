"""Rubrics: placeholders, and connection with the answer compared with a slow search."""

from __future__ import annotations

from growth import assert_linear, sizes
from hypothesis import given
from hypothesis import strategies as st

from rag_rewards.rewards.carr import connected, filled, placeholders


def twin(rubrics, supported):
    """Return the connected rubrics by repetition until nothing changes."""
    reached = set()
    names = {"E0"}
    while True:
        new = {i for i in supported if names & set(rubrics[i])} - reached
        if not new:
            return reached
        reached |= new
        names |= {name for i in new for name in rubrics[i]}


NAMES = st.lists(st.sampled_from(["E0", "E1", "E2", "E3", "E4", "E5"]), max_size=3)


@given(
    st.lists(NAMES, max_size=8).flatmap(
        lambda r: st.tuples(
            st.just(r), st.sets(st.integers(0, max(len(r) - 1, 0)), max_size=len(r))
        )
    )
)
def test_connected_rubrics(case):
    rubrics, supported = case
    supported = {i for i in supported if i < len(rubrics)}
    assert connected(rubrics, supported) == twin(rubrics, supported)


def test_rubrics_that_are_not_connected():
    rubrics = [["E0", "E1"], ["E1", "E2"], []]
    assert connected(rubrics, {1, 2}) == set()
    assert connected(rubrics, {0, 1, 2}) == {0, 1}


def test_similar_texts_are_no_placeholders():
    assert placeholders("<E0> <e1> <E> <Ex> E2 <E10>") == ("E0", "E10")
    assert filled("<e1> <E0>", {"E0": r"\1 <E0>"}) == r"<e1> \1 <E0>"
    assert filled("no placeholder", {}) == "no placeholder"
    assert filled("<E0>", {"E0": " "}) is None


@sizes(100_000)
def test_a_long_chain_takes_linear_time(largest):
    def run(count):
        chain = [[f"E{i}", f"E{i + 1}"] for i in range(count)]
        assert len(connected(chain, range(count))) == count

    assert_linear(run, largest)
