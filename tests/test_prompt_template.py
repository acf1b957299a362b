"""Prompt templates: their placeholders, their errors, and contexts that are built from them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

import rag_rewards as rr
from rag_rewards.errors import OptionError
from rag_rewards.evidence.protocols import Models
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.preparation.options import PrepareOptions
from rag_rewards.preparation.prepare import prepare
from rag_rewards.prompts import ANY_FORM, MAX_TEMPLATE_BYTES, Prompt, PromptTemplate
from rag_rewards.recipes import RECIPES, definition_of
from rag_rewards.scorer import PromptOptions, Scorer
from rag_rewards.testing import TablePolicy

sys.path.insert(0, str(Path(__file__).parent / "models"))

ROW = {
    "question": "Which city?",
    "documents": [{"title": "Seine", "text": "It flows through Paris."}, {"text": "Rome."}],
    "supporting": [1],
    "answers": "Paris",
    "response": "",
}
OWN = (
    "Use these passages. Think inside <think></think>; reply inside <answer></answer>.\n\n"
    "{documents}\n\nQ: {question}\nA:"
)


def applied(text, name="naive-grpo", prompt="default", **fields):
    definition = definition_of(name)
    own = PromptTemplate(text).apply(definition.prompts[prompt], definition.output)
    [message] = own.messages(rr.decode_row(ROW | fields))
    return message["content"]


def test_a_template_with_its_own_instruction():
    assert applied(OWN) == (
        "Use these passages. Think inside <think></think>; reply inside <answer></answer>.\n\n"
        "[1] It flows through Paris.\n\n[2] Rome.\n\nQ: Which city?\nA:"
    )


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("prompt", ["default", "direct", "closed-book"])
def test_a_template_with_the_instruction_of_the_recipe(name, prompt):
    own = definition_of(name).prompts[prompt]
    documents = "{documents}" if own.shows_documents else ""
    text = applied("{question}|{instruction}|" + documents, name, prompt)
    question, instruction, rest = text.split("|")
    assert question == "Which city?"
    instruct = own.instruction
    assert instruction == (instruct if isinstance(instruct, str) else instruct(rr.decode_row(ROW)))
    assert ("It flows through Paris." in rest) == own.shows_documents


def test_the_placeholders_of_values_are_not_filled():
    text = applied(OWN, question="{documents}?", documents=[{"text": "{question}{instruction}"}])
    assert text.endswith("[1] {question}{instruction}\n\nQ: {documents}?\nA:")


def test_the_query_time():
    template = "{instruction}\n{documents}\n{question}\nTime: {query_time}"
    assert applied(template, "truthrl", query_time="now").endswith("Which city?\nTime: now")
    assert "as of the time" in applied(template, "truthrl", query_time="now")
    assert applied(template, "truthrl").endswith("Which city?\nTime: ")


@pytest.mark.parametrize(
    "braces",
    [
        r"\boxed{}",
        r"\boxed{3 times}",
        r"\boxed{I don't know}",
        '{"a": {"b": 1}}',
        "{}",
        "}{",
        "{a-b}",
        "{\n}",
    ],
)
def test_other_braces_are_literal(braces):
    assert applied(f"{OWN} {braces}").endswith(f"\nA: {braces}")


def test_double_braces_around_a_word_are_single_braces():
    assert applied(r"{OWN} \boxed{{Paris}}".replace("{OWN}", OWN)).endswith(r"\boxed{Paris}")


def test_gold_data_of_a_prompt_for_rationales():
    """The text of ARENA, Table 9, can be used; other prompts must not contain gold data."""
    text = "{question}\n{documents}\nRelevance IDs: {gold_documents}\nAnswer: {gold_answer}"
    [content] = [applied(text, "arena", "gold-rationale", supporting=[2, 1])]
    assert content.endswith("Relevance IDs: [1, 2]\nAnswer: Paris")
    numbered = applied(
        "{question} {documents} {gold_answers}",
        *("ground-grpo", "gold-answers"),
        answers=[["Paris", "Lutetia"], ["{question}"]],
    )
    assert numbered.endswith("Answer 1: Paris\nAnswer 2: {question}")
    with pytest.raises(OptionError, match="the policy must not see gold data: remove it"):
        applied(text, "arena")
    with pytest.raises(OptionError, match=r"has no \{gold_answer\} or \{gold_answers\}"):
        applied("{question} {documents}", "arena", "gold-rationale")


def test_no_trainer_gets_a_prompt_with_gold_data(tmp_path):
    source = tmp_path / "rows.jsonl"
    source.write_text(json.dumps(ROW) + "\n")
    options = ("rows", str(source), str(tmp_path / "out.jsonl"), "arena")
    for trainer in ("trl", "none"):
        chosen = PrepareOptions(*options, trainer=trainer, prompt="gold-rationale")
        if trainer == "none":
            assert prepare(chosen).written == 1
        else:
            with pytest.raises(OptionError, match="contains the gold answer, so that"):
                prepare(chosen)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("{instruction} {question}", r"has no \{documents\}: add it"),
        ("{instruction} {documents}", r"has no \{question\}: add it"),
        ("{documents} {question} {document}", r"unknown placeholder \{document\}.*'documents'"),
        ("{documents} {question} {passages}", r"unknown placeholder \{passages\}.*there are: inst"),
        ("{documents} {question} {passages}", r"write \{\{passages\}\} for the literal text"),
        ("{documents} {Question}", r"unknown placeholder \{Question\}.*'question'"),
        ("{documents} {question} {query time}", r"placeholder \{query time\}.*'query_time'"),
        ("{documents} { question }", r"placeholder \{ question \}.*'question'"),
        ("{documents} {{question}}", r"\{\{question\}\}: write the placeholder as \{question\}"),
        ("{documents} {documents} {question}", r"contains \{documents\} more than once"),
        ("{question} {documents} {question}", r"contains \{question\} more than once"),
        ("{documents.x} {question}", r"has no \{documents\}"),
        ("{documents} {question!r}", r"has no \{question\}"),
        ("{documents} {question}", "does not request <think> and <answer>"),
        ("{documents} {question} <think>", "does not request <answer>, which the recipe reads"),
    ],
)
def test_bad_templates(text, message):
    with pytest.raises(OptionError, match=message):
        applied(text)


def test_the_output_form_of_each_recipe():
    for name, missing in {
        "arena": "<relevance> and <analysis> and <answer>",
        "ground-grpo": "<think> and <answer>",
        "lear": "<reason> and <extract> and <answer>",
        "truthrl": r"<think> and \boxed",
    }.items():
        with pytest.raises(OptionError, match=re.escape(f"does not request {missing},")):
            applied("{documents} {question}", name)
    # The rewards of CTRL-RAG read every form.
    for name in ("ctrl-rag", "ctrl-rag-clr", "rag-total"):
        assert applied("{documents} {question}", name).endswith("Rome. Which city?")
    # A direct answer has no other parts than the answer.
    assert applied("{documents} {question} <answer>", "arena", "direct")
    with pytest.raises(OptionError, match="does not request <answer>, which"):
        applied("{documents} {question}", "arena", "direct")


def test_a_closed_book_template_has_no_documents():
    assert applied("{question} <answer>", "arena", "closed-book") == "Which city? <answer>"
    with pytest.raises(OptionError, match=r"contains \{documents\}, but the prompt is closed-book"):
        applied(OWN, "arena", "closed-book")


def test_a_prompt_without_an_instruction():
    prompt = Prompt("Do this. {documents} {question}")
    with pytest.raises(OptionError, match=r"contains \{instruction\}, but the recipe has no"):
        PromptTemplate("{instruction} {documents} {question}").apply(prompt, ANY_FORM)


# --- files -------------------------------------------------------------------------------------


def test_a_file(tmp_path):
    path = tmp_path / "prompt.txt"
    path.write_bytes(b"\xef\xbb\xbf" + OWN.replace("\n", "\r\n").encode() + b"\r\n")
    assert PromptTemplate.read(path) == PromptTemplate(OWN)
    path.write_bytes((OWN + "\n\n").encode())
    assert PromptTemplate.read(path) == PromptTemplate(OWN + "\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"{documents} \xff {question}", r"is not UTF-8: .* invalid byte at position 12"),
        (b"x" * (MAX_TEMPLATE_BYTES + 1), "is larger than 100,000 bytes"),
        ("{documents} {question}".encode("utf-16"), "is not UTF-8"),
    ],
)
def test_bad_files(tmp_path, content, message):
    path = tmp_path / "prompt.txt"
    path.write_bytes(content)
    with pytest.raises(OptionError, match=message):
        PromptTemplate.read(path)


def test_files_that_cannot_be_read(tmp_path):
    for path in (tmp_path, tmp_path / "none.txt", "a\0b"):
        with pytest.raises(OptionError, match="cannot be read"):
            PromptTemplate.read(path)


def test_an_endless_file_is_read_only_in_part():
    if Path("/dev/zero").exists():
        with pytest.raises(OptionError, match="is larger than"):
            PromptTemplate.read("/dev/zero")


def test_a_large_template_takes_linear_time():
    text = "{" * 40_000 + "}" * 40_000 + "{{" * 5_000
    assert PromptTemplate(f"{text} {{documents}} {{question}}").placeholders[-1] == "question"


# --- contexts ----------------------------------------------------------------------------------


@pytest.fixture
def template_file(tmp_path):
    path = tmp_path / "prompt.txt"

    def write(text):
        path.write_text(text, "utf-8")
        return str(path)

    return write


def test_the_template_is_in_the_signature(template_file):
    models = Models(policy=TablePolicy())
    recipe = rr.recipe("ctrl-rag")
    signatures = {
        Scorer(recipe, models, prompt=PromptOptions(prompt_template=template)).signature
        for template in (None, PromptTemplate(OWN), PromptTemplate(OWN + " "))
    }
    assert len(signatures) == 3
    own = PromptOptions(prompt_template=PromptTemplate(OWN))
    assert Scorer(recipe, models, prompt=own).signature in signatures


def test_a_template_of_the_options_is_checked_before_a_model_is_loaded(template_file):
    file = template_file("{documents} {question}")
    with pytest.raises(OptionError, match="does not request <reason>"):
        Scorer.load("lear", models=ModelOptions(model="no/such", prompt_template=file))
    with pytest.raises(OptionError, match="prompt_template is the prompt of model: set model"):
        ModelOptions(prompt_template=file)
    with pytest.raises(OptionError, match="cannot be read"):
        ModelOptions(model="no/such", prompt_template=file + "x")


TEMPLATES = {
    "ctrl-rag": "Context information:\n{documents}\n----\nReply to: {question}\nReply:",
    "lear": "{question}\n\n{documents}\n\nUse <reason>, <extract> and <answer>.",
}
RESPONSES = {
    "ctrl-rag": ["It flows through Paris.", "Paris", "Rome"],
    "lear": [
        "<reason>It flows through Paris</reason><extract>Paris</extract><answer>Paris</answer>",
        "<reason>Rome</reason><extract>Rome.</extract><answer>Rome</answer>",
    ],
}
FORMS = [(None, None), ("Passage {label}: {text}", "\n")]


def values_of(rollout):
    """Return the log-probabilities with and without each document, as one list."""
    if rollout.logprobs is None:
        return []
    without = rollout.logprobs.without
    return [*rollout.logprobs.full, *(x for label in sorted(without) for x in without[label])]


@pytest.mark.parametrize(
    ("name", "forms"), [*(("ctrl-rag", forms) for forms in FORMS), ("lear", FORMS[1])]
)
def test_evidence_of_a_tiny_model(name, forms, template_file, shared, tmp_path):
    """Rows with the prompt of a template have the evidence of rows without a prompt.

    In one case the documents are removed from the text of the row, and in the other case the
    template is filled without them.
    """
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    import tiny_models

    file = template_file(TEMPLATES[name])
    source = shared / "data/hotpotqa/distractor_row_trimmed.json"
    out = tmp_path / "out.jsonl"
    options = {"prompt_template": file, "document_form": forms[0], "document_separator": forms[1]}
    prepare(PrepareOptions("hotpotqa", str(source), str(out), name, **options))
    [row] = [json.loads(line) for line in out.read_bytes().splitlines()]
    [message] = row["prompt"]
    assert message["content"].startswith(
        TEMPLATES[name][:8].replace("{questio", row["question"][:8])
    )
    rows = [row | {"response": response} for response in RESPONSES[name]]
    with_prompt = list(map(rr.decode_row, rows))
    without_prompt = [rr.decode_row(each | {"prompt": None}) for each in rows]

    model = tiny_models.save(tmp_path / "model")
    models = ModelOptions(model=str(model), dtype="float32", **options)
    with Scorer.load(name, models=models) as scorer:
        one, two = scorer.gather(with_prompt), scorer.gather(without_prompt)
        assert all(isinstance(each, rr.Rollout) for each in (*one, *two)), (one, two)
        for a, b in zip(one, two, strict=True):
            assert values_of(a) == pytest.approx(values_of(b), abs=1e-4)
            assert a.masked_answers == b.masked_answers
            assert a.logprobs or a.masked_answers
        own = scorer.signature
    if name == "ctrl-rag":
        logprobs = one[0].logprobs
        assert set(logprobs.without) == set(row["supporting"])
        assert all(values != logprobs.full for values in logprobs.without.values())
    with Scorer.load(name, models=ModelOptions(model=str(model), dtype="float32")) as scorer:
        assert scorer.signature != own
        others = scorer.gather(without_prompt)
    for a, b in zip(one, others, strict=True):
        assert a.masked_answers != b.masked_answers or values_of(a) != pytest.approx(values_of(b))
