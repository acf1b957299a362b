"""Explanations: contributions of documents, components with reasons, documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rag_rewards as rr
from rag_rewards.cli import main
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.report.explain_data import explain_row
from rag_rewards.report.explain_score import explain_score, passages
from rag_rewards.report.reasons import component_reason, no_spread_of
from rag_rewards.report.report_page import contents, runs_of
from rag_rewards.report.rows import Configuration, Configurations, read_rows
from rag_rewards.report.segments import colored, segments, token_texts
from rag_rewards.rows import ScoredRow
from rag_rewards.signature import signature_of
from rag_rewards.testing import CodePoints

UNKNOWN = Configuration()
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

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
    return msgspec.json.decode(msgspec.json.encode(ROW | fields), type=ScoredRow)


def likely(count: int, **without: list[float]) -> dict[str, Any]:
    return {"full": [-1.0] * count, "without": without}


def test_words_replace_tokens_if_their_number_is_equal() -> None:
    scored = row(logprobs=likely(7, **{"1": [-1, -1, -3.0, -1, -2, -1, -1], "2": [-1.0] * 7}))
    explanation = explain_score(scored)
    shown = {each.text: each.value for each in explanation.segments if each.value}
    assert shown == {"Paris ": 2.0, "1": 1.0}
    assert explanation.tokens.startswith("words and punctuation in place of tokens")
    assert [each.effect for each in explanation.passages] == [3.0, 0.0, None]


def test_token_texts_come_from_the_tokenizer_first_then_from_the_row() -> None:
    text = ROW["response"]
    texts, method = token_texts(row(), len(text), CodePoints())
    assert "".join(texts) == text
    assert method == "tokens of the tokenizer"
    tokens = ["It is", " Paris", " [1]", "."]
    assert token_texts(row(tokens=tokens), 4) == (tokens, "tokens of the row")
    assert token_texts(row(details={"tokens": tokens}), 4)[0] == tokens
    assert token_texts(row(details={"tokens": 4}), 4)[1].startswith("words in place of tokens")
    texts, method = token_texts(row(), 100)
    assert texts == []
    assert "approximate positions of 100 tokens" in method


def test_values_at_approximate_positions_keep_their_sum() -> None:
    scored = row(logprobs=likely(50, **{"1": [-1.5] * 50, "2": [-1.0] * 50}))
    explanation = explain_score(scored)
    assert sum(each.value or 0 for each in explanation.segments) == pytest.approx(25, abs=0.01)


@given(
    st.text(max_size=60).map(lambda text: text + "<answer>[1]</answer>"),
    st.lists(st.floats(-5, 5), max_size=20),
)
def test_segments_join_to_the_response(text: str, values: list[float]) -> None:
    assert "".join(each.text for each in segments(text, [], values)) == text


def test_long_texts_are_cut_with_a_note() -> None:
    explanation = explain_score(row(response="word " * 10_000, documents=[{"text": "x" * 30_000}]))
    assert len("".join(each.text for each in explanation.segments)) == 20_000
    assert "the first 20,000 of 50,000 characters are shown" in explanation.notes
    assert explanation.passages[0].text.endswith("… (30,000 characters)")


def test_markers_and_tags_are_separate_segments() -> None:
    explanation = segments("<answer>Paris [1, 2] is</answer>", [], [])
    assert [(each.text, each.kind, each.labels) for each in explanation] == [
        ("<answer>", "tag", ()),
        ("Paris ", "", ()),
        ("[1, 2]", "cite", ("1", "2")),
        (" is", "", ()),
        ("</answer>", "tag", ()),
    ]


def test_documents_are_marked_as_supporting_and_cited() -> None:
    explanation = passages(row(details={"relevance": ["3"]}), UNKNOWN)
    assert [(each.label, each.supporting, each.cited) for each in explanation] == [
        ("1", True, True),
        ("2", True, False),
        ("3", False, True),
    ]
    assert [each.supporting for each in passages(row(supporting=None), UNKNOWN)] == [None] * 3
    assert [each.label for each in passages(row(supporting=["gone"]), UNKNOWN)] == ["1", "2", "3"]
    assert passages(row(documents=None), UNKNOWN) == []


def test_log_probabilities_of_another_length_have_no_values() -> None:
    for logprobs in (likely(3, **{"1": [-1.0]}), likely(3), {"full": []}):
        assert all(each.value is None for each in explain_score(row(logprobs=logprobs)).segments)


@pytest.mark.parametrize("name", rr.RECIPES)
def test_every_component_of_every_recipe_is_explained(name: str) -> None:
    source = EXAMPLES / f"{name}.jsonl"
    if not source.exists():
        source = EXAMPLES / ("ctrl-rag.jsonl" if "ctrl" in name else "arena.jsonl")
    recipe = rr.recipe(name)
    for line in source.read_text("utf-8").splitlines():
        rollout = msgspec.json.decode(line, type=ScoredRow)
        [score] = recipe.score_each([rollout])
        if isinstance(score, rr.RolloutError):
            continue
        explanation = explain_score(ScoredRow.of(rollout, score, recipe.signature))
        assert [part.name for part in explanation.components] == list(recipe.component_names)
        assert explanation.reason
        assert "".join(each.text for each in explanation.segments) == rollout.parsed.text
        if score.components.get("accuracy") == 0.0:
            part = next(part for part in explanation.components if part.name == "accuracy")
            assert part.improvement.startswith("answer “")


def test_the_configuration_is_read_from_the_signature() -> None:
    recipe = rr.recipe("arena", {"bonus.value": 5})
    old = 'rag-rewards 0.7.0 arena bonus.value=5 models={"nli":"x"}'
    for signature in (recipe.signature, signature_of(recipe, {"nli": "x"}), old):
        scored = Configurations().of(row(signature=signature))
        assert (scored.recipe, scored.settings["bonus.value"]) == ("arena", 5.0)
        assert scored.settings["accuracy.metric"] == "exact"
    for other in (None, "", "a b c", "rag-rewards 0.7.0 mine", "rag-rewards 9.0.0 arena"):
        assert Configurations().of(row(signature=other)) == UNKNOWN


def test_the_stage_of_a_curriculum_depends_on_the_step() -> None:
    stages = (rr.Stage(rr.recipe("naive-grpo"), 10), rr.Stage(rr.recipe("arena")))
    signature = rr.Curriculum(stages).signature
    configurations = Configurations()
    names = [
        configurations.of(row(signature=signature, step=step)).recipe for step in (9, 10, None)
    ]
    assert names == ["naive-grpo", "arena", ""]


def test_the_color_of_a_word_shows_sign_and_size() -> None:
    scored = row(logprobs=likely(7, **{"1": [-1, -1, -3.0, -0.2, -1, -1, -1], "2": [-1.0] * 7}))
    text = colored(explain_score(scored).segments)
    styles = {text.plain[span.start : span.end]: str(span.style) for span in text.spans}
    assert styles["Paris "] == "white on rgb(0,130,40)"
    assert styles["["].startswith("bold underline white on rgb(")
    assert "It " not in styles


NO_SPREAD = "0: all clr of the group are equal"


def scored_examples(name: str, folder: Path, *arguments: str) -> str:
    """Return the path of the scored examples of a recipe."""
    scored = str(folder / "scored.jsonl")
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["score", str(EXAMPLES / f"{name}.jsonl"), "-r", name, "-o", scored, *arguments])
    return scored


def test_a_group_without_spread_explains_its_rewards_of_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scored = scored_examples("ctrl-rag", tmp_path, "--table")
    words = " ".join(capsys.readouterr().out.split())
    assert NO_SPREAD in words
    # Equal rewards keep their order, although ε leaves differences of 1e-8.
    best = words.partition(" worst ")[0]
    shown = ("esperanto-two-hops-in-think", "chajing-with-think", "shkhara-only-second-hop")
    places = [best.index(row) for row in shown]
    assert places == sorted(places)
    assert "argon-copies-the-document" not in best

    for row, is_flat in (
        ("alamillo-right-twin-once-more", True),
        ("kiwi-refuses", True),
        ("cinnabar-wrong-mine", False),
    ):
        explanation = explain_row(scored, row, None, ModelOptions())
        assert explanation.reason.endswith(f"; {NO_SPREAD}") == is_flat
    file = read_rows(scored)
    kiwi = [row for row in file.rows if row.group == "kiwi"]
    group = rr.explain_group(kiwi, "ctrl-rag").rollouts
    assert all(each.reason.endswith(NO_SPREAD) for each in group)
    _, packed = contents(runs_of([file], [""]), "")
    explanations = packed["block-0-0"]["rows"]
    named = {i for i, each in explanations.items() if NO_SPREAD in each["reason"]}
    assert {file.rows[int(i)].group for i in named} == {"kiwi", "alamillo"}

    scaled: list[dict[str, float | None]] = [
        {"clr": value, "clr_normalized": 0.0} for value in (1.0, 1.1)
    ]
    assert no_spread_of(scaled) == "0: clr has no spread"
    assert no_spread_of(scaled[:1]) == ""
    assert no_spread_of([*scaled, {"clr": 2.0, "clr_normalized": 1.0}]) == ""
    assert no_spread_of([{"accuracy": 0.0}] * 2) == ""


def test_binary_rar_explains_whether_documents_contradict(tmp_path: Path) -> None:
    scored = scored_examples("binary-rar", tmp_path)
    explained = {
        row: explain_row(scored, row, None, ModelOptions())
        for row in ("consistent", "contradiction", "truncated")
    }
    assert [each.reason.split(";")[0] for each in explained.values()] == [
        "no document contradicts “King Olav Kyrre founded Bergen in 1070.”",
        "a document contradicts “King Olav Kyrre founded Bergen in 1170.”",
        "“King Olav Kyrre founded Bergen in” is not compared with the documents: truncated",
    ]
    assert [each.components[0].reason for each in explained.values()] == [
        "no document contradicts the response",
        "a document contradicts the response",
        "the response is not compared with the documents: truncated",
    ]


@pytest.mark.parametrize("threshold_on", ["contribution", "reward"])
@pytest.mark.parametrize(("threshold", "value"), [(2.5, 0.0), (2.5, 3.0), (None, 0.0)])
def test_the_reason_for_clr(threshold: float | None, value: float, threshold_on: str) -> None:
    below = {
        "contribution": "the evidential contribution is not above the threshold of 2.5 nats",
        "reward": "the likelihood reward is below the threshold of 2.5",
    }
    settings = {"threshold": threshold, "threshold_on": threshold_on}
    configuration = Configuration("ctrl-rag-clr", settings)
    text, _ = component_reason(row(details={"tokens": 4}), "clr", value, configuration)
    divided = "evidential contribution divided by the square root of 4 tokens"
    assert text == (below[threshold_on] if threshold and not value else divided)
