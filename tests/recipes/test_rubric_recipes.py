"""The recipes rubric and ruler: values by hand, the gate, what the judge sees, one command."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards import DataError, decode_row, recipe
from rag_rewards.cli.entry import main
from rag_rewards.errors import SettingError
from rag_rewards.evidence.gather import Gatherer
from rag_rewards.evidence.protocols import Models
from rag_rewards.testing import TableJudge

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))

from judge_server import JudgeServer, Reply

some = budget(100)
PAGE = {"title": "Mill", "text": "The mill closed in 1932."}


def row(text, grades=None, rubric=None, **fields):
    base = {"question": "When?", "group": "g", "documents": [PAGE], "response": text}
    verdicts = None if grades is None else {"rubric": grades}
    return decode_row(base | {"rubric": rubric, "verdicts": verdicts} | fields)


def score(each, name="rubric", hardened=False, **settings):
    return recipe(name, settings, hardened=hardened)([each])[0]


# --- rubric --------------------------------------------------------------------------------------

WEIGHTED = st.lists(
    st.tuples(st.sampled_from([0, 0.25, 1]), st.sampled_from([-2, -0.5, 0, 0.5, 3])), max_size=6
)


@some
@given(WEIGHTED, st.booleans())
def test_the_naive_twin(pairs, clip):
    pairs = [*pairs, (0.5, 1)]
    rubric = [
        {"criterion": f"c{i}", "name": f"n{i}", "weight": w} for i, (_, w) in enumerate(pairs)
    ]
    grades = {f"n{i}": grade for i, (grade, _) in enumerate(pairs)}
    expected = sum(grade * w for grade, w in pairs) / sum(w for _, w in pairs if w > 0)
    expected = min(max(expected, 0), 1) if clip else expected
    assert score(row("x", grades, rubric), clip=clip).value == pytest.approx(expected)


def test_shared_criteria_are_components():
    criteria = [{"criterion": "Has the year.", "name": "year"}, {"max_words": 3, "name": "brief"}]
    result = score(row("It closed in 1932.", {"year": 1}), criteria=criteria)
    assert result.components == {"rubric": 0.5, "year": 1.0, "brief": 0.0}


@pytest.mark.parametrize(("text", "value"), [("1932 [1].", 1), ("1932 [2].", 0), ("1932.", 0)])
def test_the_gate_requires_a_citation_of_a_document(text, value):
    rubric = [{"contains": "1932"}]
    result = score(row(text, rubric=rubric), gate="citation")
    assert (result.value, result.components) == (value, {"rubric": 1.0, "cited": float(value)})
    assert score(row(text, rubric=rubric)).value == 1.0


@pytest.mark.parametrize(
    ("reads", "graded"),
    [
        ("visible", "Old. <!-- 1932 --> <answer>Yes.</answer>"),
        ("shown", "Old.   <answer>Yes.</answer>"),
        ("answer", "Yes."),
        ("response", "<think>1932</think>Old. <!-- 1932 --> <answer>Yes.</answer>"),
    ],
)
def test_the_text_that_is_graded(reads, graded):
    text = "<think>1932</think>Old. <!-- 1932 --> <answer>Yes.</answer>"
    (need,) = recipe("rubric", {"reads": reads}).needs(row(text, None, [{"criterion": "c"}]))
    (question,) = need.questions
    assert re.sub(r"\s+", " ", question.response) == re.sub(r"\s+", " ", graded)


def test_missing_rubric_and_missing_grade():
    with pytest.raises(DataError, match=r"rubric: missing; list criteria"):
        score(row("x"))
    with pytest.raises(DataError, match=r"verdicts\.rubric: missing; add a grade from 0 to 1"):
        score(row("x", {"other": 1}, [{"criterion": "c", "name": "n"}]))


@pytest.mark.parametrize(
    ("name", "settings", "criterion"),
    [("rubric", {"gate": "citation"}, "cited"), ("dr-tulu", {}, "citation")],
)
def test_a_criterion_needs_another_name_than_a_component(name, settings, criterion):
    key = "criteria" if name == "rubric" else "rubric.criteria"
    settings |= {key: [{"criterion": "Has the year.", "name": criterion}]}
    with pytest.raises(SettingError, match=f"several components are named '{criterion}'"):
        recipe(name, settings)


YAML = """
recipe: rubric
criteria:
  - {criterion: States the year., name: year, weight: 3}
  - {criterion: States the reason., name: reason, weight: 2}
  - {criterion: Is one sentence., name: short}
  - {criterion: Invents a fact., name: invented, weight: -2}
  - {contains: "1932", name: number, weight: 2}
"""


def test_one_command_from_a_yaml_file_to_rewards(tmp_path):
    """Five criteria with weights, a judge and no Python: one request for each response."""

    def reply(request):
        right = "closed in 1932" in request.material
        scores = {"1": int(right), "2": 0, "3": 1, "4": int(not right)}
        return Reply(json.dumps({"explanation": "so", "scores": scores}))

    (tmp_path / "rubric.yaml").write_text(YAML)
    texts = ("It closed in 1932.", "It closed in 1950, for want of money.", "")
    rows = [{"id": i, "question": "When?", "response": text} for i, text in enumerate(texts)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    files = [str(tmp_path / name) for name in ("rows.jsonl", "rubric.yaml", "scored.jsonl")]
    with JudgeServer(reply) as server:
        models = ["--judge", server.url, "--judge-model", "m"]
        with pytest.raises(SystemExit) as ended:
            main(["score", files[0], "--config", files[1], "-o", files[2], *models])
    assert not ended.value.code
    scored = [json.loads(line) for line in (tmp_path / "scored.jsonl").read_text().splitlines()]
    assert [each["reward"] for each in scored] == pytest.approx([6 / 8, 0, 0])  # (1 − 2)/8, clipped
    assert scored[0]["components"]["number"] == 1.0
    assert len(server.requests) == 2


# --- ruler ---------------------------------------------------------------------------------------


def graded_group(rows, grade, **settings):
    judge = TableJudge(lambda question: tuple(map(grade, question.responses)))
    built = recipe("ruler", settings)
    informed = Gatherer(Models(judge=judge)).gather_sync(built, rows)
    return [each.value for each in built(informed)], judge.requests


def test_a_group_is_one_question():
    group = [row(text) for text in ("In 1932.", "In 1950.", "In 1932.", " ")]
    values, requests = graded_group(group, lambda text: 0.9 if "1932" in text else 0.2)
    assert values == [0.9, 0.2, 0.9, 0.0]
    (question,) = requests
    assert sorted(question.responses) == ["In 1932.", "In 1950."]
    assert question.documents == ("Title: Mill\nThe mill closed in 1932.",)
    assert graded_group(group[::-1], lambda text: 1)[1] == requests


def test_the_judge_sees_all_turns_and_no_other_documents():
    turns = [
        {"text": "<search>mill</search>", "results": [{"text": "It closed."}]},
        {"text": "<answer>1932</answer>"},
    ]
    each = decode_row({"question": "When?", "turns": turns})
    [question] = graded_group([each], lambda text: 1)[1]
    assert question.responses == ("<search>mill</search>\nIt closed.\n<answer>1932</answer>",)
    assert question.documents == ()
    [question] = graded_group([each], lambda text: 1, reads="shown")[1]
    assert question.responses == ("<answer>1932</answer>",)
