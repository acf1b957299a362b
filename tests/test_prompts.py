"""The prompt of a recipe matches what its reward reads, and documents can be removed."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from rag_rewards import decode_row, recipe
from rag_rewards.audit.rule_evidence import with_evidence
from rag_rewards.errors import UsageError
from rag_rewards.prompts import Prompt, prompt_named
from rag_rewards.recipes import RECIPES, definition_of
from rag_rewards.text.refusal import REFUSAL

ROW = {
    "question": "Which city?",
    "documents": [{"title": "Seine", "text": "It flows through Paris."}, {"text": "Rome."}],
    "supporting": [1],
    "answers": "Paris",
    "answerable": True,
    "search_keys": [["city of the Seine"]],
    "rubrics": ["<E0> lies on the Seine."],
    "rubric": [{"contains": "Paris"}],
    "entities": {"E0": "Paris"},
    "verdicts": {"outcome": 1, "supported:1": 1, "consistent": 1},
    "response": "",
}

WITH_TAGS = ("search-r1", "stepsearch", "igpo", "autorefine", "ikea", "rag-env", "hiprag")
"""The recipes of search agents whose prompt describes the tags of searches."""
OTHER_TAGS = {"autorefine": {"refine"}, "hiprag": {"step", "reasoning", "conclusion"}}


def prompt_of(name, prompt="default", **fields):
    row = decode_row(ROW | fields)
    [message] = definition_of(name).prompts[prompt].messages(row)
    return message["content"]


@pytest.mark.parametrize("name", RECIPES)
def test_a_prompt_names_the_sections_that_the_reward_reads(name):
    shown = set(re.findall(r"<(\w+)>", prompt_of(name))) - {"question", "references"}
    if not definition_of(name).prompt.shows_documents:  # the prompt of a search agent
        sections = set(definition_of(name).output.sections)
        if name in WITH_TAGS:
            sections |= {"search", "information"}
        sections |= OTHER_TAGS.get(name, set())
        assert shown == sections
        assert "It flows through Paris." not in prompt_of(name)
        return
    if name == "s3":  # its prompt has documents, and describes a search
        shown -= {"search", "information", "important_info"}
    assert shown == set(definition_of(name).output.sections)
    assert all(f"</{tag}>" in prompt_of(name) for tag in shown)
    assert "Which city?" in prompt_of(name)
    assert "It flows through Paris." in prompt_of(name)


@pytest.mark.parametrize("name", [name for name in RECIPES if "rag" not in name])
def test_an_answer_in_the_order_of_the_prompt_has_the_format(name):
    """The sections are in the order of the prompt."""
    form = definition_of(name).output
    order = [tag for tag in re.findall(r"<(\w+)>", prompt_of(name)) if tag in form.sections]
    assert tuple(dict.fromkeys(order)) == form.sections
    others = {name: "[1] Paris" for name in form.sections if name not in ("answer", "confidence")}
    text = form.write("[1] Paris", **others)
    row = decode_row(
        ROW
        | {
            "response": text,
            "masked_answers": {"rationale": "Paris", "evidence": "Paris"},
            "generated_answers": dict.fromkeys(("accuracy", "baseline", "influence"), "Paris"),
            "nli": [
                {
                    "premise": "Title: Seine\nIt flows through Paris.",
                    "hypothesis": "Paris",
                    "entailment": 0.9,
                }
            ],
        }
    )
    scheme = recipe(name, definition_of(name).model_free)
    [score] = scheme([with_evidence(scheme, row)])
    # DR Tulu's format also has parts for a citation and a search.
    assert score.components.get("format", 1.0) == (0.5 if name == "dr-tulu" else 1.0)


def test_prompts_contain_the_rules_of_the_papers():
    assert "[1] It flows through Paris.\n\n[2] Rome." in prompt_of("arena")  # without titles
    for name in ("ground-grpo", "ground-grpo-stage1"):
        assert REFUSAL in prompt_of(name)
        assert REFUSAL in prompt_of(name, answer_kind="list")
    assert prompt_of("ground-grpo") != prompt_of("ground-grpo", answer_kind="list")
    assert prompt_of("ground-grpo") == prompt_of("ground-grpo-stage1")
    truthful = prompt_of("truthrl", query_time="03/13/2024, 08:29:31 PT")
    assert "Query time: 03/13/2024, 08:29:31 PT" in truthful
    assert "\\boxed{I don't know}" in truthful
    assert "\\boxed{invalid question}" in truthful
    assert "uery time" not in prompt_of("truthrl")


def in_order(text, *phrases):
    places = [text.index(phrase) for phrase in phrases]
    return places == sorted(places)


def test_arenas_prompt_has_the_content_of_table_1():
    text = prompt_of("arena")
    assert in_order(
        text,
        *("references", "exactly three sections"),
        *("<relevance>", "numbers of the references that help, and no others", "[1, 5]"),
        *("<analysis>", "lead to the answer", "number of the reference behind each claim"),
        *("<answer>", "a word or a short phrase, unexplained"),
        *("<question>Which city?</question>", "<references>", "[1] It flows through Paris."),
    )


KINDS = {"asqa": "short", "eli5": "claims", "qampari": "list"}
STATEMENTS = {
    "Cite at least one document and at most three documents": "at least one and at most three",
    "only cite a minimum sufficient subset": "as few documents as possible",
    "unbiased and journalistic tone": "neutral tone of a news report",
}
LIST = {
    "cite one and only one document for each answer": "exactly one document that proves it",
    "Separate answers by commas": "separated by commas",
    "write at least 5 answers": "at least five",
}
COUNTERPARTS = {
    "using only the provided search results": "Use only the documents below",
    "(some of which might be irrelevant)": "some of them may be irrelevant to the question",
    "Do not add further explanation": "without an explanation",
    REFUSAL: REFUSAL,
}
"""Rules of the instructions of Trust-Align, and their counterparts in the prompt."""


def rules_of(data_set):
    return COUNTERPARTS | (LIST if data_set == "qampari" else STATEMENTS)


@pytest.mark.parametrize(("data_set", "kind"), KINDS.items())
def test_the_prompt_of_trust_align_has_the_rules_of_each_kind(data_set, kind):
    """There are no tags, and no rules of the other kind."""
    text = prompt_of("ground-grpo", "trust-align", answer_kind=kind)
    assert "<" not in text
    rules, others = rules_of(data_set), STATEMENTS if data_set == "qampari" else LIST
    assert all(rule in text for rule in rules.values())
    assert not any(rule in text for rule in others.values())


@pytest.mark.parametrize("data_set", KINDS)
def test_the_rules_are_those_of_the_instructions_of_trust_align(shared, data_set):
    path = shared / "data" / "trust_align" / f"{data_set}_refusal.json"
    theirs = json.loads(path.read_text("utf-8"))["instruction"]
    every = COUNTERPARTS | STATEMENTS | LIST
    assert {rule for rule in every if rule in theirs} == set(rules_of(data_set))


def test_arenas_prompt_for_a_rationale_has_the_content_of_table_9():
    text = prompt_of("arena", "gold-rationale")
    assert in_order(
        text,
        *("reasoning that leads from the references to the given answer", "Use only the relevant"),
        *("Which city?", "[1] It flows through Paris.", "Relevant references: [1]"),
        "Answer: Paris",
    )


@pytest.mark.parametrize("name", ["default", "closed-book"])
def test_truthrls_prompts_have_the_content_of_tables_9_and_10(name):
    text = prompt_of("truthrl", name, query_time="03/13/2024, 08:29:31 PT")
    sources = {
        "default": ("what you know and on the references", "may or may not help"),
        "closed-book": ("facts that you know",),
    }
    assert in_order(
        text,
        *("as of the time at which it was asked", *sources[name]),
        *("step by step inside <think> and </think>", "final answer, and it alone", "\\boxed{}"),
        *("\\boxed{New York}", "\\boxed{3 times}", "something false", "\\boxed{invalid question}"),
        *("not sure", "\\boxed{I don't know}"),
        *(["References:", "It flows through Paris."] if name == "default" else []),
        *("Question: Which city?", "Query time: 03/13/2024, 08:29:31 PT"),
    )
    assert ("It flows" in text) == (name == "default")


def test_special_answers_of_the_prompt_are_recognized():
    abstains, invalid = (
        decode_row(ROW | {"response": f"<think>x</think>\\boxed{{{text}}}"})
        for text in ("I don't know", "invalid question")
    )
    scores = recipe("truthrl", {"verifier": "exact"})([abstains, invalid])
    assert [score.value for score in scores] == [0.0, -1.0]
    refused = decode_row(
        ROW | {"answerable": False, "response": f"<think>x</think><answer>{REFUSAL}</answer>"}
    )
    assert recipe("ground-grpo")([refused])[0].components["refusal"] == 1.0


@pytest.mark.parametrize("name", RECIPES)
def test_the_closed_book_prompt_has_the_question_and_no_document(name):
    text = prompt_of(name, "closed-book", query_time="now")
    assert "Question: Which city?" in text
    assert not any(part in text for part in ("Paris", "Rome", "Seine", "ocument", "eference", "["))
    assert not definition_of(name).prompts["closed-book"].shows_documents


@pytest.mark.parametrize(
    ("name", "prompt"),
    # The baselines of LEAR request an answer without sections, as in its Table 8.
    [
        (n, p)
        for n in RECIPES
        for p in ("direct", "closed-book")
        if (n, p) != ("lear", "closed-book")
    ],
)
def test_the_prompts_of_baselines_request_the_answer_in_the_form_of_the_recipe(name, prompt):
    form = definition_of(name).output
    answer_tag = "\\boxed{" if name == "truthrl" else "<answer>"
    text = prompt_of(name, prompt)
    assert answer_tag in text
    assert set(re.findall(r"<(\w+)>", text)) <= set(form.sections)


def test_closed_book_prompts_follow_the_papers():
    truthful = prompt_of("truthrl", "closed-book", query_time="03/13/2024, 08:29:31 PT")
    assert "<think>" in truthful
    assert "Query time: 03/13/2024, 08:29:31 PT" in truthful
    assert "\\boxed{I don't know}" in truthful
    assert "\\boxed{invalid question}" in truthful
    assert "<relevance>" not in prompt_of("arena", "closed-book")
    # The prompts of CTRL-RAG request the same form with and without documents.
    for tag in ("<think>", "</think>", "<answer>", "</answer>"):
        assert tag in prompt_of("ctrl-rag")
        assert tag in prompt_of("ctrl-rag", "closed-book")


def test_the_direct_prompt_shows_documents_as_the_recipe_does():
    text = prompt_of("arena", "direct")
    assert "[1] It flows through Paris.\n\n[2] Rome." in text
    assert "Reply with <answer>…</answer> and nothing else" in text


def test_an_unknown_prompt_is_an_error():
    prompts = definition_of("arena").prompts
    with pytest.raises(UsageError, match="arena has no prompt 'closedbook'; did you mean 'closed-"):
        prompt_named("closedbook", prompts, "arena")


def test_the_identity_of_a_prompt_is_the_same_in_every_process():
    for name in RECIPES:
        for prompt in definition_of(name).prompts.values():
            assert " at 0x" not in prompt.identity
    assert Prompt(partial(str)).identity == Prompt(partial(int)).identity != Prompt("").identity
    identities = {prompt.identity for prompt in definition_of("truthrl").prompts.values()}
    assert len(identities) == 3


def test_an_instruction_does_not_refer_to_a_time_that_the_message_lacks():
    row = decode_row(ROW | {"query_time": "now"})
    [message] = replace(
        definition_of("truthrl").prompt, message="{instruction} {documents} {question}"
    ).messages(row)
    assert "time" not in message["content"].replace("3 times", "")


@pytest.mark.parametrize(
    "name", [name for name in RECIPES if definition_of(name).prompt.shows_documents]
)
def test_documents_can_be_removed_from_a_prepared_prompt(name, tmp_path, shared):
    """The prompt in a file equals the prompt of a row without a prompt."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    sys.path.insert(0, str(Path(__file__).parent / "models"))
    import tiny_models

    from rag_rewards.evidence.contexts import Contexts
    from rag_rewards.preparation.options import PrepareOptions
    from rag_rewards.preparation.prepare import prepare

    source = shared / "data/musique/musique_ans_row.json"
    prepare(PrepareOptions("musique", str(source), str(tmp_path / "out.jsonl"), name, "none"))
    row = json.loads((tmp_path / "out.jsonl").read_text("utf-8")) | {"response": "x"}
    with_prompt, without = decode_row(row), decode_row(row | {"prompt": None})
    assert with_prompt.supporting_labels == ("5", "18")
    contexts = Contexts(tiny_models.make_tokenizer(), definition_of(name).prompt)
    one = contexts.leave_one_out(with_prompt, with_prompt.supporting_labels)
    assert one == contexts.leave_one_out(without, without.supporting_labels)
    assert len({*one[1].values(), one[0]}) == 3
    # Also without any document, where LEAR reads the extract.
    labels = with_prompt.labels
    assert contexts.context(with_prompt, labels) == contexts.context(without, labels)


@pytest.mark.parametrize("name", RECIPES)
def test_a_prompt_of_the_hardened_profile_requests_the_answer_that_the_reward_reads(name):
    form = recipe(name, hardened=True).output_form
    for prompt in ("default", "direct"):
        assert form.answer_mark in prompt_of(name, prompt)
    if name in ("ctrl-rag", "ctrl-rag-clr", "rag-total"):
        assert form.marks == ("<answer>",)
        assert recipe(name).output_form.marks == ()
