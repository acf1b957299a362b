"""The known attacks: none pays under the hardened profile, and loopholes list the others.

The cases are in `cases.CASES`. If an attack pays by the definition of a paper, the `loopholes` of
the recipe name its variant.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
from growth import assert_linear

import rag_rewards as rr
from rag_rewards.audit import audit
from rag_rewards.audit.capitals import SAME_LIKELIHOOD, TEXTS, Row
from rag_rewards.audit.cases import CASES, Case
from rag_rewards.audit.policies import POLICIES, DegeneratePolicy
from rag_rewards.audit.rule_evidence import reward_of, rollout_of
from rag_rewards.recipes import RECIPES
from rag_rewards.recipes.sample import ROW, STATEMENT
from rag_rewards.text.refusal import REFUSAL

RESPONSES = [case for case in CASES if not case.form]
"""The cases of single responses. `test_agents.py` tests the cases of search agents."""
CASES_OF = dict.fromkeys(case.recipe for case in RESPONSES)
"""The recipes with built-in cases; the general attacks test every other recipe."""
MIN_GAIN = 1e-6  # min-max scaling leaves differences of 1e-8
arena, boxed, lear, tagged = (
    RECIPES[name].output.write for name in ("arena", "truthrl", "lear", "naive-grpo")
)


def reward(name: str, row: Row, settings: dict[str, Any] | None = None, *, hardened: bool) -> float:
    return reward_of(rr.recipe(name, settings, hardened=hardened), row)


@cache
def gain(case: Case, hardened: bool) -> float:
    before, after = case.rewards(rr.recipe(case.recipe, case.settings, hardened=hardened))
    return after - before


def listed_attacks(recipe: str) -> set[int]:
    """Return the attacks in the loopholes of a recipe."""
    return {attack for each in RECIPES[recipe].loopholes for attack in each.attacks}


def excused(recipe: str) -> set[tuple[int, str]]:
    """Return the attacks that pay by the definition of the paper, with their variants."""
    return {
        (attack, variant)
        for each in RECIPES[recipe].loopholes
        for attack, variants in each.variants.items()
        for variant in variants
    }


def test_cases_are_unique_and_belong_to_recipes() -> None:
    assert len({case.id for case in CASES}) == len(CASES)
    assert set(CASES_OF) <= set(RECIPES)


@pytest.mark.parametrize("recipe", sorted(set(RECIPES) - set(CASES_OF)))
def test_a_recipe_without_own_cases_lists_every_attack_that_pays(recipe: str) -> None:
    assert {finding.attack for finding in audit(recipe).paying} <= listed_attacks(recipe)
    assert audit(recipe, hardened=True).ok


@pytest.mark.parametrize("case", RESPONSES, ids=lambda case: case.id)
def test_an_attack_does_not_pay_under_the_hardened_profile(case: Case) -> None:
    if (case.attack, case.variant) in excused(case.recipe):
        return  # by the paper's own definition
    before, after = case.rewards(rr.recipe(case.recipe, case.settings, hardened=True))
    assert after <= before + MIN_GAIN, (
        f"earns {after:.3g}, without the attack {before:.3g}: {case.attacked['response'][:200]!r}"
    )


@pytest.mark.parametrize("recipe", CASES_OF)
def test_loopholes_list_the_attacks_that_pay(recipe: str) -> None:
    """Attack 22 is a policy, and attacks 39, 41 and 42 change the advantages of the turns."""
    paying = {
        case.attack for case in RESPONSES if case.recipe == recipe and gain(case, False) > MIN_GAIN
    }
    listed = listed_attacks(recipe) - {14, 22, 29, 39, 41, 42}
    assert (sorted(paying - listed - {29}), sorted(listed - paying)) == ([], []), (
        "(pays but is not listed, listed but does not pay)"
    )


@pytest.mark.parametrize("recipe", CASES_OF)
def test_excused_variants_pay_under_the_hardened_profile(recipe: str) -> None:
    paying = {
        (case.attack, case.variant)
        for case in CASES
        if case.recipe == recipe and case.form != "transcript" and pays_when_hardened(case)
    }
    assert excused(recipe) == paying, "(excused, pays)"


def pays_when_hardened(case: Case) -> bool:
    return gain(case, True) > (-MIN_GAIN if case.is_free else MIN_GAIN)


@pytest.mark.parametrize("recipe", RECIPES)
def test_loopholes_name_variants_that_exist(recipe: str) -> None:
    variants = {(case.attack, case.variant) for case in CASES if case.recipe == recipe}
    assert excused(recipe) <= variants
    for loophole in RECIPES[recipe].loopholes:
        assert loophole.variants.keys() <= set(loophole.attacks)
        assert not (loophole.is_open and loophole.variants)


@pytest.mark.parametrize("recipe", CASES_OF)
def test_an_open_loophole_names_its_variants(recipe: str) -> None:
    """TruthRL's policy learns to abstain, although abstaining does not earn more."""
    for loophole in RECIPES[recipe].loopholes:
        assert not loophole.is_open or (recipe, loophole.attacks) == ("truthrl", (22,))
        if not loophole.is_closed and not loophole.is_open:
            assert loophole.variants.keys() == set(loophole.attacks)


