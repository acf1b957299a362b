"""The contexts of a policy: full prompts, prompts without a document, masked prompts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="transformers is not installed")
sys.path.insert(0, str(Path(__file__).parents[1] / "models"))

import tiny_models
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.errors import DataError
from rag_rewards.evidence.contexts import DOCUMENT_FORMS, Contexts
from rag_rewards.prompts import GROUNDED, Prompt, fill
from rag_rewards.recipes import RECIPES, definition_of
from rag_rewards.rollout import Document, Rollout
from rag_rewards.rows import decode_row
from rag_rewards.text.sections import SectionStyle, Tags

TOKENIZER = tiny_models.make_tokenizer()
CONTEXTS = Contexts(TOKENIZER)
DOCUMENTS = [
    {"title": "Seine", "text": "The Seine flows through Paris."},
    {"id": 2, "text": "Rome lies on the Tiber."},
    {"id": 3, "title": "Oslo", "text": "Oslo is a port."},
]


def rollout(**fields):
    row = {
        "question": "Which city?",
        "documents": DOCUMENTS,
        "supporting": [1],
        "response": "<think>Seine</think><answer>Paris</answer>",
        "answers": "Paris",
    }
    return decode_row(row | fields)


def text(ids):
    return TOKENIZER.decode(list(ids))


def test_the_full_prompt_contains_all_documents_with_labels():
    shown = text(CONTEXTS.context(rollout()))
    assert shown.startswith("<|start|>user\n")
    assert shown.endswith("Question: Which city?<|im_end|>\n<|start|>assistant\n")
    assert "[1] Seine\nThe Seine flows through Paris.\n\n[2] Rome lies on the Tiber.\n\n" in shown


def test_other_documents_keep_their_labels():
    full, without = CONTEXTS.leave_one_out(rollout(supporting=[1, 2]), ("1", "2"))
    shown = text(without["2"])
    assert "[1] Seine" in shown
    assert "[3] Oslo" in shown
    assert "Rome" not in shown
    assert text(without["1"]).count("[2] Rome lies on the Tiber.") == 1
    assert "Seine" not in text(without["1"])
    shared = next(i for i, (a, b) in enumerate(zip(full, without["2"], strict=False)) if a != b)
    assert text(full[:shared]).endswith("Paris.\n\n[")  # the same tokens up to the document


def test_response_ids_are_the_rows_own_or_those_of_its_text():
    assert CONTEXTS.response(rollout(response_token_ids=[5, 6])) == (5, 6)
    ids = CONTEXTS.response(rollout(response="<answer>Paris</answer><|im_end|>\n"))
    assert text(ids) == "<answer>Paris</answer>"
    messages = [{"role": "assistant", "content": "Paris"}]
    assert text(CONTEXTS.response(rollout(response=messages))) == "Paris"
    turns = [*messages, {"role": "tool", "content": "Rome"}, *messages]
    with pytest.raises(DataError, match="response_token_ids: missing; a response of several"):
        CONTEXTS.response(rollout(response=turns))


def test_a_section_that_the_template_opens_is_in_the_context():
    shown = text(CONTEXTS.context(rollout(response_prefix="<think>\n")))
    assert shown.endswith("<|start|>assistant\n<think>\n")
    opened = tiny_models.make_tokenizer()
    opened.chat_template = tiny_models.TEMPLATE.replace("assistant\n", "assistant\n<think>\n")
    shown = text(Contexts(opened).context(rollout(response_prefix="<think>\n")))
    assert shown.count("<think>") == 1 + GROUNDED.instruction.count("<think>")


# --- prompts that rows bring -------------------------------------------------------------------

OWN = "Read this.\n\n[1] Seine\nThe Seine flows through Paris.\n\n[2] Rome lies on the Tiber.\n\n"
OWN += "[3] Oslo\nOslo is a port.\n\nWhich city?"


@pytest.mark.parametrize("as_chat", [False, True])
def test_documents_are_removed_from_the_prompt_of_a_row(as_chat):
    prompt = [{"role": "user", "content": OWN}] if as_chat else OWN
    full, without = CONTEXTS.leave_one_out(rollout(prompt=prompt), ("1", "3"))
    assert OWN in text(full)
    expected = OWN.replace("[1] Seine\nThe Seine flows through Paris.\n\n", "")
    assert expected in text(without["1"])
    assert OWN.replace("[3] Oslo\nOslo is a port.\n\n", "") in text(without["3"])
    assert text(full).startswith("<|start|>user\n" if as_chat else "Read this.")


def test_the_last_document_is_removed_with_its_separator():
    own = "Q?\n\n[1] Seine\nThe Seine flows through Paris.\n\n[2] Rome lies on the Tiber."
    row = rollout(prompt=own, documents=DOCUMENTS[:2])
    left = own.removesuffix("\n\n[2] Rome lies on the Tiber.")
    assert text(CONTEXTS.context(row, ("2",))) == left


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ("Which city?", r"prompt: document 1 cannot be left out: \"\[1\] Seine.*is not in it"),
        (OWN + OWN, "is 2 times in it"),
    ],
)
def test_a_prompt_without_the_documents_is_an_error(own, message):
    with pytest.raises(DataError, match=message):
        CONTEXTS.leave_one_out(rollout(prompt=own), ("1",))


def test_another_form_of_documents():
    prompt = Prompt("{documents}", document="Doc {label}: {text} ({title})", separator=" | ")
    own = "Doc 1: The Seine flows through Paris. (Seine) | Doc 3: Oslo is a port. (Oslo)"
    row = rollout(prompt=own, documents=[DOCUMENTS[0], DOCUMENTS[2]])
    assert text(Contexts(TOKENIZER, prompt).context(row, ("1",))) == "Doc 3: Oslo is a port. (Oslo)"


@pytest.mark.parametrize(
    ("label", "left"),
    [
        ("1", "Ben lily [2] . Ada ivy [3] . ? Ben"),
        ("2", "Ada rose [1] . Ada ivy [3] . ? Ben"),
        ("3", "Ada rose [1] . Ben lily [2] . ? Ben"),
    ],
)
def test_documents_in_one_line_with_the_question(label, left):
    prompt = Prompt("").showing("{text} [{label}] .", " ")
    documents = [{"text": "Ada rose"}, {"text": "Ben lily"}, {"title": "T", "text": "Ada ivy"}]
    row = rollout(prompt="Ada rose [1] . Ben lily [2] . Ada ivy [3] . ? Ben", documents=documents)
    assert text(Contexts(TOKENIZER, prompt).context(row, (label,))) == left


def test_the_trainers_tokens_must_be_those_of_the_prompt():
    full = CONTEXTS.context(rollout())
    same, _ = CONTEXTS.leave_one_out(rollout(prompt_token_ids=list(full)), ("1",))
    assert same == full
    other = (*full[:9], 3, *full[10:])
    with pytest.raises(DataError, match=r"prompt_token_ids: .* differs from token 9 on: it has '"):
        CONTEXTS.leave_one_out(rollout(prompt_token_ids=list(other)), ("1",))
    with pytest.raises(DataError, match=f"from token {len(full) - 2} on"):
        CONTEXTS.leave_one_out(rollout(prompt_token_ids=list(full[:-2])), ("1",))


def test_a_base_model_without_a_template_uses_plain_text():
    plain = tiny_models.make_tokenizer()
    plain.chat_template = None
    shown = text(Contexts(plain, Prompt("{question}", system="Be brief.")).context(rollout()))
    assert shown == "Be brief.\n\nWhich city?\n\n"


def test_a_row_without_prompt_needs_its_question():
    with pytest.raises(DataError, match="question: missing; the prompt contains it"):
        CONTEXTS.context(Rollout(response="x"))


# --- length ------------------------------------------------------------------------------------


def test_long_prompts_are_errors_or_truncated():
    row = rollout(supporting=[1])
    room = len(CONTEXTS.response(row))
    whole = len(CONTEXTS.context(row)) + room
    Contexts(TOKENIZER, max_length=whole).leave_one_out(row, ("1",), room)
    tight = Contexts(TOKENIZER, max_length=whole - 1)
    with pytest.raises(
        DataError, match=rf"documents: .* more than the model's maximum of {whole - 1}"
    ):
        tight.leave_one_out(row, ("1",), room)
    full, without = Contexts(TOKENIZER, max_length=whole - 1, truncate=True).leave_one_out(
        row, ("1",), room
    )
    assert "[3] Oslo" not in text(full)
    assert "[2] Rome" in text(full)
    assert "[3] Oslo" not in text(without["1"])
    with pytest.raises(DataError, match="more than the model's maximum of 60"):
        Contexts(TOKENIZER, max_length=60, truncate=True).leave_one_out(row, ("1",), room)


# --- the answer's tokens -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("<think>Seine</think><answer>Paris</answer>", "<answer>Paris</answer>"),
        ("<think>a</think> b <think>c</think> Paris", " Paris"),
        ("<think>Seine</think>", ""),
    ],
)
def test_the_answer_span_begins_after_the_thinking(response, answer):
    row = rollout(response=response)
    start, end = CONTEXTS.answer_span(row)
    ids = CONTEXTS.response(row)
    assert end == len(ids)
    assert text(ids[start:end]) == answer


@pytest.mark.parametrize("response", ["Paris", "<think>Seine", "Seine</think> Paris"])
def test_incomplete_thinking_has_no_answer_span(response):
    assert CONTEXTS.answer_span(rollout(response=response)) is None


def test_thinking_that_the_template_opened_ends_in_the_response():
    row = rollout(response="Seine</think>Paris", response_prefix="<think>")
    start, _ = CONTEXTS.answer_span(row)
    assert text(CONTEXTS.response(row)[start:]) == "Paris"


# --- LEAR's masks ------------------------------------------------------------------------------

PARTS = "<reason>REASONED</reason>\n<extract>EXTRACTED</extract>\n<answer>ANSWERED</answer>"


@pytest.mark.parametrize(
    ("part", "there", "masked"),
    [
        ("rationale", ["REASONED", "Seine", "Rome"], ["EXTRACTED", "ANSWERED"]),
        ("evidence", ["EXTRACTED"], ["REASONED", "ANSWERED", "Seine", "Rome", "Oslo"]),
        ("full", ["REASONED", "EXTRACTED", "Seine"], ["ANSWERED"]),
    ],
)
@pytest.mark.parametrize("own", [None, OWN])
def test_masked_parts_are_not_in_the_context(part, there, masked, own):
    row = rollout(response=PARTS, prompt=own)
    shown = text(Contexts(TOKENIZER, definition_of("lear").prompt).masked(row, part))
    assert all(word in shown for word in there)
    assert not any(word in shown for word in masked)
    assert shown.endswith("</reason>\n<answer>" if part == "rationale" else "</extract>\n<answer>")
    assert "Which city?" in shown


def test_a_long_masked_context_is_an_error():
    contexts = Contexts(TOKENIZER, definition_of("lear").prompt, max_length=50)
    with pytest.raises(DataError, match="more than the model's maximum of 50"):
        contexts.masked(rollout(response=PARTS), "full")


# --- templating --------------------------------------------------------------------------------


@budget(60)
@given(st.text(max_size=20), st.text(max_size=20))
def test_placeholders_in_a_text_are_not_replaced(question, document):
    assert fill("{question}|{text}", question=question, text=document) == f"{question}|{document}"


def test_a_document_with_a_placeholder():
    row = rollout(documents=[{"text": "{question} {label}"}], question="{documents}")
    shown = text(CONTEXTS.context(row))
    assert "[1] {question} {label}\n\nQuestion: {documents}<|im_end|>" in shown
    assert Prompt("").block("1", Document(text="{label}")) == "[1] {label}"


# --- rows that cannot be shown -----------------------------------------------------------------


def test_an_unknown_document_is_an_error():
    row = rollout(documents=None, prompt="[1] a\n\n[2] b\n\nq?", supporting=["1"])
    with pytest.raises(DataError, match="documents: document 1 cannot be left out: the row has no"):
        CONTEXTS.leave_one_out(row, ("1",))
    with pytest.raises(DataError, match="documents: missing; they are required"):
        CONTEXTS.masked(rollout(documents=None, response=PARTS), "evidence")


def test_a_template_that_rejects_a_chat():
    strict = tiny_models.make_tokenizer()
    strict.chat_template = "{{ raise_exception('System role not supported') }}"
    with pytest.raises(DataError, match="prompt: the chat template rejects it: System role"):
        Contexts(strict).context(rollout())


def test_a_base_model_accepts_a_message_without_text():
    plain = tiny_models.make_tokenizer()
    plain.chat_template = None
    prompt = [{"role": "user", "content": "q?"}, {"role": "assistant", "tool_calls": []}]
    assert text(Contexts(plain).context(rollout(prompt=prompt))) == "q?\n\n\n\n"


def test_masks_use_the_tags_of_the_recipe():
    tags = Tags(("reason", "extract", "answer"), SectionStyle("lenient"))
    row = rollout(response="<REASON>REASONED</REASON><extract>E</extract><answer>A</answer>")
    assert "<reason>REASONED</reason>" in text(CONTEXTS.masked(row, "rationale", tags))


def test_masked_prompts_must_have_the_trainers_tokens():
    row = rollout(response=PARTS, prompt_token_ids=[5, 6, 7])
    with pytest.raises(DataError, match="prompt_token_ids: the rendered prompt differs"):
        CONTEXTS.masked(row, "full")


def test_truncation_shortens_masked_prompts_as_well():
    row = rollout(response=PARTS)
    long = len(CONTEXTS.masked(row, "full"))
    with pytest.raises(DataError, match="tokens and the response 8, more"):
        Contexts(TOKENIZER, max_length=long + 7).masked(row, "full", room=8)
    short = Contexts(TOKENIZER, max_length=long + 7, truncate=True).masked(row, "full", room=8)
    assert "Oslo" not in text(short)
    assert "Rome" in text(short)


# --- prompts of other recipes --------------------------------------------------------------------


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("as_text", [True, False], ids=["text", "chat"])
def test_a_document_is_left_out_of_the_prompt_of_any_recipe(name, as_text):
    """A recipe with another form of documents recognizes the prompts of the package."""
    for prompt in definition_of(name).prompts.values():
        if not prompt.shows_documents or prompt.shows_gold:
            continue
        row = rollout(answers=["Paris"])

        def own(without, prompt=prompt, row=row):
            messages = prompt.messages(row, without)
            return "\n\n".join(m["content"] for m in messages) if as_text else messages

        full = rollout(answers=["Paris"], prompt=own(()))
        for other in ("ctrl-rag", "arena"):
            contexts = Contexts(TOKENIZER, definition_of(other).prompt)
            for label in full.labels:
                expected = rollout(answers=["Paris"], prompt=own((label,)))
                assert contexts.context(full, (label,)) == contexts.context(expected), (name, other)


@pytest.mark.parametrize("name", RECIPES)
def test_the_forms_of_documents_are_those_of_all_recipes(name):
    forms = {(form.document, form.untitled, form.separator) for form in DOCUMENT_FORMS}
    for prompt in definition_of(name).prompts.values():
        assert (prompt.document, prompt.untitled, prompt.separator) in forms


def test_the_longest_form_is_the_form_of_the_prompt():
    """`{text}` is a part of every form, and leaves a label behind."""
    row = rollout(prompt=GROUNDED.messages(rollout()))
    contexts = Contexts(TOKENIZER, Prompt("", document="{text}", untitled="{text}"))
    assert contexts.context(row, ("2",)) == CONTEXTS.context(row, ("2",))


def test_a_prompt_in_a_form_that_is_not_recognized():
    row = rollout(prompt="1) The Seine flows through Paris!")
    with pytest.raises(DataError, match="document 1 cannot be left out"):
        CONTEXTS.context(row, ("1",))


@pytest.mark.parametrize(
    "form",
    [
        "{text} [{label}] .",
        "Doc {label}: {text}",
        "[{label}]\n{text}",
        "{text} ({label})",
        "* {text}",
    ],
)
@pytest.mark.parametrize("separator", ["\n\n", "\n", " "])
@pytest.mark.parametrize("count", [1, 3])
def test_a_form_that_contains_that_of_a_recipe_is_not_its_form(form, separator, count):
    """Without the rest of its form, a document would leave a part of it behind."""
    documents = rollout().documents[:count]
    texts = [
        form.format(label=label, text=document.text)
        for label, document in enumerate(documents, start=1)
    ]
    row = rollout(documents=documents, prompt=f"{separator.join(texts)}{separator}Which city?")
    with pytest.raises(DataError, match="document 1 cannot be left out"):
        CONTEXTS.context(row, ("1",))


def test_a_prompt_that_is_too_long_names_the_parameter_of_the_trainer():
    row = rollout(prompt=GROUNDED.messages(rollout()))
    contexts = Contexts(TOKENIZER, max_length=20, response_limit="max_completion_length")
    with pytest.raises(
        DataError, match="20; decrease max_completion_length, or set the option `truncate`"
    ):
        contexts.leave_one_out(row, ["1"], 8)
    with pytest.raises(DataError, match="20; set the option `truncate`, which"):
        Contexts(TOKENIZER, max_length=20).leave_one_out(row, ["1"], 8)
