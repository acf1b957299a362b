"""CTRL-RAG's three recipes: rows with values that were computed by hand from Eq. 2 to 16."""

from __future__ import annotations

import msgspec
import pytest

from rag_rewards import DataError, Document, GroupError, recipe
from rag_rewards.rewards import ContrastiveLikelihood
from rag_rewards.rollout import LogProbs, Rollout

DOCUMENTS = tuple(Document(text=f"text {i}") for i in (1, 2, 3))


def row(contribution: float, *, tokens=4, right=True, group="g", text=None, **fields) -> Rollout:
    """Return a rollout with this number of tokens and this E; S⁻ = S − E, S = −tokens if E ≥ 0."""
    each = -1.0 if contribution >= 0 else -9.0
    without = (each - contribution / tokens,) * tokens
    text = text or f"It is <answer>{'Paris' if right else 'Rome'}</answer>."
    fields = {
        "logprobs": LogProbs(full=(each,) * tokens, without={"1": without}),
        "supporting": (1,),
        "documents": DOCUMENTS,
        "answers": "Paris",
    } | fields
    return Rollout(response=text, group=group, **fields)


def values(rows, name="ctrl-rag", settings=None, **options):
    return [s.value for s in recipe(name, settings, **options)(rows)]


def test_a_golden_group():
    scores = recipe("ctrl-rag")([row(4), row(8), row(6, right=False), row(0.5)])
    # E/√4 above τ = 1: 2, 4, 3, 0. min 0, max 4: R′ = ½, 1, ¾, 0. Times accuracy 1, 1, 0, 1.
    names = ("evidential_contribution", "clr", "clr_normalized", "accuracy")
    rows = [(4, 2, 0.5, 1), (8, 4, 1, 1), (6, 3, 0.75, 0), (0.5, 0, 0, 1)]
    for score, expected in zip(scores, rows, strict=True):
        assert score.components == pytest.approx(dict(zip(names, expected, strict=True)))
    assert [s.value for s in scores] == pytest.approx([0.5, 1, 0, 0])
    assert [s.correct for s in scores] == [1, 1, 0, 1]


def test_lengths_of_a_golden_group():
    rows = [row(9, tokens=9), row(4, tokens=1), row(4, tokens=16)]
    # sqrt: 3, 4, 1 → ⅔, 1, 0. none: 9, 4, 4 → 1, 0, 0. linear: 1, 4, ¼ → ⅕, 1, 0.
    assert values(rows) == pytest.approx([2 / 3, 1, 0])
    assert values(rows, settings={"length_norm": "none"}) == pytest.approx([1, 0, 0])
    assert values(rows, settings={"length_norm": "linear"}) == pytest.approx([0.2, 1, 0])


def test_fusions():
    rows = [row(4), row(8, right=False), row(2)]
    # clr 2, 4, 1 → R′ = ⅓, 1, 0; accuracy 1, 0, 1
    assert values(rows) == pytest.approx([1 / 3, 0, 0])
    assert values(rows, settings={"fusion": "add"}) == pytest.approx([4 / 3, 1, 1])
    assert values(rows, settings={"fusion": "add", "weight": 0.3}) == pytest.approx([1.1, 0.3, 1])
    assert values(rows, settings={"fusion": "none"}) == pytest.approx([1 / 3, 1, 0])


def test_thresholds():
    rows = [row(1), row(1.5), row(-3), row(4)]
    # τ = 1: 0 (E must be above), 0.75, 0, 2 → 0, ⅜, 0, 1
    assert values(rows) == pytest.approx([0, 0.375, 0, 1])
    # no threshold: ½, ¾, −1.5, 2 → (½ + 1.5)/3.5 …
    assert values(rows, settings={"threshold": None}) == pytest.approx([4 / 7, 4.5 / 7, 0, 1])