# --- degenerate policies -----------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.id)
def test_a_degenerate_policy_does_not_pay(policy: DegeneratePolicy) -> None:
    honest, attacked = policy.rewards(rr.recipe(policy.recipe, policy.settings, hardened=True))
    assert attacked < honest


# --- attacks 14 and 29: long responses ----------------------------------------------------------

SIZE = 30_000
SPAM = (
    "<answer>", "<think>", "</answer>", "<answer></answer>", r"\boxed{", "{", "[", "[1]", "[1,",
    "Paris, ", "Paris or ", "the Paris, a Rome, ", "not ", "(", "A b. ", "Paris is it [1]. ", ".",
    "\n", "\n- x", "\u0301", "\u200b", " ", "a", "1", "million ", '"', "巴黎。", "\ufdfa", "аa ",
    "I don't know ", "I couldn't find an answer. ",
)  # fmt: skip


@pytest.mark.parametrize("spam", SPAM, ids=ascii)
def test_long_responses_are_scored_in_linear_time(spam: str) -> None:
    def score(size: int) -> None:
        text = (spam * (size // len(spam) + 1))[:size]
        for recipe, response, settings in (
            ("arena", arena(text), {"accuracy.normalizer": "spelling"}),
            ("ground-grpo", tagged(text), {"citation.judge_by": "gold"}),
            ("lear", lear(text, extract=text, reason=text), {}),
            ("truthrl", boxed(text), {"verifier": "substring"}),
            ("rag-total", text, {}),
        ):
            built = rr.recipe(recipe, settings, hardened=True)
            row = {"response": response, "masked_answers": {"rationale": text, "evidence": "Paris"}}
            built([rollout_of(built, row | SAME_LIKELIHOOD)])

    assert_linear(score, SIZE)


# --- false negatives ---------------------------------------------------------------------------

SAME: tuple[tuple[str, str, str], ...] = (
    ("Paris [1]", "Paris", ""),
    ("Paris[1]", "Paris", ""),
    ("Paris [1][2].", "Paris", ""),
    ("Sa\u0303o Paulo", "São Paulo", ""),
    ("São Paulo", "Sa\u0303o Paulo", ""),
    ("Sao Paulo", "São Paulo", "spelling"),
    ("O’Hara", "O'Hara", ""),
    ("巴黎。", "巴黎", ""),
    ("Pa\u200bris", "Paris", ""),
    ("1 million", "1,000,000", "spelling"),
    ("1,000,000", "1 million", "spelling"),
    ("one million", "1,000,000", "spelling"),
    ("5 March 1999", "1999-03-05", "spelling"),
    ("March 5, 1999", "5 March 1999", "spelling"),
    ("1999-03-05", "March 5, 1999", "spelling"),
    ("The The", "The The", ""),
    ("?", "?", ""),
)
ALONE = ("?", "The The", "Pa\u200bris")
"""Answers that are not read in a sentence: signs, function words, and invisible characters."""
READERS: tuple[tuple[str, Any, dict[str, Any]], ...] = (
    ("arena", arena, {}),
    ("naive-grpo", tagged, {}),
    ("truthrl", boxed, {"verifier": "exact"}),
    ("truthrl", boxed, {"verifier": "substring"}),
    ("ctrl-rag", tagged, {}),
    ("rag-total", tagged, {}),
    ("ctrl-rag", "Document 1 says so.\n<answer>The answer is {}.</answer>".format, {}),
    ("rag-total", "Document 1 says so. <answer>It is {}</answer>".format, {}),
    ("ground-grpo", lambda text: tagged(f"It is {text} [1]."), {}),
    ("lear", lear, {}),
)


@pytest.mark.parametrize(("reader"), READERS, ids=lambda r: "-".join([r[0], *r[2].values()]))
@pytest.mark.parametrize(("answer", "gold", "option"), SAME)
def test_right_in_another_notation(reader: Any, answer: str, gold: str, option: str) -> None:
    recipe, shape, settings = reader
    if answer in ALONE and shape not in (arena, tagged, boxed, lear):
        return
    if (answer, recipe) == ("Paris [1][2].", "ground-grpo"):
        return  # one of the two documents is superfluous
    built = rr.recipe(
        recipe, settings | ({"accuracy.normalizer": option} if option else {}), hardened=True
    )
    row = {"response": shape(answer), "answers": [gold], **SAME_LIKELIHOOD}
    row["masked_answers"] = {"rationale": answer, "evidence": answer}
    if recipe == "ground-grpo":
        row["documents"] = [{"id": n, "text": f"It is {gold}: {answer}."} for n in (1, 2)]
        row["supporting"] = [1, 2]
    assert built([rollout_of(built, row)])[0].correct == 1.0


ASSERTED = (
    "Paris", "Paris.", "The answer is Paris.", '"Paris"', "**Paris**", "`Paris`",
    "(Paris)", "“Paris”", "« Paris »", "Paris[1].", "Final answer: Paris", "答案是Paris。",
    "The capital of France is Paris.", "It is Paris [1].",
)  # fmt: skip


@pytest.mark.parametrize("answer", ASSERTED)
def test_asserted_answers_are_correct(answer: str) -> None:
    built = rr.recipe("truthrl", {"verifier": "substring"}, hardened=True)
    assert built([rollout_of(built, {"response": boxed(answer)})])[0].correct == 1.0


IN_PROSE = (
    "It is Paris, not Rome.", "Not Rome, but Paris", "Paris rather than Rome",
    "It isn't Rome. It's Paris.", "No, it is Paris.", "No: Paris", "Without doubt Paris",
    "Paris, the capital of France, lies on the Seine.", "There is no doubt that it is Paris",
    "It is none other than Paris.", "It was not until 987 that Paris became the capital.",
    "Paris is not only the capital but also the largest city.",
    "While Rome, Berlin and Madrid are capitals too, France's is Paris.",
    "Unlike Rome, Paris is the capital of France.",
    "It cannot be denied that Paris is the capital.",
    "It's Paris (not Rome or Berlin).", "It is Paris [1], as document 1 says.",
    "According to document 1, Paris is the capital, with 2 million people, on the Seine.",
    "In 987, under Hugh Capet, Paris became the capital.",
    "It borders Spain, Italy and Germany and its capital is Paris.",
    "The largest city, the capital and the seat of government is Paris.",
    "Paris: the city of light", "Yes, Paris",
    "I don't think it's Rome; it's Paris.", "Rome isn't right, so Paris",
    "Nobody doubts it is Paris",
    "The wrong answer is Rome and the right one is Paris",
)  # fmt: skip


@pytest.mark.parametrize("answer", IN_PROSE)
def test_a_right_answer_in_prose_is_not_decided_wrong(answer: str) -> None:
    built = rr.recipe("truthrl", {"verifier": "substring"}, hardened=True)
    details = built([rollout_of(built, {"response": boxed(answer)})])[0].details
    assert details["decision"] in ("right", "undecided")


@pytest.mark.parametrize(
    ("prose", "answer", "gold"),
    [
        (f"It lies on the Seine [1]. {STATEMENT} [1].", "Paris", ["Paris"]),
        (
            "Paris is the capital of France. Rome is that of Italy.",
            "Paris and Rome",
            [["Paris"], ["Rome"]],
        ),
        (f"{STATEMENT}.\n\nSources: [1]", "Paris [1]", ["Paris"]),
    ],
)
@pytest.mark.parametrize("recipe", ["ctrl-rag", "rag-total"])
def test_the_answer_is_read_in_its_section(recipe: str, prose: str, answer: str, gold: Any) -> None:
    built = rr.recipe(recipe, hardened=True)
    rows = [
        {"response": response, "answers": gold, **SAME_LIKELIHOOD}
        for response in (f"{prose}\n<answer>{answer}</answer>", prose)
    ]
    assert [built([rollout_of(built, row)])[0].correct for row in rows] == [1.0, 0.0]


def test_an_empty_list_of_relevant_documents_can_be_correct() -> None:
    assert (
        reward(
            "arena", {"response": arena("Paris", relevance="[]"), "supporting": []}, hardened=True
        )
        == 13
    )


@pytest.mark.parametrize(
    "answer",
    [
        REFUSAL,
        REFUSAL.replace("'", "’"),
        REFUSAL.replace("couldn't", "could not"),
        REFUSAL + " The documents do not mention it.",
        REFUSAL + " None of the documents covers France.",
    ],
)
def test_honest_refusals_are_rewarded(answer: str) -> None:
    row = {"response": tagged(answer), "answerable": False}
    assert reward("ground-grpo", row, hardened=True) >= 2.85


@pytest.mark.parametrize(
    "answer",
    ["I don't know", "I don’t know.", "I DON'T KNOW!", "I don't know。", "I don't know…",
     r"\text{I don't know}", "I don\u200b't know", "**I don't know**"],
)  # fmt: skip
def test_honest_abstentions_are_uncertain(answer: str) -> None:
    row = {"response": boxed(answer), "verdicts": {"outcome": 0}}
    assert reward("truthrl", row, hardened=True) == 0.0


def test_a_rationale_may_quote_its_document() -> None:
    reason = f"Document 1 says: {TEXTS[0]} So the city that is asked for stands in its first words."
    right = {"masked_answers": {"rationale": "Paris", "evidence": "Paris"}}
    quoting = reward("lear", {"response": lear("Paris", reason=reason)} | right, hardened=True)
    brief = reward(
        "lear",
        {"response": lear("Paris")} | right,
        hardened=True,
    )
    assert quoting >= brief - 0.02


WELL_FORMED: dict[str, tuple[str, Row]] = {
    "arena": (arena("Paris"), {}),
    "naive-grpo": (tagged("Paris"), {}),
    "ground-grpo": (tagged(f"{STATEMENT} [1]."), {}),
    "ground-grpo-stage1": (tagged(f"{STATEMENT} [1]."), {}),
    "lear": (lear("Paris"), {"masked_answers": {"rationale": "Paris", "evidence": "Paris"}}),
    "ctrl-rag": (tagged("Paris"), SAME_LIKELIHOOD),
    "rag-total": (tagged("Paris [1]"), {}),
    "truthrl": (boxed("Paris"), {}),
}


@pytest.mark.parametrize("recipe", WELL_FORMED)
def test_equivalent_notations_of_the_format(recipe: str) -> None:
    text, more = WELL_FORMED[recipe]

    def score(response: str, settings: dict[str, Any] | None = None, **extra: Any) -> float:
        return reward(recipe, {"response": response, **more, **extra}, settings, hardened=True)

    best = score(text)
    for end in ("<|im_end|>", "\n<|im_end|>\n", "</s></s>", "<|eot_id|>", "<eos>"):
        assert score(text + end) == best, end
    if text.startswith("<think>"):
        assert score(text.removeprefix("<think>"), response_prefix="<think>") == best
        assert score(text.removeprefix("<think>"), response_prefix="<think>\n") == best
    if recipe == "truthrl":
        return
    uppercase = re.sub(r"</?\w+>", lambda tag: tag[0].upper(), text)
    assert score(uppercase, {"sections.tags": "lenient"}) == best
    unclosed = {"sections.tags": "unclosed"}
    assert score(text[:-4], unclosed) == best
    assert score(text[:-4] + "<|im_end|>", unclosed) == best
    assert score(text.removesuffix("</answer>"), unclosed) == best
    assert score(uppercase[:-4], unclosed | {"sections.tags": "lenient"}) == best


def test_a_thinking_tag_without_an_answer_span_is_scored() -> None:
    built = rr.recipe("ctrl-rag", hardened=True)
    logprobs = {"full": [-1.0] * 4, "without": {"1": [-2.0] * 4}}
    rows = [
        ROW | {"response": text, "group": "g", "logprobs": logprobs}
        for text in ("<answer>Paris</answer>", "<think> <answer>Paris</answer>")
    ]
    assert [score.value for score in built([rollout_of(built, row) for row in rows])] == [1.0, 0.0]
