"""LEAR: rows with values that were computed by hand from Eq. 4 to 9."""

from __future__ import annotations

import json
import math
import re

import pytest

from rag_rewards import DataError, Document, SettingError, recipe
from rag_rewards.evidence.needs import MaskedAnswersNeed
from rag_rewards.recipes import definition_of
from rag_rewards.report.reasons import _lengths
from rag_rewards.rollout import MaskedAnswers, MaskedLogProbs, Rollout

DOCUMENTS = (Document(text="w " * 60, title="not counted"), Document(text="w " * 40))


def response(reason=8, extract=4, answer="New York City"):
    return (
        f"<reason>{'r ' * reason}</reason><extract>{'e ' * extract}</extract>"
        f"<answer>{answer}</answer>"
    )


def score(text, *, rationale="New York", evidence="York", settings=None, hardened=False, **row):
    masked = MaskedAnswers(rationale=rationale, evidence=evidence)
    row = {"answers": "New York", "documents": DOCUMENTS, "masked_answers": masked} | row
    return recipe("lear", settings, hardened=hardened)([Rollout(response=text, **row)])[0]


def test_a_golden_row():
    result = score(response())
    # F1 against "new york": full (3 words) 2·⅔·1/(⅔ + 1) = 0.8; rationale 1;
    # evidence 2·1·½/(1 + ½) = ⅔. Mean 2.466667/3 = 0.822222.
    # L_r = 8, L_e = 4: x = 8/4 − 1 = 1; 1/(1 + e^(−1/0.5)) = 0.880797.
    # L_P = 100: c = 1 − 4/100 = 0.96 ≥ 0.9 → 1. Length (0.880797 + 1)/2 = 0.940399.
    # Reward 0.8·0.822222 + 0.1·0.940399 + 0.1·1 = 0.657778 + 0.094040 + 0.1 = 0.851818.
    assert result.components == pytest.approx(
        {
            "answer": 0.822222,
            "answer_rationale": 1.0,
            "answer_evidence": 0.666667,
            "answer_full": 0.8,
            "length": 0.940399,
            "length_rationale": 0.880797,
            "length_evidence": 1.0,
            "format": 1.0,
        },
        abs=1e-6,
    )
    assert result.value == pytest.approx(0.851818, abs=1e-6)
    assert result.correct == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("reason", "extract", "rationale", "evidence"),
    [
        (4, 4, 0.5, 1.0),  # x = 0
        # x = 1 − 4/2 = −1: 1/(1 + e²) = 0.119203; c = 0.96
        (2, 4, 0.119203, 1.0),
        # x = 0; c = 1 − 36/100 = 0.64 < 0.9: √0.64 = 0.8
        (36, 36, 0.5, 0.8),
        # x = 0; c = 0.9 = ω
        (10, 10, 0.5, 1.0),
        # x = 1 − 200/1 = −199: e^−398 ≈ 0; c clamped to 0
        (1, 200, 0.0, 0.0),
        (0, 4, 0.0, 0.0),
        (4, 0, 0.0, 0.0),
    ],
)
def test_lengths(reason, extract, rationale, evidence):
    result = score(response(reason, extract)).components
    assert result["length_rationale"] == pytest.approx(rationale, abs=1e-6)
    assert result["length_evidence"] == pytest.approx(evidence, abs=1e-6)
    assert result["length"] == pytest.approx((rationale + evidence) / 2, abs=1e-6)
    assert result["format"] == (1.0 if reason and extract else 0.0)


@pytest.mark.parametrize("section", ["reason", "extract"])
def test_a_missing_section_has_no_length_reward(section):
    """The length reward of the other section is 0, too."""
    text = re.sub(rf"<{section}>.*</{section}>", "", response(4, 4))
    result = score(text).components
    assert result["length"] == result["length_rationale"] == result["length_evidence"] == 0.0
    assert score(response(4, 4)).components["length"] > 0.7


def test_length_settings():
    result = score(response(8, 36), settings={"tau": 1.0, "gamma": 1.0, "omega": 0.6}).components
    # x = 1 − 36/8 = −3.5: 1/(1 + e^3.5) = 0.029312; c = 0.64 ≥ 0.6 → 1
    assert result["length_rationale"] == pytest.approx(0.029312, abs=1e-6)
    assert result["length_evidence"] == 1.0
    linear = score(response(8, 36), settings={"gamma": 1.0}).components
    assert linear["length_evidence"] == pytest.approx(0.64)


