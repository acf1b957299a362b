"""`rag-rewards prepare --prompt DIALECT`: the prompts of search agents."""

from __future__ import annotations

import json
import re

import pytest

from rag_rewards import decode_row, recipe
from rag_rewards.recipes import RECIPES, definition_of
from rag_rewards.recipes.search_r1 import SEARCH_PROMPTS
from rag_rewards.text.normalize import squad
from rag_rewards.turns.actions import read_own_words
from rag_rewards.turns.dialects import DIALECTS

AGENTS = [
    name for name, definition in RECIPES.items() if definition.prompt == SEARCH_PROMPTS["search-r1"]
]
TAGS = {
    "search-r1": ("<think>", "<search>", "<information>", "<answer>"),
    "r1-searcher": ("<think>", "<|begin_of_query|>", "<|begin_of_documents|>", "<answer>"),
    "research": ("<think>", "<search>", "<result>", "<answer>", "\\boxed"),
    "tools": ("<answer>", "tool"),
}
ROW = {
    "id": 1,
    "question": "Which river?",
    "answers": ["Seine"],
    "documents": [{"text": "The Seine."}],
    "supporting": [1],
    "search_keys": [["river"]],
    "response": "",
}


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(ROW))
    return path


def test_each_dialect_has_a_prompt_and_each_agent_has_them_all():
    assert SEARCH_PROMPTS.keys() == DIALECTS.keys() == TAGS.keys()
    assert {"search-r1", "stepsearch", "igpo"} <= set(AGENTS)
    for name in AGENTS:
        prompts = definition_of(name).prompts
        assert {key: prompts[key] for key in SEARCH_PROMPTS} == SEARCH_PROMPTS


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_prompt_of_a_dialect_is_written(cli, source, tmp_path, dialect):
    out = tmp_path / "out.jsonl"
    cli("prepare", "rows", source, "-o", out, "-r", "search-r1", "--prompt", dialect, code=0)
    [row] = map(json.loads, out.read_text().splitlines())
    [message] = row["prompt"]
    assert message["content"].endswith("Question: Which river?")
    assert all(tag in message["content"] for tag in TAGS[dialect])
    others = {tag for tags in TAGS.values() for tag in tags[1:3]} - set(TAGS[dialect])
    assert not any(tag in message["content"] for tag in others if tag.startswith("<"))
    assert f"prompt: {dialect}" in (tmp_path / "out.jsonl.card.md").read_text()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_prompt_contains_an_answer_that_could_be_scored(dialect):
    """A trainer may put the prompt into the response. Attack 34."""
    [message] = SEARCH_PROMPTS[dialect].messages(decode_row(ROW))
    text = message["content"]
    answers = [action.text for action in read_own_words(text, DIALECTS[dialect]).actions]
    answers += re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    answers += re.findall(r"\\boxed\{([^}]*)\}", text)
    assert all(answer.strip() in ("", "…", "query", "and") for answer in answers)
    assert not re.search(r"<answer>[^<]", text)
    reward = recipe("search-r1", {"dialect": dialect, "scheme": "format"})
    for gold in filter(None, {squad(word) for word in text.split()} - {"alone"}):
        row = decode_row({"answers": [gold], "response": f"{text}\nI do not know it."})
        if dialect != "tools":  # there, the whole text of a last turn is the answer
            assert reward([row])[0].components["outcome"] == 0, gold


def test_the_default_is_the_prompt_of_the_recipe(cli, source, tmp_path):
    outs = [tmp_path / "default.jsonl", tmp_path / "named.jsonl"]
    cli("prepare", "rows", source, "-o", outs[0], "-r", "search-r1", code=0)
    cli("prepare", "rows", source, "-o", outs[1], "-r", "search-r1", "--prompt", "search-r1")
    assert outs[0].read_bytes() == outs[1].read_bytes()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-r", "search-r1", "--prompt", "react"], ["--prompt: search-r1 has no prompt 'react'"]),
        (["-r", "search-r1", "--prompt", "auto"], ["search-r1 has no prompt 'auto'"]),
        (["-r", "arena", "--prompt", "tools"], ["arena has no prompts of dialects", "--recipe"]),
    ],
)
def test_errors_name_the_option_and_the_fix(cli, source, tmp_path, options, words):
    result = cli("prepare", "rows", source, "-o", tmp_path / "out.jsonl", *options, code=2)
    assert all(word in result.err for word in words), result.err
    assert not (tmp_path / "out.jsonl").exists()


# --- gold fields that only the user can add -----------------------------------------------------


@pytest.mark.parametrize("trainer", ["none", "trl", "verl", "openrlhf"])
def test_rubrics_and_search_keys_of_the_rows_are_passed_on(cli, tmp_path, trainer):
    path = tmp_path / "rows.jsonl"
    out = tmp_path / ("out.parquet" if trainer == "verl" else "out.jsonl")
    given = {
        "rubrics": ["<E0> is a river."],
        "rubric": [{"criterion": "Names the river.", "weight": 2.0}, {"max_words": 9}],
    }
    path.write_text(json.dumps(ROW | given))
    for name, field, other in (
        ("carr", "rubrics", "search_keys"),
        ("stepsearch", "search_keys", "rubrics"),
        ("rubric", "rubric", "rubrics"),
    ):
        result = cli("prepare", "rows", path, "-o", out, "-r", name, "-t", trainer, code=0)
        assert "written without" not in result.err
        if trainer == "verl":
            import pyarrow.parquet as pq

            [row] = pq.read_table(out).to_pylist()
            row = json.loads(row["reward_model"]["ground_truth"])
        else:
            row = json.loads(out.read_text())
            row = json.loads(row["label"]) if trainer == "openrlhf" else row
        assert row[field] == given.get(field, ROW.get(field))
        assert other not in row
        out.unlink()


@pytest.mark.parametrize(("name", "field"), [("carr", "rubrics"), ("stepsearch", "search_keys")])
def test_rows_without_the_field_of_a_recipe_are_counted(cli, tmp_path, name, field):
    path, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    rows = [
        ROW | {"id": i, "question": f"Which river ({i})?", "search_keys": None} for i in range(3)
    ]
    rows[0] |= {"search_keys": [["river"]], "rubrics": ["<E0> is a river."]}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    messages = cli("prepare", "rows", path, "-o", out, "-r", name, "-t", "none", code=0).err
    assert f"2 written without `{field}`, which {name} reads: add this field" in " ".join(
        messages.split()
    )


def test_rubrics_of_a_wrong_type_are_a_broken_row(cli, tmp_path):
    path, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    path.write_text(json.dumps(ROW | {"rubrics": 5}) + "\n" + json.dumps(ROW | {"id": 2}))
    messages = cli("prepare", "rows", path, "-o", out, "-r", "carr", "-t", "none", code=3).err
    assert "broken row" in messages
    assert "rubrics" in messages
