"""The known attacks: none pays under the hardened profile, and loopholes list the others.

The cases are in `cases.CASES`. If an attack pays by the definition of a paper, the `loopholes` of
the recipe name its variant.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

import rag_rewards as rr
from rag_rewards.audit import ATTACKS, audit
from rag_rewards.audit.capitals import SAME_LIKELIHOOD, TEXTS, Row
from rag_rewards.audit.cases import CASES, Case
from rag_rewards.audit.policies import POLICIES
from rag_rewards.audit.rule_evidence import reward_of, rollout_of
from rag_rewards.recipes import RECIPES
from rag_rewards.recipes.sample import ROW, STATEMENT
from rag_rewards.text.refusal import REFUSAL

RESPONSES = [case for case in CASES if not case.form]
"""The cases of single responses. `test_agents.py` tests the cases of search agents."""
CASES_OF = dict.fromkeys(case.recipe for case in CASES)
"""The recipes with built-in cases; the general attacks test every other recipe."""
MIN_GAIN = 1e-6  # min-max scaling leaves differences of 1e-8
arena, boxed, lear, tagged = (
    RECIPES[name].output.write for name in ("arena", "truthrl", "lear", "naive-grpo")
)


def reward(name: str, row: Row, settings: dict[str, Any] | None = None, *, hardened: bool) -> float:
    return reward_of(rr.recipe(name, settings, hardened=hardened), row)


@cache
def paying(recipe: str, hardened: bool) -> list[Case]:
    """Return the cases of a recipe that pay. Each case is scored once for each profile.

    A free case also pays if it earns the same. A transcript has another error when hardened.
    """
    cases = []
    for case in CASES:
        if case.recipe != recipe or (hardened and case.form == "transcript"):
            continue
        before, after = case.rewards(rr.recipe(recipe, case.settings, hardened=hardened))
        if after - before > (-MIN_GAIN if case.is_free else MIN_GAIN):
            cases.append(case)
    return cases


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


@pytest.mark.parametrize("recipe", sorted(set(RECIPES) - {case.recipe for case in RESPONSES}))
def test_a_recipe_without_own_cases_lists_every_attack_that_pays(recipe: str) -> None:
    assert {finding.attack for finding in audit(recipe).paying} <= listed_attacks(recipe)


@pytest.mark.parametrize("recipe", CASES_OF)
def test_only_excused_variants_pay_under_the_hardened_profile(recipe: str) -> None:
    cases = paying(recipe, True)
    assert excused(recipe) == {(case.attack, case.variant) for case in cases}, [
        case.id for case in cases if (case.attack, case.variant) not in excused(recipe)
    ]


@pytest.mark.parametrize("recipe", dict.fromkeys(case.recipe for case in RESPONSES))
def test_loopholes_list_the_attacks_that_pay(recipe: str) -> None:
    """Attack 22 is a policy, and attacks 39, 41 and 42 change the advantages of the turns."""
    attacks = {case.attack for case in paying(recipe, False) if not case.form}
    listed = listed_attacks(recipe) - {14, 22, 29, 39, 41, 42}
    assert (sorted(attacks - listed - {29}), sorted(listed - attacks)) == ([], []), (
        "(pays but is not listed, listed but does not pay)"
    )


@pytest.mark.parametrize("recipe", RECIPES)
def test_loopholes_name_variants_that_exist(recipe: str) -> None:
    """TruthRL's policy learns to abstain, although abstaining does not earn more."""
    variants = {(case.attack, case.variant) for case in CASES if case.recipe == recipe}
    assert excused(recipe) <= variants
    for loophole in RECIPES[recipe].loopholes:
        assert loophole.variants.keys() <= set(loophole.attacks)
        assert not (loophole.is_open and loophole.variants)
        if recipe in CASES_OF:
            assert not loophole.is_open or (recipe, loophole.attacks) == ("truthrl", (22,))
            if not loophole.is_closed and not loophole.is_open:
                assert loophole.variants.keys() == set(loophole.attacks)


CLOSED_OTHERWISE = {"stepsearch": {16, 24}, "igpo": {41}}
"""Attacks that two settings close together, or the refusal of a value."""


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_hardened_setting_closes_each_closed_loophole(recipe: str) -> None:
    definition = RECIPES[recipe]
    defaults = definition.defaults()
    for key, change in definition.hardened.items():
        assert change.value != defaults[key]
        assert set(change.closes) <= set(ATTACKS)
    assert listed_attacks(recipe) <= set(ATTACKS)
    closed = {attack for each in definition.loopholes if each.is_closed for attack in each.attacks}
    stopped = {attack for change in definition.hardened.values() for attack in change.closes}
    assert closed - stopped == CLOSED_OTHERWISE.get(recipe, set())


# --- degenerate policies -----------------------------------------------------------------------


def test_degenerate_policies_do_not_pay() -> None:
    rewards = {
        policy.id: policy.rewards(rr.recipe(policy.recipe, policy.settings, hardened=True))
        for policy in POLICIES
    }
    assert [name for name, (honest, attacked) in rewards.items() if attacked >= honest] == []


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


@pytest.mark.parametrize("reader", READERS, ids=lambda r: "-".join([r[0], *r[2].values()]))
def test_right_in_another_notation(reader: Any) -> None:
    wrong = [each for each in SAME if _is_read(reader, *each) is False]
    assert wrong == []


def _is_read(reader: Any, answer: str, gold: str, option: str) -> bool | None:
    """Return whether a recipe takes an answer as right, or None where the pair does not apply."""
    recipe, shape, settings = reader
    if answer in ALONE and shape not in (arena, tagged, boxed, lear):
        return None
    if (answer, recipe) == ("Paris [1][2].", "ground-grpo"):
        return None  # one of the two documents is superfluous
    built = rr.recipe(
        recipe, settings | ({"accuracy.normalizer": option} if option else {}), hardened=True
    )
    row = {"response": shape(answer), "answers": [gold], **SAME_LIKELIHOOD}
    row["masked_answers"] = {"rationale": answer, "evidence": answer}
    if recipe == "ground-grpo":
        row["documents"] = [{"id": n, "text": f"It is {gold}: {answer}."} for n in (1, 2)]
        row["supporting"] = [1, 2]
    return built([rollout_of(built, row)])[0].correct == 1.0


ASSERTED = (
    "Paris", "Paris.", "The answer is Paris.", '"Paris"', "**Paris**", "`Paris`",
    "(Paris)", "“Paris”", "« Paris »", "Paris[1].", "Final answer: Paris", "答案是Paris。",
    "The capital of France is Paris.", "It is Paris [1].",
)  # fmt: skip


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


def test_right_answers_are_not_decided_wrong() -> None:
    built = rr.recipe("truthrl", {"verifier": "substring"}, hardened=True)
    answers = (*ASSERTED, *IN_PROSE)
    scores = built([rollout_of(built, {"response": boxed(answer)}) for answer in answers])
    assert [
        answer
        for answer, score in zip(answers, scores, strict=True)
        if score.details["decision"] == "wrong" or (answer in ASSERTED and score.correct != 1.0)
    ] == []


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