def test_a_threshold_on_the_reward():
    """Appendix A: R_CLR below 1 is 0, where Eq. 13 compares E."""
    on_reward = {"threshold_on": "reward"}
    rows = [row(1.5), row(2), row(-3), row(4), row(5)]
    # E/√4: 0.75 and −1.5 are below τ = 1 and become 0; 1, 2 and 2.5 remain.
    assert values(rows, "ctrl-rag-clr", on_reward) == pytest.approx([0, 1, 0, 2, 2.5])
    assert values(rows, "ctrl-rag-clr") == pytest.approx([0.75, 1, 0, 2, 2.5])
    assert values(rows, settings=on_reward) == pytest.approx([0, 0.4, 0, 0.8, 1])
    # The length norm comes first: 8/16 and 8/1.
    normed = [
        values([row(8, tokens=16)], "ctrl-rag-clr", on_reward | {"length_norm": norm})
        for norm in ("linear", "none")
    ]
    assert normed == [[0], [8]]
    without = {"threshold": None}
    assert values(rows, settings=on_reward | without) == values(rows, settings=without)
    # A group of one: 1 if the reward reaches its threshold.
    assert [values([row(e)], settings=on_reward) for e in (1.99, 2.0, -5.0)] == [[0], [1], [0]]
    assert values([row(1.5, tokens=16)], settings=on_reward) == [0]


def test_groups_are_scaled_separately():
    rows = [row(4, group="a"), row(40, group="b"), row(8, group="a"), row(80, group="b")]
    assert values(rows) == pytest.approx([0, 0, 1, 1])
    by_question = [row(4, group=None, question="q"), row(8, group=None, question="q")]
    assert values(by_question) == pytest.approx([0, 1])


def test_a_group_of_one_is_not_scaled():
    """Eq. 14 gives 0, so that no validation with one rollout per prompt could show a reward."""
    assert [values([row(e)]) for e in (0.5, 1.0, 1.01, 8)] == [[0], [0], [1], [1]]
    assert values([row(8, right=False)]) == [0]


def test_groups_without_spread():
    rows = [row(4), row(4), row(4, right=False)]
    assert values(rows) == [0, 0, 0]
    assert values(rows, settings={"no_spread": "one"}) == [1, 1, 0]
    near = [row(4), row(4.2)]  # clr 2 and 2.1
    assert values(near) == pytest.approx([0, 1])
    assert values(near, settings={"min_spread": 0.2}) == [0, 0]
    assert values(near, settings={"min_spread": 0.2, "no_spread": "one"}) == [1, 1]


def test_a_group_without_spread_and_without_a_contribution():
    """A right answer that the documents do not make more likely has no contribution to reward."""
    one = {"no_spread": "one"}
    rows = [row(0), row(0.5), row(-3), row(4, right=False)]
    assert values(rows, settings=one | {"among": "correct", "floor": 0.1}) == [0.1, 0.1, 0.1, 0]
    assert values(rows[:3], settings=one) == [0, 0, 0]
    assert values([row(2.0), row(2.0)], settings=one | {"threshold": 2.0}) == [0, 0]
    assert values([row(2.0), row(2.0)], settings=one | {"threshold": None}) == [1, 1]
    on_reward = one | {"threshold_on": "reward"}
    assert values([row(1.9), row(0)], settings=on_reward) == [0, 0]  # E/√4 is below 1
    assert values([row(2.0), row(2.0)], settings=on_reward) == [1, 1]


def test_the_only_right_rollout_needs_a_contribution_under_the_hardened_profile():
    wrong = [row(9, right=False), row(3, right=False)]
    for contribution, reward in ((0.0, 0.1), (1.0, 0.1), (1.01, 1.0)):
        rows = [row(contribution), *wrong]
        assert values(rows, hardened=True)[0] == reward


def test_a_group_of_one():
    assert [values([row(e)]) for e in (1.01, 1.0, 0.0, -5.0)] == [[1], [0], [0], [0]]
    assert values([row(9, right=False)]) == [0]
    assert values([row(0.5)], settings={"threshold": 0.4}) == [1]
    # Without a threshold: above 0.
    assert [values([row(e)], settings={"threshold": None}) for e in (0.5, -0.5)] == [[1], [0]]
    # The threshold is on E, not on the normalized reward: E = 1.5 over √16 is 0.375.
    assert values([row(1.5, tokens=16)]) == [1]


