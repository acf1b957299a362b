"""ARENA's relevance: the ids in a section, and the comparison of sets."""

from __future__ import annotations

import json

import pytest
from growth import assert_linear, sizes
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards import DataError, Document, Rollout
from rag_rewards.rewards import Relevance, relevance, relevance_ids
from rag_rewards.rollout import canonical
from rag_rewards.text.sections import Tags

quick = budget(200)
TAGS = Tags(("relevance", "analysis", "answer"))


def naive_ids(text: str) -> set[str] | None:
    """Return the integers and strings of a JSON list, with the standard library."""
    try:
        parsed = json.loads(text)
    except ValueError:
        return None
    if not isinstance(parsed, list):
        return None
    if any(isinstance(item, bool) or not isinstance(item, (int, str)) for item in parsed):
        return None

    def same(item):
        text = str(item).strip()
        return str(int(text)) if text.isascii() and text.isdigit() else text

    return {same(item) for item in parsed}


def naive_relevance(named: set[str], supporting: set[str]) -> float:
    if named == supporting:
        return 1.0
    return 0.5 if named & supporting else 0.0


ITEMS = st.one_of(
    st.integers(-3, 12),
    st.sampled_from(["1", "07", " 2 ", "doc 2", "", "²"]),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.none(),
    st.just([1]),
)


@quick
@given(st.one_of(st.lists(ITEMS, max_size=4), st.integers(), st.dictionaries(st.text(), ITEMS)))
def test_ids_against_a_naive_implementation(value):
    text = f" {json.dumps(value)}\n"
    result = relevance_ids(text)
    assert (None if result is None else set(map(canonical, result))) == naive_ids(text)


@pytest.mark.parametrize(
    "section",
    [
        None,
        "",
        "2, 5",
        "[2,",
        "[2] [5]",
        "[2,]",
        "[1.0]",
        "[1e0]",
        "[null]",
        "[[1]]",
        "{}",
        "2",
        "[true]",
        "[NaN]",
        "[" * 5000,
        "doc 2",
        "[２",
    ],
)
def test_text_that_is_not_a_list_of_ids(section):
    assert relevance_ids(section) is None


def test_ids_of_any_size():
    assert relevance_ids("[99999999999999999999999, -1, 007]") is None  # 007 is no JSON
    result = relevance_ids("[99999999999999999999999, -1]")
    assert list(map(str, result)) == ["99999999999999999999999", "-1"]


SETS = st.sets(st.sampled_from("12345"))


@quick
@given(SETS, SETS)
def test_sets_against_a_naive_implementation(named, supporting):
    assert relevance(named, supporting) == naive_relevance(named, supporting)
    assert relevance(list(named) * 2, list(supporting) * 3) == naive_relevance(named, supporting)


@quick
@given(SETS, SETS, st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_partial_relevance_requires_precision(named, supporting, least):
    share = len(named & supporting) / len(named) if named else 0.0
    expected = naive_relevance(named, supporting)
    if expected == 0.5 and share < least:
        expected = 0.0
    assert relevance(named, supporting, least) == expected


def score(section: str, supporting, documents=(), **options) -> float | None:
    rollout = Rollout(
        response=f"<relevance>{section}</relevance><analysis>x</analysis><answer>y</answer>",
        documents=tuple(documents) or None,
        supporting=supporting,
    )
    return Relevance(TAGS, **options)([rollout])[0].value


def test_relevance_does_not_require_the_format():
    reward = Relevance(TAGS)
    rows = ["<relevance>[1]</relevance>", "x <relevance>[1]</relevance> y", "[1]", ""]
    scores = reward([Rollout(response=row, supporting=(1,)) for row in rows])
    assert [s.value for s in scores] == [1.0, 1.0, 0.0, 0.0]


def test_ids_labels_and_their_text_are_the_same():
    documents = [Document(text="x", id="a7"), Document(text="y", id=12), Document(text="z")]
    assert score("[1, 12]", ("a7", "12"), documents) == 1.0
    assert score('["a7", 12]', (1, 12), documents) == 1.0
    assert score("[3]", ("3",), documents) == 1.0
    assert score("[2]", (12,), documents) == 0.0  # the label of position 2 is 12


def test_details_name_each_document_once():
    rollout = Rollout(
        response='<relevance>[2, "a", "02", 7, 1]</relevance>',
        documents=(Document(text="x", id="a"), Document(text="y")),
        supporting=(1,),
    )
    assert Relevance(TAGS)([rollout])[0].details == {"relevance": ["2", "1", "7"]}


def test_supersets_and_empty_sets():
    assert score("[1, 2, 3]", (1,)) == 0.5
    assert score("[1, 2, 3]", (1,), min_precision=0.5) == 0.0
    assert score("[1, 2]", (1,), min_precision=0.5) == 0.5
    assert score("[]", ()) == 1.0
    assert score("[]", (1,)) == 0.0
    assert score("[1]", ()) == 0.0
    assert score("", ()) == 0.0  # unparsable is not empty


def test_supporting_is_required_for_every_response():
    for section in ("[1]", "nonsense"):
        with pytest.raises(DataError, match="supporting: missing"):
            score(section, None)
    with pytest.raises(DataError, match=r"supporting\[1\]: document id 'zz' does not exist"):
        score("[1]", (1, "zz"), [Document(text="x")])


@pytest.mark.parametrize(
    "section",
    ["[1, 3]", "[1][3]", "[1], [3]", "1, 3", "[1, 3].", "1 and 3", "[1] and [3]", "1;3", "1 3",
     "Documents 1 and 3", "Document 1, Document 3", "[doc 1, doc 3]", "(1, 3)", "{1, 3}",
     "['1', '3']", "- 1\n- 3", "[1]\n[3]", "\n1, 3\n", "References: 1, 3"],
)  # fmt: skip
def test_other_notations_of_ids(section: str) -> None:
    ids = relevance_ids(section, "any")
    assert ids is not None
    assert [int(each) for each in ids] == [1, 3]


@pytest.mark.parametrize(
    "section",
    ["", "none", "1.5", "true", "[true]", "document", "the first one", "1, x", "1 or 3", "one",
     "[1e3]", "1st", "1, 3, because they help", "1/3", "<1>", "x" * 100, "1234567890123"],
)  # fmt: skip
def test_other_texts_are_not_ids(section: str) -> None:
    assert relevance_ids(section, "any") is None


def test_ranges_of_ids() -> None:
    assert relevance_ids("1-3", "any") == [1, 2, 3]
    assert relevance_ids("[2–3]", "any") == [2, 3]


@pytest.mark.parametrize("unit", ["1", "1 ", "[", "1-", "doc ", "-"])
@sizes(100_000)
def test_notations_are_read_in_linear_time(largest: int, unit: str) -> None:
    assert_linear(lambda size: relevance_ids(unit * size, "any"), largest)