@pytest.mark.parametrize(
    ("text", "format_", "full"),
    [
        ("  " + response() + "\n", 1.0, 0.8),
        (response() + "!", 0.0, 0.8),
        (response(answer=" "), 0.0, 0.0),
        (response() + "<answer>New York</answer>", 0.0, 0.8),  # the first pair counts
        ("<extract>e</extract><reason>r</reason><answer>New York</answer>", 0.0, 1.0),
        ("<think>t</think>" + response(), 0.0, 0.8),
    ],
)
def test_formats(text, format_, full):
    result = score(text)
    assert result.components["format"] == format_
    assert result.components["answer_full"] == pytest.approx(full)


def test_missing_sections_are_not_errors():
    result = score("<answer>New York</answer>", masked_answers=None)
    # answer (0 + 0 + 1)/3, no length, no format: 0.8/3
    assert result.value == pytest.approx(0.8 / 3)
    assert result.components["answer_rationale"] == result.components["answer_evidence"] == 0.0
    assert score("nothing", masked_answers=None).value == 0.0


@pytest.mark.parametrize(
    ("chosen", "answer"),
    [("r", 1.0), ("e", 2 / 3), ("f", 0.8), ("r,e", 5 / 6), ("r,f", 0.9), ("e,f", 11 / 15)],
)
def test_subsets_of_the_answers(chosen, answer):
    result = score(response(), settings={"answers": chosen})
    assert result.components["answer"] == pytest.approx(answer)
    assert result.correct == pytest.approx(0.8)


def test_answers_that_do_not_count_have_no_needs_and_no_value():
    only_full = recipe("lear", {"answers": ["f"]})
    rollout = Rollout(response=response(), answers="New York", documents=DOCUMENTS)
    assert only_full.needs(rollout) == []
    result = only_full([rollout])[0]
    assert result.components["answer_rationale"] is result.components["answer_evidence"] is None
    assert result.components["answer"] == result.components["answer_full"] == 0.8
    assert recipe("lear").needs(rollout) == [
        MaskedAnswersNeed("rationale"),
        MaskedAnswersNeed("evidence"),
    ]


def test_a_missing_section_gets_0_also_with_masked_answers_in_the_row():
    result = score("<answer>New York</answer>", evidence="New York")
    assert result.components["answer_rationale"] == result.components["answer_evidence"] == 0.0
    assert result.value == pytest.approx(0.8 / 3)


def test_likelihoods_instead_of_decoding():
    likely = MaskedLogProbs(
        rationale=((-1.0, -3.0), (-4.0,)), evidence=((-1.0,), (-2.0,)), full=((0.0,), (-9.0,))
    )
    result = score(
        response(),
        settings={"mode": "likelihood"},
        answers=["New York", "NYC"],
        masked_logprobs=likely,
    )
    # best alias: e^−2, e^−1, e^0
    assert result.components["answer_rationale"] == pytest.approx(math.exp(-2))
    assert result.components["answer_evidence"] == pytest.approx(math.exp(-1))
    assert result.components["answer_full"] == result.correct == 1.0


def test_several_required_answers_have_the_mean():
    result = score(response(), answers=[["New York"], ["Rome"]])
    assert result.components["answer_full"] == pytest.approx(0.4)


def test_data_errors():
    with pytest.raises(DataError, match=r"masked_answers\.rationale: missing"):
        score(response(), masked_answers=None)
    with pytest.raises(DataError, match="documents: missing"):
        score(response(), documents=None)
    with pytest.raises(DataError, match="answers: missing"):
        score(response(), answers=None)


def test_hardened():
    result = score(response(), evidence="Rome", hardened=True)
    assert result.components["length"] == 0.0
    # the rationale "r r r …" repeats itself: all but one word of it are no words of its own
    repeated = score(response(), evidence="New York", hardened=True).components
    assert repeated["length_evidence"] == 1.0
    assert repeated["length_rationale"] < score(response()).components["length_rationale"]
    assert score(response(answer="."), hardened=True).components["format"] == 0.0


