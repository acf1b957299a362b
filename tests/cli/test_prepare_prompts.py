"""`rag-rewards prepare`: named prompts, and rows without documents."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import card_of, read_rows

from rag_rewards.signature import Signature

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "models"))


def facts(number, **changes):
    """A row of HotpotQA whose second and third documents are supporting."""
    titles = [f"T{number}.{i}" for i in range(4)]
    return {
        "_id": f"id{number}",
        "question": f"Question {number}?",
        "answer": f"answer {number}",
        "context": [[title, [f"About {title}, which is answer {number}."]] for title in titles],
        "supporting_facts": [[titles[1], 0], [titles[2], 0]],
    } | changes


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "hotpot.json"
    path.write_text(json.dumps([facts(i) for i in range(20)]))
    return path


def text_of(row):
    [message] = row["prompt"]
    return message["content"]


def test_rows_without_documents(cli, source, tmp_path):
    out = tmp_path / "out.jsonl"
    cli("prepare", "hotpotqa", source, "-o", out, "-r", "arena", "--prompt", "closed-book", code=0)
    rows = read_rows(out)
    assert rows[0].keys() >= {"group", "prompt", "id", "question", "answers", "answer_kind"}
    assert rows[0].keys().isdisjoint({"documents", "supporting", "answerable"})
    assert "Reply with <answer>…</answer> and nothing else" in text_of(rows[0])
    assert text_of(rows[0]).endswith("\n\nQuestion: Question 0?")
    assert "About" not in text_of(rows[0])
    card = card_of(out)
    assert (card["prompt"], card["trainer"]) == ("closed-book", "none")
    assert card["counts"]["rows by documents"] == {0: 20}
    assert "none, because the rows contain no documents" in (
        tmp_path / "out.jsonl.card.md"
    ).read_text("utf-8")


def test_the_direct_prompt(cli, source, tmp_path):
    out = tmp_path / "out.jsonl"
    cli("prepare", "hotpotqa", source, "-o", out, "-r", "arena", "--prompt", "direct", code=0)
    row = read_rows(out)[3]
    assert "[1] About T3.0, which is answer 3.\n\n[2] About T3.1" in text_of(row)
    assert "<relevance>" not in text_of(row)
    assert row["supporting"] == ["2", "3"]
    assert card_of(out)["prompt"] == "direct"


@pytest.mark.parametrize(
    "options", [("--sample", "7", "--seed", "3"), ("--order", "shuffled"), ("--top", "3")]
)
def test_the_same_questions_with_and_without_documents(cli, source, tmp_path, options):
    names = []
    for more in ((), ("--prompt", "closed-book")):
        out = tmp_path / "out.jsonl"
        arguments = ("prepare", "hotpotqa", source, "-o", out, "-r", "ctrl-rag", *options, *more)
        cli(*arguments, code=0)
        names.append([row["id"] for row in read_rows(out)])
    assert names[0] == names[1]


def test_reference_reliance_from_the_data_set_to_the_metric(cli, source, tmp_path):
    """A generator that copies an answer from its prompt, and knows three of 20 answers."""
    arguments = ("prepare", "hotpotqa", source, "-r", "ctrl-rag")
    files = {"with": (), "without": ("--prompt", "closed-book")}
    for name, options in files.items():
        out = tmp_path / f"{name}.jsonl"
        cli(*arguments, "-o", out, *options, code=0)
        responses = []
        for row in reversed(read_rows(out)):  # rows are joined on `id`, not on their position
            [[answer]] = row["answers"]
            is_known = answer in text_of(row) or row["id"] in ("id1", "id4", "id9")
            said = answer if is_known else "nobody knows"
            response = f"<think>Let me see.</think><answer>{said}</answer>"
            responses.append(json.dumps(row | {"response": response}) + "\n")
        out.write_text("".join(responses))
    with_documents, without = (tmp_path / f"{name}.jsonl" for name in files)
    result = cli(
        *("evaluate", with_documents, without, "-m", "reference-reliance", "-o", "-"),
        *("--resamples", "50"),
        code=0,
    )
    [pair] = json.loads(result.out)["pairs"]
    values = {name: value["value"] for name, value in pair["values"].items()}
    assert values == {"reference-reliance": 0.85, "with": 1.0, "without": 0.15}


@pytest.mark.slow
def test_the_commands_of_the_page_about_evaluation(source, tmp_path):
    """A random model answers no question, with and without documents."""
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    import tiny_models

    tiny_models.save(tmp_path / "model")
    source.rename(tmp_path / "dev.json")
    page = (ROOT / "docs" / "evaluate.md").read_text("utf-8")
    section = page.split("## Measure the reference reliance")[1].split("\n## ")[0]
    [commands] = re.findall(r"^```sh gpu\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    commands = commands.replace("path/to/model", "model --max-tokens 8").replace("500", "12")
    script = f'set -e\nrag-rewards() {{ "{sys.executable}" -m rag_rewards "$@"; }}\n{commands}'
    ran = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "with 0 · without 0 · pairs 12" in ran.stdout
    ids = [
        [row["id"] for row in read_rows(tmp_path / f"responses.{name}.jsonl")]
        for name in ("with", "without")
    ]
    assert ids[0] == ids[1]


def test_questions_of_files_without_documents(cli, tmp_path):
    source, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    rows = [{"id": "a", "question": "Which river?", "answers": ["Seine"]}]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ("prepare", "rows", source, "-o", out, "-r", "arena")
    assert "no documents: 1" in cli(*arguments, code=2).err
    cli(*arguments, "--prompt", "closed-book", code=0)
    assert [row["id"] for row in read_rows(out)] == ["a"]


def test_rows_without_documents_for_trainers(cli, source, tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "out.parquet"
    arguments = ("prepare", "hotpotqa", source, "--prompt", "closed-book")
    cli(*arguments, "-o", out, "-r", "truthrl", "-t", "verl", code=0)
    row = pq.read_table(out).to_pylist()[0]
    assert {"index", "split", "id", "question"} <= row["extra_info"].keys()
    assert "documents" not in row["extra_info"]
    truth = json.loads(row["reward_model"]["ground_truth"])
    assert truth == {"answers": [["answer 0"]], "answer_kind": "short"}
    ran = cli(*arguments, "-o", tmp_path / "out.jsonl", "-r", "arena", "-t", "trl", code=2)
    assert "arena reads `supporting`, so that --trainer trl cannot train on rows" in ran.err


# --- templates ---------------------------------------------------------------------------------

TEMPLATE = "{instruction}\n\nContext:\n{documents}\n\nQuestion: {question}\n"


@pytest.fixture
def template(tmp_path):
    path = tmp_path / "prompt.txt"
    path.write_text(TEMPLATE)
    return path


def test_a_template_replaces_the_prompt(cli, source, template, tmp_path):
    out = tmp_path / "out.jsonl"
    arguments = ("prepare", "hotpotqa", source, "-o", out, "-r", "arena")
    forms = ("--document-form", r"({label}) {text}", "--document-separator", r"\n")
    cli(*arguments, "--prompt-template", template, *forms, code=0)
    text = text_of(read_rows(out)[5])
    assert text.startswith("Answer the question from the numbered references.")
    assert text.endswith(
        "\n\nContext:\n"
        "(1) About T5.0, which is answer 5.\n(2) About T5.1, which is answer 5.\n"
        "(3) About T5.2, which is answer 5.\n(4) About T5.3, which is answer 5.\n\n"
        "Question: Question 5?"
    )
    card = card_of(out)
    digest = hashlib.sha256(TEMPLATE.encode()).hexdigest()
    assert card["prompt template"] == {"file": "prompt.txt", "sha256": digest}
    assert Signature.parse(card["signature"]).settings["prompt_template"] == digest
    card_text = (tmp_path / "out.jsonl.card.md").read_text("utf-8")
    assert "\n    Context:\n    {documents}\n\n    Question: {question}" in card_text
    assert str(tmp_path) not in card_text
    cli(*arguments, code=0)
    assert "prompt template" not in card_of(out)


def test_a_template_without_documents(cli, source, template, tmp_path):
    out = tmp_path / "out.jsonl"
    template.write_text("{question}\n\nPut the answer into <answer></answer>.")
    arguments = ("prepare", "hotpotqa", source, "-o", out, "-r", "arena")
    cli(*arguments, "--prompt", "closed-book", "--prompt-template", template, code=0)
    assert text_of(read_rows(out)[0]) == "Question 0?\n\nPut the answer into <answer></answer>."


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", [], "--prompt-template: the template is empty"),
        ("{instruction} {question}", [], "has no {documents}: add it where the documents belong"),
        ("{documents} {question}", [], "does not request <relevance> and <analysis> and <answer>"),
        (TEMPLATE + "{context}", [], "unknown placeholder {context}"),
        (TEMPLATE + "{question}", [], "contains {question} more than once"),
        (
            TEMPLATE,
            ["--prompt", "closed-book"],
            "contains {documents}, but the prompt is closed-book",
        ),
        (TEMPLATE, ["--document-form", "{label}"], "the form of a document must contain {text}"),
    ],
)
def test_unusable_templates(cli, source, template, tmp_path, text, options, message):
    template.write_text(text)
    out = tmp_path / "out.jsonl"
    arguments = ("-o", out, "-r", "arena", "--prompt-template", template, *options)
    assert message in cli("prepare", "hotpotqa", source, *arguments, code=2).err
    assert not out.exists()


def test_a_template_is_not_overwritten(cli, source, tmp_path):
    out = tmp_path / "out.jsonl"
    out.write_text(TEMPLATE)
    arguments = ("-o", out, "-r", "arena", "--prompt-template", out)
    assert "would overwrite" in cli("prepare", "hotpotqa", source, *arguments, code=2).err
    assert out.read_text() == TEMPLATE


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prompt", "closedbook"], "--prompt: arena has no prompt 'closedbook'; did you mean"),
        (
            ["--prompt", "closed-book", "--noise", "3"],
            "--prompt closed-book contains no documents, which --noise adds",
        ),
        (
            ["-r", "search-r1", "--noise", "3"],
            "the prompt of search-r1 contains no documents: leave out --noise",
        ),
    ],
)
def test_unusable_prompts(cli, source, tmp_path, options, message):
    out = tmp_path / "out.jsonl"
    ran = cli("prepare", "hotpotqa", source, "-o", out, "-r", "arena", *options, code=2)
    assert message in ran.err
    assert not out.exists()


def test_the_hardened_profile(cli, source, template, tmp_path):
    out = tmp_path / "out.jsonl"
    template.write_text("{documents}\n\n{question}\n\nAnswer:")
    arguments = ("prepare", "hotpotqa", source, "-o", out, "-r", "ctrl-rag")
    cli(*arguments, "--prompt-template", template, code=0)
    result = cli(*arguments, "--prompt-template", template, "--hardened", code=2)
    assert "does not request <answer>, which the recipe reads" in result.err

    cli(*arguments, "--hardened", code=0)
    assert "inside <answer> and </answer>" in text_of(read_rows(out)[0])
    signed = Signature.parse(card_of(out)["reward"])
    assert signed.hardened
    assert signed.recipe == "ctrl-rag"
    cli(*arguments, code=0)
    assert not Signature.parse(card_of(out)["reward"]).hardened


def test_a_prompt_that_does_not_request_the_answer_of_the_hardened_profile(cli, source, tmp_path):
    rows = tmp_path / "out.jsonl"
    arguments = ("prepare", "hotpotqa", source, "-o", rows, "-r", "lear", "--prompt", "qa")
    cli(*arguments, "-t", "trl", code=0)
    result = cli(*arguments, "-t", "trl", "--hardened", code=2)
    assert "--prompt qa does not request the <answer> section, which lear reads" in result.err
    cli(*arguments, "--hardened", code=0)  # rows of a baseline for any generator
