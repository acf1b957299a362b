"""Prompts in rows, which contain the documents in another form."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
sys.path.insert(0, str(Path(__file__).parents[1] / "models"))

import tiny_models

DOCUMENTS = [{"title": "Seine", "text": "It flows through Paris."}, {"text": "Rome."}]
LINES = "1. Seine:\nIt flows through Paris.\n2. :\nRome.\nWhich city?"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.save(tmp_path_factory.mktemp("models") / "qwen2")


@pytest.fixture
def rows(tmp_path):
    """Two rollouts of one prompt, without evidence."""
    path = tmp_path / "rows.jsonl"
    shared = {"documents": DOCUMENTS, "supporting": [1], "answers": "Paris", "prompt": LINES}
    rows = [{"id": str(i), "group": "g", "response": text} for i, text in enumerate(("Paris", "?"))]
    path.write_text("".join(json.dumps(shared | row) + "\n" for row in rows))
    return path


def options_with(model, *further):
    return ["-r", "ctrl-rag", "--model", model, "--set", "models.dtype=float32", *further]


def test_line_breaks_in_a_form_are_escaped(cli, model, rows, tmp_path):
    form = [
        "--set",
        r"models.document_form={label}. {title}:\n{text}",
        "--set",
        r"models.document_separator=\n",
    ]
    out = tmp_path / "out.jsonl"
    cli("score", rows, "-o", out, *options_with(model, *form), "--keep-evidence", code=0)
    scored = [json.loads(line) for line in out.read_text().splitlines()]
    assert [list(row["logprobs"]["without"]) for row in scored] == [["1"], ["1"]]
    data = json.loads(
        cli("explain", rows, "--id", "0", *options_with(model, *form), "--json", code=0).out
    )
    assert all(each["effect"] is not None for each in data["passages"])


def test_the_form_of_the_recipe_does_not_match(cli, model, rows):
    result = cli("explain", rows, "--id", "0", *options_with(model), code=2)
    assert "document 1 cannot be left out" in result.err
    assert "pass --set models.document_form=TEMPLATE" in result.err


def test_a_prompt_template_is_the_prompt_of_rows_without_a_prompt(cli, model, rows, tmp_path):
    """The prompt of the rows is what the template and the form of documents describe."""
    template, out = tmp_path / "prompt.txt", tmp_path / "out.jsonl"
    template.write_text("{documents}\nWhich {question}?\n")
    own = [json.loads(line) for line in rows.read_text().splitlines()]
    bare = tmp_path / "bare.jsonl"
    lines = [json.dumps(row | {"prompt": None, "question": "city"}) + "\n" for row in own]
    bare.write_text("".join(lines))
    form = [
        "--set",
        r"models.document_form={label}. {title}:\n{text}",
        "--set",
        r"models.document_separator=\n",
    ]
    options = options_with(model, *form, "--set", f"models.prompt_template={template}")
    effects = []
    for each in (rows, bare):
        cli("score", each, "-o", out, *options, "--keep-evidence", code=0)
        evidence = [json.loads(line)["logprobs"] for line in out.read_text().splitlines()]
        data = json.loads(cli("explain", each, "--id", "0", *options, "--json", code=0).out)
        effects.append((evidence, [document["effect"] for document in data["passages"]]))
    chat = [{"role": "user", "content": LINES}]
    rows.write_text("".join(json.dumps(row | {"prompt": chat}) + "\n" for row in own))
    cli("score", rows, "-o", out, *options_with(model, *form), "--keep-evidence", code=0)
    evidence = [json.loads(line)["logprobs"] for line in out.read_text().splitlines()]
    assert effects[1][0] == evidence
    assert None not in effects[1][1]
    assert effects[0][0] != effects[1][0]  # the prompt of the row is text, without a chat template


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--model", "x", "--set", "models.document_form={label}"],
            "the form of a document must contain {text}",
        ),
        (["--model", "x", "--set", "models.document_form={text} {body}"], "found '{text} {body}'"),
        (["--set", "models.document_form={text}"], "of --model: set --model"),
        (["--set", "models.document_separator="], "of --model: set --model"),
        (["--set", f"models.prompt_template={__file__}"], "unknown placeholder"),
        (
            ["--model", "x", "--set", "models.prompt_template=none"],
            "cannot be read: none: No such file",
        ),
    ],
)
def test_invalid_forms(cli, rows, options, message):
    for command in (["score", rows], ["explain", rows, "--id", "0"], ["serve"]):
        result = cli(*command, "-r", "ctrl-rag", *options, code=2)
        assert message in " ".join(result.err.split())