def test_leaving_one_out():
    logprobs = LogProbs(full=(-1.0,), without={"1": (-4.0,), "2": (-2.0,)})
    rollout = row(0, logprobs=logprobs, supporting=(1, 2))
    least = recipe("ctrl-rag-clr")([rollout])[0]
    assert (least.value, least.details["critical_document"]) == (3.0, "1")  # −1 − (−4)
    assert values([rollout], "ctrl-rag-clr", {"loo": "mean"}) == [2.0]  # −1 − (−3)


def test_clr_alone_with_each_loo_and_threshold():
    """S is −1 per token; without document 1 or 2, S⁻ is −4 or −1.5 in all, over one token."""
    rows = [
        row(0, logprobs=LogProbs(full=(-1.0,), without={"1": (-4.0,), "2": (-1.5,)})),
        row(0, logprobs=LogProbs(full=(-1.0,), without={"1": (-1.5,), "2": (-0.5,)})),
    ]
    rows = [msgspec.structs.replace(each, supporting=(1, 2)) for each in rows]
    # E by the minimum: 3 and 0.5; by the mean: 1.75 and 0. The threshold is 1.
    expected = {"min": ([3, 0.5], [3, 0]), "mean": ([1.75, 0], [1.75, 0])}
    for loo, (without, with_threshold) in expected.items():
        assert values(rows, "ctrl-rag-clr", {"loo": loo, "threshold": None}) == without
        assert values(rows, "ctrl-rag-clr", {"loo": loo}) == with_threshold


def test_clr_only():
    scores = recipe("ctrl-rag-clr")([row(4), row(8, right=False), row(0.5)])
    assert [s.components for s in scores] == [
        {"evidential_contribution": 4, "clr": 2},
        {"evidential_contribution": 8, "clr": 4},
        {"evidential_contribution": 0.5, "clr": 0},
    ]
    assert [s.value for s in scores] == [2, 4, 0]
    assert [s.correct for s in scores] == [1, 0, 1]


@pytest.mark.parametrize(
    ("text", "accuracy"),
    [
        ("It is PARIS.", 1),
        ("**Par**is", 1),
        ("Parisian", 1),
        ("P a r i s", 0),
        ("<think>Paris</think> Rome", 0),
        ("<think>Paris", 0),
        ("Rome", 0),
        ("<answer>Rome</answer> Paris", 1),
    ],
)
def test_accuracy_ignores_the_thinking(text, accuracy):
    assert recipe("ctrl-rag")([row(4, text=text)])[0].components["accuracy"] == accuracy


def test_rows_without_supporting_documents():
    for supporting in ((), None):
        mixed = [row(4), row(8, supporting=supporting), row(8)]
        errors = recipe("ctrl-rag").score_each(mixed)
        assert [type(e) for e in errors] == [GroupError, DataError, GroupError]
        assert all("on_missing_support=zero" in str(e) for e in errors)
        # E and clr 0 there: 2, 0, 4 → ½, 0, 1
        result = values(mixed, settings={"on_missing_support": "zero"})
        assert result == pytest.approx([0.5, 0, 1])


def test_the_details_of_a_score():
    details = ContrastiveLikelihood(tokens=True)([row(4)])[0].details
    assert details["critical_document"] == "1"
    assert (details["logprob"], details["logprob_without"], details["tokens"]) == (-4, -8, 4)
    assert details["contributions"] == [1, 1, 1, 1]
    assert details["share_grounded"] == 1
    # e^(4/4) and e^(8/4)
    assert details["perplexity"] == pytest.approx(2.718282)
    assert details["perplexity_without"] == pytest.approx(7.389056)
    assert "contributions" not in recipe("ctrl-rag")([row(4)])[0].details


# --- hardened -----------------------------------------------------------------------------------


def test_hardened_scaling():
    rows = [row(4), row(8), row(40, right=False), row(-3, right=False)]
    # Among the correct: clr 2 and 4 → 0.1 + 0.9·0 and 0.1 + 0.9·1; the wrong 0.
    assert values(rows, hardened=True) == pytest.approx([0.1, 1.0, 0, 0])


def test_hardened_groups_without_spread():
    assert values([row(4), row(4), row(9, right=False)], hardened=True) == [1, 1, 0]
    assert values([row(4), row(9, right=False)], hardened=True) == [1, 0]
    assert values([row(4, right=False), row(9, right=False)], hardened=True) == [0, 0]