REASON = "The first passage names the builder."
EXTRACT = "The river city has a harbour with many ships and a tower"


def rationale_words(reason, **settings):
    """Return the length of a rationale under the hardened profile."""
    text = f"<reason>{reason}</reason><extract>{EXTRACT}</extract><answer>New York</answer>"
    documents = (Document(text="The harbour of the river city is old, and ships stop there."),)
    result = score(text, hardened=True, documents=documents, settings=settings)
    return result.details["tokens"]["reason"]


@pytest.mark.parametrize(
    "padding",
    [
        " ".join(map(str, range(100))),
        " ".join(f"so then {n}" for n in range(40)),
        " ".join("abcdefghijklmnopqrstuvwxyz"),
        "<!-- " + " ".join(f"w{n}" for n in range(60)) + " -->",
        "<span hidden>" + " ".join(f"w{n}" for n in range(60)) + "</span>",
        "~~" + " ".join(f"w{n}" for n in range(60)) + "~~",
        "**The** **harbour** **of** **the** **river** **city** **is** **old** **and** **ships**",
    ],
)
def test_padding_does_not_make_a_rationale_longer(padding):
    assert rationale_words(f"{REASON} {padding}") <= rationale_words(REASON) + 3


def test_numbers_and_names_of_a_rationale_count():
    reason = "Passage 2 says that J. Smith came in 1969, and passage 3 that he left in 1975."
    assert rationale_words(reason) == len(reason.split())


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("New York", 1.0),
        ("**New York**", 1.0),
        ("**New York** <!-- Rome -->", 0.0),
        ("New York\b\b", 0.0),
        ("\u202eNew York", 0.0),
        ("~~New York~~", 0.0),
        ("<!-- New York -->Rome", 0.0),
    ],
)
def test_hidden_and_unreadable_answers_earn_nothing_under_the_hardened_profile(answer, value):
    result = score(response(answer=answer), rationale=answer, hardened=True)
    assert result.components["answer_full"] == result.components["answer_rationale"] == value
    if not value:
        assert score(response(answer=answer)).components["answer_full"] > 0


def test_gated_lengths_need_their_answer():
    # The extract's answer decides about the lengths even where it is no part of `answer`.
    gated = {"answers": ["r", "f"], "length.gated": True}
    rollout = Rollout(response=response(), answers="New York", documents=DOCUMENTS)
    assert MaskedAnswersNeed("evidence") in recipe("lear", gated).needs(rollout)
    result = score(response(), settings=gated)
    assert result.components["length"] == pytest.approx(0.940399, abs=1e-6)
    assert result.components["answer"] == pytest.approx(0.9)
    with pytest.raises(DataError, match=r"masked_answers\.evidence: missing"):
        score(response(), evidence=None, settings=gated)


# --- units of length ----------------------------------------------------------------------------

CHINESE = "<reason>文中说塞纳河流经巴黎市中心</reason><extract>塞纳河流经巴黎</extract>"


@pytest.mark.parametrize(
    ("unit", "rationale", "evidence"),
    [
        # 13 of 7 of 300 characters: x = 13/7 − 1 = 0.857143, 1/(1 + e^(−1.714286)) = 0.847391;
        # c = 1 − 7/300 ≥ ω
        ("auto", 0.847391, 1.0),
        ("characters", 0.847391, 1.0),
        # 1 of 1 of 1 word: x = 0; c = 0
        ("words", 0.5, 0.0),
    ],
)
def test_units_of_a_chinese_response(unit, rationale, evidence):
    documents = (Document(text="水" * 300, title="不计"),)
    result = score(CHINESE, documents=documents, settings={"length.unit": unit}).components
    assert result["length_rationale"] == pytest.approx(rationale, abs=1e-6)
    assert result["length_evidence"] == evidence


@pytest.fixture
def tokenizer(tmp_path):
    """A folder with a tokenizer that reads w as two tokens and truncates after four."""
    vocabulary = {"[UNK]": 0, "r": 1, "w": 2, "e": 3, "#": 4}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}
    spaces = {"type": "Split", "pattern": {"Regex": "\\s+"}, "behavior": "Removed", "invert": False}
    content = {
        "version": "1.0",
        "truncation": {
            "direction": "Right",
            "max_length": 4,
            "strategy": "LongestFirst",
            "stride": 0,
        },
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "Replace", "pattern": {"String": "w"}, "content": "w #"},
        "pre_tokenizer": spaces,
        "post_processor": None,
        "decoder": None,
        "model": model,
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    return tmp_path


