"""Real rows of data sets through every recipe, with invented responses and evidence."""

from __future__ import annotations

import math
from functools import partial

import msgspec
import pytest
from real_rows import SOURCES, ircot, musique, responses, triviaqa, trust_align, two_wiki
from varied_evidence import with_varied_evidence

from rag_rewards import RECIPES, Recipe, Rollout, decode_row, recipe
from rag_rewards.audit.rule_evidence import with_group_evidence

INVENTED_GOLD = {
    "stepsearch": {"search_keys": [["who", "which"]], "gold_documents": ["It is in this page."]},
    "carr": {"rubrics": ["<E0> is in <E1>."]},
    "dr-tulu": {"rubric": [{"criterion": "It answers the question."}]},
    "rubric": {"rubric": [{"criterion": "It answers the question.", "max_words": 50}]},
}
"""Gold data that no data set contains, by recipe."""


def read_with_evidence(scheme: Recipe, rollout: Rollout) -> Rollout:
    """Return the rollout with evidence for every need, after a round trip."""
    return decode_row(msgspec.json.encode(with_varied_evidence(scheme, rollout)))


VARIANTS = {name: partial(recipe, name) for name in RECIPES} | {
    "ground-grpo semantic": partial(
        recipe, "ground-grpo", {"refusal.matcher": "semantic", "process.weight": 1.0}
    ),
    "ground-grpo by gold": partial(recipe, "ground-grpo", {"citation.judge_by": "gold"}),
    "lear likelihood": partial(recipe, "lear", {"mode": "likelihood"}),
    "arena judge": partial(recipe, "arena", {"accuracy.metric": "judge"}),
    "truthrl reasoning": partial(recipe, "truthrl", {"reasoning.combine": "multiplicative"}),
}

SLOW = {"binary-rar"}  # more than a minute for all responses to all rows
NOT_HARDENED = {"ground-grpo semantic"}  # the hardened profile rejects refusal.matcher=semantic
ALL_ROWS = [
    pytest.param(each, 9, marks=pytest.mark.slow) for each in sorted(VARIANTS.keys() - SLOW)
]


@pytest.mark.parametrize(
    ("variant", "most"), [*((each, 3) for each in sorted(VARIANTS)), *ALL_ROWS]
)
def test_real_rows_score(shared, variant, most):
    """Up to nine rows of each set with three responses in turn, under both profiles.

    A slow test scores all nine responses to all rows, under the default profile, and leaves out
    the recipes of `SLOW`.
    The golden scores of the recipes contain all rows with the evidence of the rules, and three of
    the nine responses to each row of a set with more than nine rows.
    """
    for hardened in (False, True)[: 1 if most == 9 or variant in NOT_HARDENED else 2]:
        scheme = VARIANTS[variant](hardened=hardened)
        for source in SOURCES:
            rollouts = list(rollouts_of(source, shared, scheme, variant, most))
            scores = scheme(with_group_evidence(scheme, rollouts))
            assert len(scores) == len(rollouts) > 0, source
            for rollout, score in zip(rollouts, scores, strict=True):
                check(scheme, rollout, score)


def rollouts_of(source, shared, scheme, variant, most):
    """Yield rows of a data set: few rows with each response, many rows with `most` in turn."""
    rows = list(source(shared / "data"))
    if most < 9:
        rows = rows[:: -(-len(rows) // 9)]
    for i, row in enumerate(rows):
        if variant == "ground-grpo-stage1" and not row["answerable"]:
            continue  # stage 1 scores answerable rows only
        if variant.startswith("ctrl") and not row["supporting"]:
            continue  # a data error there
        texts = list(responses(row).items())
        if len(rows) > 3:
            texts = [texts[(3 * i + k) % len(texts)] for k in range(most)]
        for kind, text in texts:
            gold = row | INVENTED_GOLD.get(variant, {})
            bare = decode_row({**gold, "id": f"{i}-{kind}", "group": i, "response": text})
            yield read_with_evidence(scheme, bare)


def check(scheme, rollout, score):
    assert isinstance(score.value, float), rollout.id
    assert math.isfinite(score.value)
    assert tuple(score.components) == scheme.component_names
    known = [v for v in score.components.values() if v is not None]
    assert all(map(math.isfinite, known))
    can_be_missing = scheme.name == "rlcr" or "turns" in scheme.definition.fields
    assert len(known) == len(score.components) or can_be_missing
    assert (score.correct is None) == (scheme.correct is None)
    assert 0.0 <= (score.correct or 0.0) <= 1.0


def by_kind(shared, source, name, **options):
    """Return the scores by kind of response, for rows with one answer."""
    scheme = recipe(name, **options)
    table: dict[str, list] = {}
    for row in source(shared / "data"):
        for kind, text in responses(row).items():
            bare = decode_row({**row, "response": text, "group": row["question"]})
            table.setdefault(kind, []).append(scheme([read_with_evidence(scheme, bare)])[0])
    return table


@pytest.mark.parametrize("source", [ircot, two_wiki, musique, triviaqa], ids=lambda s: s.__name__)
def test_right_answers_are_right_and_others_are_not(shared, source):
    arena = by_kind(shared, source, "arena")
    assert {s.value for s in arena["arena"]} == {13.0}
    assert {s.value for s in arena["malformed"]} == {0.0}
    assert {s.correct for s in arena["wrong"]} == {0.0}
    truth = by_kind(shared, source, "truthrl")
    assert {s.value for s in truth["boxed"]} == {1.0}
    assert {s.value for s in truth["unsure"]} == {0.0}
    assert {s.value for s in truth["malformed"]} == {-1.0}
    naive = by_kind(shared, source, "naive-grpo")
    assert {s.value for s in naive["refusal"]} == {1.0}
    grounded = by_kind(shared, source, "ground-grpo")
    assert {s.correct for s in grounded["cited"]} == {1.0}
    assert {s.value for s in grounded["refusal"]} == {2.0}  # tags and format, nothing more
    assert {s.value for s in grounded["empty"]} == {0.0}


def test_refusing_unanswerable_questions(shared):
    for name, row in (("ground-grpo", r) for r in trust_align(shared / "data")):
        for hardened in (False, True):
            rollout = decode_row({**row, "response": responses(row)["refusal"]})
            score = recipe(name, hardened=hardened)([rollout])[0]
            assert score.value == (2.0 if row["answerable"] else 3.0)
            assert score.correct == float(not row["answerable"])