def test_hardened_groups_of_one():
    assert values([row(4)], hardened=True) == [1]
    assert values([row(0.5)], hardened=True) == [0.1]  # correct, but below τ: the floor
    assert values([row(4, right=False)], hardened=True) == [0]


@pytest.mark.parametrize(
    ("text", "accuracy"),
    [
        ("Paris is large. <answer>It is Paris.</answer>", 1),
        ("It is Paris.", 0),
        ("Paris. <answer>Rome</answer>", 0),
        ("<answer>It is not Paris.</answer>", 0),
        ("<answer>Paris or Rome</answer>", 0),
    ],
)
def test_hardened_reads_the_answer_section(text, accuracy):
    result = recipe("ctrl-rag", hardened=True)([row(4, text=text)])[0]
    assert result.components["accuracy"] == accuracy


def test_hardened_ignores_the_thinking():
    logprobs = LogProbs(full=(-1.0,) * 3, without={"1": (-9.0, -9.0, -3.0)}, answer_span=(2, 3))
    rollout = row(0, text="<think>t</think> Paris", logprobs=logprobs)
    assert recipe("ctrl-rag", hardened=True)([rollout])[0].components["clr"] == 2.0


# --- the baseline -------------------------------------------------------------------------------


def total(text, settings=None, hardened=False):
    rollout = Rollout(response=text, documents=DOCUMENTS, supporting=(1, 3), answers="Paris")
    return recipe("rag-total", settings, hardened=hardened)([rollout])[0]


@pytest.mark.parametrize(
    ("text", "citation", "accuracy", "reward"),
    [
        ("Paris [1][3].", 1, 1, 1),  # ½ + ½
        ("Paris [1].", 0.5, 1, 0.75),
        ("Paris.", 0, 1, 0.5),
        ("Rome [1][2][3].", 1, 0, 0.5),
        ("<think>[1] Paris [3]</think>Rome", 1, 0, 0.5),  # markers count there, answers do not
        ("", 0, 0, 0),
    ],
)
def test_golden_rows_of_the_baseline(text, citation, accuracy, reward):
    result = total(text)
    assert result.components == {"citation_recall": citation, "accuracy": accuracy, "cost": 0}
    assert (result.value, result.correct) == (reward, accuracy)


def test_costs_of_the_baseline():
    # 6 words over a budget of 4: 0.5. ½·1 + ½·1 − 0.2·0.5 = 0.9
    text = "It is in Paris [1] [3]"
    result = total(text, {"eta": 0.2, "cost.budget": 4})
    assert result.components["cost"] == 0.5
    assert result.value == pytest.approx(0.9)
    assert total(text, {"alpha": 1, "beta": 0.25}).value == 1.25
    # "a b a b": 2-grams ab, ba, ab: one of three repeats
    repeated = total("a b a b", {"eta": 3, "cost.kind": "repetition", "cost.ngram": 2})
    assert repeated.value == pytest.approx(-1.0)
    assert recipe("rag-total").equation == "0.5·citation_recall + 0.5·accuracy − 0·cost"


def test_each_term_of_the_baseline_alone():
    """The runs with R_acc and with R_cite (section 5)."""
    text = "Paris [1]."
    assert total(text, {"alpha": 0, "beta": 1}).value == 1.0
    assert total(text, {"alpha": 1, "beta": 0}).value == 0.5
    assert total("Rome [1][3].", {"alpha": 0, "beta": 1}).value == 0.0
    assert total("Rome [1][3].", {"alpha": 1, "beta": 0}).value == 1.0


def test_the_hardened_baseline():
    # cites 1, 2, 3 of which 1, 3 support: precision ⅔, recall 1 → 0.8
    cited = "It is Paris [1][2][3]. <answer>Paris</answer>"
    assert total(cited, hardened=True).value == pytest.approx(0.9)
    assert total("<think>[1][3]</think> <answer>Paris</answer>", hardened=True).value == 0.5
    assert total("<answer>Paris [1][3]</answer>", hardened=True).value == 1.0
    assert total("It is Paris [1][3].", hardened=True).value == 0.5  # without a section
    assert total("[1][3]", hardened=True).value == 0.0
