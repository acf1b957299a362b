"""`prepare --documents-from` and `--answer-in-documents`: LEAR from the extract to the answer."""

from __future__ import annotations

import json

import pytest
import real_rows
from command_line import read_rows

from rag_rewards.tiny_world.formats import LEAR
from rag_rewards.tiny_world.model import CHECKPOINT
from rag_rewards.tiny_world.world import questions

QUESTION = {
    "question": "Which river runs through Paris?",
    "documents": [{"id": "1", "title": "Paris", "text": "Paris lies on the Seine."}],
    "supporting": ["1"],
    "answerable": True,
    "answers": ["Seine"],
}
RESPONSE = "<reason>Passage 1.</reason><extract> The Seine. </extract><answer>Seine</answer>"


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def prepared(cli, tmp_path):
    """Return a function that prepares rows and returns the result with its output."""

    def prepare(rows, *arguments, code=0):
        source, out = write(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
        ran = cli("prepare", "rows", source, "-o", out, "-r", "lear", *arguments, code=code)
        return ran, read_rows(out) if code == 0 else []

    return prepare


@pytest.mark.parametrize(
    ("part", "response", "text"),
    [
        ("extract", RESPONSE, "The Seine."),
        ("reason", RESPONSE, "Passage 1."),
        ("extract", "<reason>r</reason><extract>It is the Seine", "It is the Seine"),
        ("extract", "<reason>r</reason>", ""),
        ("extract", "<think><extract>x</extract></think><extract>y</extract>", "y"),
        ("response", "<think>t</think>\nStep 1: the Seine.", "Step 1: the Seine."),
        ("extract", [{"role": "assistant", "content": RESPONSE}], "The Seine."),
    ],
)
def test_a_part_of_the_response_is_the_document(prepared, part, response, text):
    rows = [{"id": "q", **QUESTION, "response": response}]
    _, [row] = prepared(rows, "--documents-from", part, "--prompt", "qa")
    assert row["documents"] == [{"id": "1", "title": "", "text": text}]
    assert row["answers"] == [["Seine"]]
    assert not row.keys() & {"response", "supporting", "answerable"}
    [message] = row["prompt"]
    end = f"{QUESTION['question']}\n\nDocument: {text}\n\nAnswer:"
    assert message["content"].endswith(end)
    assert "lies on" not in message["content"]


def test_questions_without_evidence_are_kept_and_counted(prepared, tmp_path):
    rows = [{"id": str(i), **QUESTION, "response": r} for i, r in enumerate((RESPONSE, "none"))]
    ran, written = prepared(rows, "--documents-from", "extract", "--prompt", "qa")
    assert len(written) == 2
    assert "1 with an empty document: the response has no extract" in ran.err
    assert "warning" not in ran.err
    assert "without evidence: 1" in (tmp_path / "out.jsonl.card.md").read_text("utf-8")


def test_a_section_that_no_response_has(prepared, tmp_path):
    rows = [{"id": str(i), **QUESTION, "response": RESPONSE} for i in range(2)]
    ran, written = prepared(rows, "--documents-from", "extrct", "--prompt", "qa")
    assert [row["documents"][0]["text"] for row in written] == ["", ""]
    assert (
        "warning: every document is empty; check the name of the section in --documents-from "
        "extrct, and the responses"
    ) in ran.err
    assert "without evidence: 2" in (tmp_path / "out.jsonl.card.md").read_text("utf-8")


def test_equal_evidence_is_not_a_repeated_row(prepared):
    rows = [{"id": str(i), **QUESTION, "response": RESPONSE} for i in range(3)]
    _, written = prepared(rows, "--documents-from", "extract", "--prompt", "qa")
    assert [row["id"] for row in written] == ["0", "1", "2"]
    _, written = prepared(rows)
    assert len(written) == 1


def test_rows_without_a_response_are_listed(prepared, tmp_path):
    rows = [{"id": "0", **QUESTION}, {"id": "1", **QUESTION, "response": RESPONSE}]
    prepared(rows, "--documents-from", "extract", "--prompt", "qa")
    [dropped] = read_rows(tmp_path / "out.jsonl.dropped.jsonl")
    assert (dropped["row"], dropped["reason"]) == (1, "no response")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--documents-from", "<extract>"), "--documents-from must be the name of a section"),
        (
            ("--documents-from", "extract", "--prompt", "closed-book"),
            "--prompt closed-book contains no documents, which --documents-from adds",
        ),
    ],
)
def test_options_that_cannot_be_used(prepared, arguments, message):
    ran, _ = prepared([{**QUESTION, "response": RESPONSE}], *arguments, code=2)
    assert message in ran.err


def test_other_data_sets_have_no_responses(cli, tmp_path):
    source = write(tmp_path / "nq.jsonl", [])
    arguments = ("-o", tmp_path / "out.jsonl", "-r", "lear", "--documents-from", "extract")
    ran = cli("prepare", "nq", source, *arguments, code=2)
    assert "--documents-from reads responses, which nq does not contain" in ran.err