@pytest.mark.parametrize("settings", [{}, {"length.unit": "tokens"}])
def test_lengths_in_tokens(tokenizer, settings):
    settings = settings | {"length.tokenizer": str(tokenizer)}
    result = score(response(8, 4), settings=settings)
    # The tokenizer writes "w #" for each w: L_P = 200 tokens, L_r = 8, L_e = 4
    assert result.details["tokens"] == {"reason": 8, "extract": 4, "documents": 200}
    assert result.details["unit"] == "tokens"
    assert "8 tokens of reasoning, 4 of 200 tokens extracted" in "; ".join(_lengths(result.details))


def test_a_signature_identifies_the_content_of_a_tokenizer(tokenizer):
    lear = recipe("lear", {"length.tokenizer": str(tokenizer)})
    path, digest = lear.settings["length.tokenizer"].split("#")
    assert path == str(tokenizer)
    assert f"#{digest}" in lear.signature
    again = recipe("lear", {"length.tokenizer": lear.settings["length.tokenizer"]})
    assert again.signature == lear.signature
    (tokenizer / "tokenizer.json").write_text("{}")
    with pytest.raises(SettingError, match=f"has the digest .*, not {digest}"):
        recipe("lear", {"length.tokenizer": lear.settings["length.tokenizer"]})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"unit": "tokens"}, "requires a tokenizer: set tokenizer to its folder"),
        ({"unit": "words", "tokenizer": "x"}, "uses no tokenizer: set unit to tokens or auto"),
        ({"tokenizer": "no/folder"}, "there is no tokenizer no/folder"),
        ({"unit": "letters"}, "Invalid enum value 'letters'"),
    ],
)
def test_units_that_cannot_be_used(settings, message):
    with pytest.raises(SettingError, match=f"recipe lear: setting length.*{message}"):
        recipe("lear", {f"length.{key}": value for key, value in settings.items()})


def test_a_file_that_is_no_tokenizer(tmp_path):
    (tmp_path / "tokenizer.json").write_text("[]")
    with pytest.raises(SettingError, match=r"tokenizer\.json is not a tokenizer"):
        score(response(), settings={"length.tokenizer": str(tmp_path)})


# --- prompts ------------------------------------------------------------------------------------

QUESTION = Rollout(question="Which river?", documents=(Document(text="The Seine."),), response="")


def content(name, row=QUESTION):
    [message] = definition_of("lear").prompts[name].messages(row)
    return message["content"]


def test_the_prompt_has_the_content_of_table_10():
    text = content("default")
    # the role, the two tasks, the steps with their sections, and the answer from own knowledge
    in_order = (
        *("expert", "reason how the passages lead to the answer", "extract the relevant"),
        *("<reason>", "analyze the question", "concepts, entities and relations"),
        *("analyze the passages", "each passage", "sentences or phrases"),
        *("<extract>", "logical order", "concise"),
        *("<answer>", "short answer", "passages, your reasoning and the extract", "what you know"),
        *("Question: Which river?", "Passages:", "[1] The Seine."),
    )
    places = [text.index(phrase) for phrase in in_order]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("name", "phrases", "end"),
    [
        # Table 7: from the documents, otherwise from own knowledge
        ("qa", ("with the documents", "what you know", "Document: The Seine."), "Answer:"),
        # Table 8: directly, short, from own knowledge
        (
            "closed-book",
            ("directly", "short", "what you know"),
            "Question: Which river?\n\nAnswer:",
        ),
        # Table 9: from the documents, step by step
        ("cot", ("Read the documents", "Document: The Seine."), "Let's think step by step."),
        # section 2.2: the extract only
        ("extract-only", ("<extract>", "logical order", "nothing else"), "[1] The Seine."),
    ],
)
def test_the_prompts_of_the_baselines(name, phrases, end):
    text = content(name)
    assert all(phrase in text for phrase in phrases)
    assert text.endswith(end)
    assert not any(tag in text for tag in ("<reason>", "<answer>"))
    assert ("Seine" in text) == (name != "closed-book")
