"""What is said of one rollout: what its tokens owe to documents, its components, the reasons."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rag_rewards as rr
from rag_rewards.report.explanation import explain, passages, segments, token_texts
from rag_rewards.report.rows import Configuration, Configurations
from rag_rewards.report.shaded import shaded
from rag_rewards.rows import ScoredRow
from rag_rewards.signature import signature_of
from rag_rewards.testing import CodePoints

UNKNOWN = Configuration()

ROW: dict[str, Any] = {
    "id": "1",
    "question": "Where?",
    "documents": [
        {"text": "Paris lies on the Seine."},
        {"id": "b", "text": "Rome."},
        {"text": "x"},
    ],
    "supporting": [1, "b"],
    "answers": [["Paris", "City of Paris"]],
    "response": "It is Paris [1].",
}


def row(**fields: Any) -> ScoredRow:
    import msgspec

    return msgspec.json.decode(msgspec.json.encode(ROW | fields), type=ScoredRow)


def likely(count: int, **without: list[float]) -> dict[str, Any]:
    return {"full": [-1.0] * count, "without": without}


def test_words_and_punctuation_stand_for_tokens_where_there_are_as_many() -> None:
    one = row(logprobs=likely(7, **{"1": [-1, -1, -3.0, -1, -2, -1, -1], "2": [-1.0] * 7}))
    found = explain(one)
    shown = {each.text: each.v for each in found.segments if each.v}
    assert shown == {"Paris ": 2.0, "1": 1.0}
    assert found.tokens == "words and punctuation: as many as there are tokens"
    assert [each.effect for each in found.passages] == [3.0, 0.0, None]


def test_tokens_come_from_the_tokenizer_first_then_from_the_row() -> None:
    text = ROW["response"]
    texts, said = token_texts(row(), len(text), CodePoints())
    assert "".join(texts) == text
    assert "tokenizer" in said
    tokens = ["It is", " Paris", " [1]", "."]
    assert token_texts(row(tokens=tokens), 4) == (tokens, "tokens as the row gives them")
    assert token_texts(row(details={"tokens": tokens}), 4)[0] == tokens
    assert token_texts(row(details={"tokens": 4}), 4)[1] == "words"
    texts, said = token_texts(row(), 100)
    assert texts == []
    assert "placed roughly: 100 tokens" in said


def test_roughly_placed_values_keep_their_sum() -> None:
    one = row(logprobs=likely(50, **{"1": [-1.5] * 50, "2": [-1.0] * 50}))
    found = explain(one)
    assert sum(each.v or 0 for each in found.segments) == pytest.approx(25, abs=0.01)


@given(
    st.text(max_size=60).map(lambda text: text + "<answer>[1]</answer>"),
    st.lists(st.floats(-5, 5), max_size=20),
)
def test_segments_join_to_the_response(text: str, values: list[float]) -> None:
    assert "".join(each.text for each in segments(text, [], values)) == text


def test_what_is_too_long_to_look_at_is_cut_and_said() -> None:
    found = explain(row(response="word " * 10_000, documents=[{"text": "x" * 30_000}]))
    assert len("".join(each.text for each in found.segments)) == 20_000
    assert "the first 20,000 of 50,000 characters are shown" in found.notes
    assert found.passages[0].text.endswith("… (30,000 characters)")


def test_markers_and_tags_are_pieces_of_their_own() -> None:
    found = segments("<answer>Paris [1, 2] is</answer>", [], [])
    assert [(each.text, each.k, each.c) for each in found] == [
        ("<answer>", "tag", ()),
        ("Paris ", "", ()),
        ("[1, 2]", "cite", ("1", "2")),
        (" is", "", ()),
        ("</answer>", "tag", ()),
    ]


def test_documents_say_what_they_are() -> None:
    found = passages(row(details={"relevance": ["3"]}), UNKNOWN)
    assert [(each.label, each.supporting, each.cited) for each in found] == [
        ("1", True, True),
        ("2", True, False),
        ("3", False, True),
    ]
    assert [each.supporting for each in passages(row(supporting=None), UNKNOWN)] == [None] * 3
    assert [each.label for each in passages(row(supporting=["gone"]), UNKNOWN)] == ["1", "2", "3"]
    assert passages(row(documents=None), UNKNOWN) == []


def test_evidence_that_does_not_fit_shades_nothing() -> None:
    for logprobs in (likely(3, **{"1": [-1.0]}), likely(3), {"full": []}):
        assert all(each.v is None for each in explain(row(logprobs=logprobs)).segments)


@pytest.mark.parametrize("name", rr.RECIPES)
def test_every_component_of_every_recipe_has_a_row(name: str) -> None:
    from pathlib import Path

    examples = Path(__file__).resolve().parents[2] / "examples"
    source = examples / f"{name}.jsonl"
    if not source.exists():
        source = examples / ("ctrl-rag.jsonl" if "ctrl" in name else "arena.jsonl")
    made = rr.recipe(name)
    for line in source.read_text("utf-8").splitlines():
        import msgspec

        one = msgspec.json.decode(line, type=ScoredRow)
        [score] = made.score_each([one])
        if isinstance(score, rr.RolloutError):
            continue
        found = explain(ScoredRow.of(one, score, made.signature))
        assert [part.name for part in found.parts] == list(made.component_names)
        assert found.reason
        assert "".join(each.text for each in found.segments) == one.parsed.text
        if score.components.get("accuracy") == 0.0:
            part = next(part for part in found.parts if part.name == "accuracy")
            assert part.change.startswith("answer “")


def test_a_signature_names_recipe_and_settings() -> None:
    made = rr.recipe("arena", {"bonus.value": 5})
    old = 'rag-rewards 0.1.0 arena {"bonus.value":5.0} models {"nli":"x"}'
    for signature in (made.signature, signature_of(made, {"nli": "x"}), old):
        scored = Configurations().of(row(signature=signature))
        assert (scored.recipe, scored.settings["bonus.value"]) == ("arena", 5.0)
        assert scored.settings["accuracy.metric"] == "exact"
    for other in (None, "", "a b c", "rag-rewards 0.2.0 mine", "rag-rewards 9.0.0 arena"):
        assert Configurations().of(row(signature=other)) == UNKNOWN


def test_the_step_of_a_row_chooses_the_stage_of_a_curriculum() -> None:
    stages = (rr.Stage(rr.recipe("naive-grpo"), 10), rr.Stage(rr.recipe("arena")))
    signature = rr.Curriculum(stages).signature
    read = Configurations()
    names = [read.of(row(signature=signature, step=step)).recipe for step in (9, 10, None)]
    assert names == ["naive-grpo", "arena", ""]


def test_a_terminal_shades_words_by_sign_and_strength() -> None:
    one = row(logprobs=likely(7, **{"1": [-1, -1, -3.0, -0.2, -1, -1, -1], "2": [-1.0] * 7}))
    text = shaded(explain(one))
    styles = {text.plain[span.start : span.end]: str(span.style) for span in text.spans}
    assert styles["Paris "] == "white on rgb(0,130,40)"
    assert styles["["].startswith("bold underline white on rgb(")
    assert "It " not in styles