def test_questions_whose_documents_contain_the_answer(prepared, tmp_path):
    def question(name, answers, text):
        return {**QUESTION, "id": name, "answers": answers, "documents": [{"text": text}]}

    rows = [
        question("right", ["the Seine", "Seine river"], "It is the Seine, he said."),
        question("part of a word", ["Sein"], "It is the Seine."),
        question("one of two", [["Seine"], ["Oise"]], "The Seine."),
        question("both", [["Seine"], ["Oise"]], "The Seine and the Oise."),
        question("closed", ["yes"], "Yes."),
    ]
    _, written = prepared(rows, "--answer-in-documents")
    assert [row["id"] for row in written] == ["right", "both"]
    dropped = read_rows(tmp_path / "out.jsonl.dropped.jsonl")
    assert {row["reason"] for row in dropped} == {"the documents do not contain the gold answer"}


def test_the_filter_on_real_rows(cli, shared, tmp_path):
    """The rows that the filter keeps are those that have a relevant document."""
    rows = [row | {"supporting": None} for row in real_rows.ircot(shared / "data")]
    source = write(tmp_path / "rows.jsonl", rows)
    out, few = tmp_path / "all.jsonl", tmp_path / "few.jsonl"
    options = ("-r", "lear", "--top", 3)
    cli("prepare", "rows", source, "-o", out, *options, code=0)
    cli("prepare", "rows", source, "-o", few, *options, "--answer-in-documents", code=0)
    metrics = {}
    for path in (out, few):
        ran = cli("evaluate", path, "-m", "recall@3,ndcg@3", "-o", "-", code=0)
        [run] = json.loads(ran.out)["runs"]
        metrics[path] = {m["metric"]: m for m in run["metrics"]}
    recall, ndcg = metrics[out]["recall@3"], metrics[out]["ndcg@3"]
    assert 0 < len(read_rows(few)) < recall["counts"]["rows"]
    assert recall["counts"]["rows"] + recall["counts"]["closed"] == len(read_rows(out))
    assert recall["values"]["hit"]["value"] == pytest.approx(
        len(read_rows(few)) / recall["counts"]["rows"]
    )
    assert metrics[few]["recall@3"]["values"]["hit"]["value"] == 1.0
    assert ndcg["values"]["ndcg@3"]["value"] <= recall["values"]["hit"]["value"]


@pytest.mark.slow
def test_from_the_extract_to_the_answer(cli, tmp_path, monkeypatch):
    """A model extracts the evidence, and the same model answers from the evidence alone."""
    monkeypatch.chdir(tmp_path)
    drawn = questions(12, seed="lear", unanswerable=0.0)
    write(tmp_path / "questions.jsonl", [LEAR.row(q, id=f"q{i}") for i, q in enumerate(drawn)])
    (tmp_path / "qa.txt").write_text("{documents} ? {question}")
    sampling = ("--model", CHECKPOINT, "--samples", 1, "--temperature", 0, "-r", "lear")

    def sample(source, out, tokens, *more):
        names = ("-o", f"labels-{out}", "--keep-rollouts", out, "--max-tokens", tokens)
        cli("probe", source, *names, *sampling, *more, code=0)

    sample("questions.jsonl", "extracts.jsonl", 40, "--stop", "</extract>")
    cli(
        *("prepare", "rows", "extracts.jsonl", "-o", "qa.jsonl", "-r", "lear"),
        *("--documents-from", "extract", "--prompt", "qa", "--prompt-template", "qa.txt"),
        *("--document-form", "{text} [{label}] .", "--document-separator", " "),
        code=0,
    )
    sample("qa.jsonl", "answers.jsonl", 12)

    def value(path, metric):
        ran = cli("evaluate", path, "-m", metric, "-o", "-", code=0)
        [run] = json.loads(ran.out)["runs"]
        return run["metrics"][0]["values"][metric.partition("(")[0]]["value"]

    extracts, answers = (
        read_rows(tmp_path / "extracts.jsonl"),
        read_rows(tmp_path / "answers.jsonl"),
    )
    assert all("?lear" not in row["prompt"][0]["content"] for row in answers)
    passages = sum(len(d["text"].split()) for row in extracts for d in row["documents"])
    assert not any("</extract>" in row["response"] for row in extracts)
    found = [row["response"].partition("<extract>")[2] for row in extracts]
    assert value("extracts.jsonl", "compression-ratio(unclosed=to_end)") == pytest.approx(
        passages / sum(len(text.split()) for text in found)
    )
    right = [row["answers"][0][0] in row["response"].split() for row in answers]
    assert value("answers.jsonl", "em(normalizer=unicode)") == pytest.approx(sum(right) / 12)
    assert sum(right) >= 9
