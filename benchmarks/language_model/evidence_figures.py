"""Figures about the evidence of a language model, from rows that contain it.

An interval is the 95% bootstrap interval over questions, with 2,000 resamples and the seed 0. An
AUC is the probability that a row of the first label has the greater score, plus half that of equal
scores; over all pairs of rows unless it is called "within questions".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from language_model.rows import COPIED_ANSWER, FORMS, KINDS, REASONED, Item, contains

import rag_rewards as rr
from rag_rewards.metrics.agreement import Labelled, ScoreCounts, figures
from rag_rewards.metrics.intervals import Resampling, intervals_of
from rag_rewards.rewards.contrastive import token_contributions

RESAMPLING = Resampling(2_000, seed=0)
OTHERS = tuple(KINDS)[1:]
PROMPTS = ("chat", "plain")
EVIDENCE = "E"
VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    EVIDENCE: ("evidential_contribution", {}),
    "E, mean over the documents": ("evidential_contribution", {"loo": "mean"}),
    "R_CLR (τ = 1, /√T)": ("clr", {}),
    "R_CLR, mean over the documents": ("clr", {"loo": "mean"}),
    "R_CLR without τ": ("clr", {"threshold": None}),
    "R_CLR without length norm": ("clr", {"length_norm": "none"}),
    "R_CLR, /T": ("clr", {"length_norm": "linear"}),
    "R_CLR without τ, /T": ("clr", {"threshold": None, "length_norm": "linear"}),
}
"""The component and the settings of `ctrl-rag-clr` of each variant."""
R_CLR = "R_CLR (τ = 1, /√T)"
GATED = "R_CLR · accuracy, as in ctrl-rag"
OF_ANSWER = "E of the tokens of the answer"
ALL = "not supported"
NO_COPIES = "not supported, without copied gold"
FEW = ("memory", "wrong", "copied gold")
"""The kinds of responses in tables of some of the questions."""
DRAWS = 1
"""Draws of other results for the baseline `random` of igpo, whose default is 3."""
LEAD = 4
"""Tokens of "The answer is:", after which the answer begins in the form `short`."""
GAINS = [
    (kind, baseline) for baseline in ("previous", "empty", "random") for kind in ("prob", "log")
]
RULE = "rule: a result contains the answer"
Figure = dict[str, Any]
Scored = tuple[Item, float]


def all_figures(items: Mapping[str, Sequence[Item]]) -> dict[str, Any]:
    """Return the figures of all tasks. A key is task, data set, prompt and precision."""
    result: dict[str, Any] = {"contrastive": {}, "search": {}, "lear": {}}
    for prompt in PROMPTS:
        for task, names, function in (
            ("contrastive", ("contrastive", "copied"), contrastive),
            ("search", ("search",), search),
            ("lear", ("lear",), lear),
        ):
            own = [
                item
                for name, part in items.items()
                if name.split()[0] in names and name.split()[2:] == [prompt, "bfloat16"]
                for item in part
            ]
            if own:
                result[task][prompt] = function(own)
    result["precision"] = precision(items)
    return result


# --- statistics ----------------------------------------------------------------------------------


def auc(rows: Iterable[tuple[Any, float, bool]]) -> Figure:
    """Return the AUC of (question, score, label) rows, with its interval and counts.

    >>> auc([("a", 2.0, True), ("a", 1.0, False), ("b", 1.0, True), ("b", 1.0, False)])["value"]
    0.75
    """
    prompts, scores, labels = zip(*rows, strict=True) if (rows := list(rows)) else ((), (), ())
    place = {prompt: i for i, prompt in enumerate(dict.fromkeys(prompts))}
    labelled = Labelled(scores, labels, [place[prompt] for prompt in prompts])
    counts = ScoreCounts.of(zip(scores, labels, strict=True))
    figure = figures(labelled, counts, None, RESAMPLING).auc
    return {
        **rounded({"value": figure.value, "low": figure.low, "high": figure.high}),
        "yes": sum(labels),
        "no": len(labels) - sum(labels),
        "questions": len(place),
    }


def mean(rows: Iterable[tuple[Any, float]]) -> Figure:
    """Return the mean of (question, value) rows with its interval.

    >>> figure = mean([("a", 1.0), ("a", 0.0), ("b", 1.0), ("b", 1.0)])
    >>> figure["value"], figure["questions"]
    (0.75, 2)
    """
    sums: dict[Any, list[float]] = {}
    for prompt, value in rows:
        own = sums.setdefault(prompt, [0.0, 0.0])
        own[0] += value
        own[1] += 1
    columns = {"sum": [each[0] for each in sums.values()], "n": [each[1] for each in sums.values()]}
    total, n = map(math.fsum, columns.values())

    def statistic(parts: Mapping[str, float]) -> dict[str, float | None]:
        return {"mean": parts["sum"] / parts["n"]}

    (ends,) = intervals_of([(statistic, columns)], RESAMPLING)
    low, high = ends.get("mean") or (None, None)
    value = total / n if n else None
    return {
        **rounded({"value": value, "low": low, "high": high}),
        "rows": int(n),
        "questions": len(sums),
    }


def rounded(values: Mapping[str, float | None]) -> Figure:
    return {name: None if value is None else round(value, 4) for name, value in values.items()}


def scores(recipe: rr.Recipe, items: Sequence[Item]) -> list[rr.Score]:
    """Return the score of each item. Raises its error for an item that cannot be scored."""
    results = []
    for each in recipe.score_each([item.rollout for item in items]):
        if not isinstance(each, rr.Score):
            raise each
        results.append(each)
    return results


def part_of(score: rr.Score, name: str) -> float:
    """Return a component of a score, which has a value."""
    value = score.components[name]
    assert value is not None
    return value


# --- CTRL-RAG ------------------------------------------------------------------------------------


def contrastive(items: Sequence[Item]) -> dict[str, Any]:
    """Return the figures of the responses with one prompt, by form."""
    variants = {
        name: [part_of(each, part) for each in scores(rr.recipe("ctrl-rag-clr", settings), items)]
        for name, (part, settings) in VARIANTS.items()
    }
    variants[GATED] = [
        part_of(each, "clr") * part_of(each, "accuracy")
        for each in scores(rr.recipe("ctrl-rag"), items)
    ]
    result: dict[str, Any] = {
        "rows": _counts(items),
        "data": {
            data: len({item.question for item in items if item.data == data})
            for data in _data(items)
        },
    }
    copied = {(item.data, item.question) for item in items if item.kind == COPIED_ANSWER}
    for form in FORMS:
        by_variant = {
            name: [each for each in zip(items, values, strict=True) if each[0].form == form]
            for name, values in variants.items()
        }
        if form == "short":
            by_variant[OF_ANSWER] = [
                (item, of_answer(item))
                for item in items
                if item.form == form and not item.kind.startswith("copied")
            ]
        result[form] = _of_form(by_variant)
        result[form][COPIED_ANSWER] = {
            name: auc(
                (question(item), value, item.kind == "supported")
                for item, value in zip(items, variants[name], strict=True)
                if item.kind == COPIED_ANSWER or (item.kind, item.form) == ("supported", form)
                if (item.data, item.question) in copied
            )
            for name in (EVIDENCE, R_CLR, GATED)
            if copied
        }
    return result


def of_answer(item: Item) -> float:
    """Return the part of E that belongs to the tokens of the answer, in the form `short`."""
    logprobs = item.rollout.logprobs
    assert logprobs is not None
    without = [values for values in logprobs.without.values() if values is not None]
    return math.fsum(token_contributions(logprobs.full, without)[LEAD:])


def _of_form(variants: Mapping[str, Sequence[Scored]]) -> dict[str, Any]:
    evidence = variants[EVIDENCE]
    return {
        "auc": {name: _by_kind(rows) for name, rows in variants.items()},
        "by documents": {
            name: {
                label: _by_kind([(item, v) for item, v in variants[name] if condition(item)], FEW)
                for label, condition in NUMBERS.items()
            }
            for name in (EVIDENCE, "E, mean over the documents")
        },
        "by question": {
            label: _by_kind([(item, v) for item, v in evidence if condition(item)], FEW)
            for label, condition in QUESTIONS.items()
        },
        "by data": {
            data: _by_kind([(item, v) for item, v in evidence if item.data == data], FEW)
            for data in _data([item for item, _ in evidence])
        },
        "within": {kind: within(evidence, kind) for kind in OTHERS},
        "E": {
            kind: _distribution([v for item, v in evidence if item.kind == kind]) for kind in KINDS
        },
    }


NUMBERS: Mapping[str, Callable[[Item], bool]] = {
    "1": lambda item: item.facts["supporting"] == 1,
    "2": lambda item: item.facts["supporting"] == 2,
    "3 or more": lambda item: item.facts["supporting"] >= 3,
}
QUESTIONS: Mapping[str, Callable[[Item], bool]] = {
    "a gold paragraph contains the answer, the question does not": lambda item: (
        item.facts["answer in gold"] and not item.facts["answer in question"]
    ),
    "the question contains the answer": lambda item: item.facts["answer in question"],
    "the answer is yes or no": lambda item: item.facts["type"] == "yes or no",
    "no gold paragraph contains the answer in these words": lambda item: (
        not (item.facts["answer in gold"] or item.facts["answer in question"])
        and item.facts["type"] != "yes or no"
    ),
}


def _by_kind(rows: Sequence[Scored], kinds: Sequence[str] = OTHERS) -> dict[str, Figure]:
    """Return the AUC of supported responses against all others, and against each kind."""
    result = {}
    pools = {ALL: OTHERS, NO_COPIES: tuple(kind for kind in OTHERS if kind != "copied gold")}
    for name, against in (pools | {kind: (kind,) for kind in kinds}).items():
        chosen = [
            (question(item), value, item.kind == "supported")
            for item, value in rows
            if item.kind == "supported" or item.kind in against
        ]
        labels = {label for _, _, label in chosen}
        if len(labels) == 2:
            result[name] = auc(chosen)
    return result


def within(rows: Sequence[Scored], kind: str) -> Figure:
    """Return how often the supported response of a question has the greater value.

    Equal values count one half.
    """
    best = {question(item): value for item, value in rows if item.kind == "supported"}
    return mean(
        (question(item), float(best[question(item)] > value) + (best[question(item)] == value) / 2)
        for item, value in rows
        if item.kind == kind and question(item) in best
    )


def _distribution(values: Sequence[float]) -> Figure:
    if not values:
        return {}
    return {
        "mean": round(fmean(values), 3),
        "median": round(median(values), 3),
        "above threshold": round(fmean(value > 1 for value in values), 4),
        "rows": len(values),
    }


def question(item: Item) -> Any:
    """Return what is resampled: a question, which several rollouts of R1-Searcher can have."""
    return item.rollout.question if item.kind == "search" else (item.data, item.question)


def _data(items: Iterable[Item]) -> list[str]:
    return list(dict.fromkeys(item.data for item in items))


def _counts(items: Iterable[Item]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for item in items:
        name = f"{item.kind}, {item.form}"
        counts[name] = counts.get(name, 0) + 1
    return counts


# --- igpo ----------------------------------------------------------------------------------------


def search(items: Sequence[Item]) -> dict[str, Any]:
    """Return the AUC of the gain against the verdict, and against the hit of a search."""
    hits = [turn_hits(item) for item in items]
    result: dict[str, Any] = {
        "rollouts": len(items),
        "right": sum(item.facts["right"] for item in items),
        "searches": sum(len(each) for each in hits),
        "hits": sum(map(sum, hits)),
        "rollouts with a hit": sum(map(any, hits)),
        "verdict": {},
        "hit": {},
        "first hit": {},
    }
    for kind, baseline in GAINS:
        settings = {"gain.kind": kind, "gain.baseline": baseline, "gain.random": DRAWS}
        scored = scores(rr.recipe("igpo", settings), items)
        name = f"{baseline}, {kind}"
        result["verdict"][name] = auc(
            (question(item), score.components["info_gain"], item.facts["right"])
            for item, score in zip(items, scored, strict=True)
            if score.components["info_gain"] is not None
        )
        per_turn = [turn_gains(score) for score in scored]
        result["hit"][name] = auc(
            (question(item), gain, hit)
            for item, gains, own in zip(items, per_turn, hits, strict=True)
            for gain, hit in zip(gains, own, strict=True)
            if gain is not None
        )
        result["first hit"][name] = auc(
            (question(item), gain, hit)
            for item, gains, own in zip(items, per_turn, hits, strict=True)
            for t, (gain, hit) in enumerate(zip(gains, own, strict=True))
            if gain is not None and not any(own[:t])
        )
        if (kind, baseline) == GAINS[0]:
            for part in ("prior", "posterior"):
                result["verdict"][f"likelihood: {part}"] = auc(
                    (question(item), part_of(score, part), item.facts["right"])
                    for item, score in zip(items, scored, strict=True)
                )
    result["verdict"][RULE] = auc(
        (question(item), float(any(own)), item.facts["right"])
        for item, own in zip(items, hits, strict=True)
    )
    return result


def turn_hits(item: Item) -> list[bool]:
    """Return for each turn but the last one whether a result contains a gold answer."""
    turns = item.rollout.trajectory().turns[:-1]
    answers = [alias for aliases in item.rollout.gold for alias in aliases]
    return [
        any(contains(doc.text, answer) for doc in turn.results or () for answer in answers)
        for turn in turns
    ]


def turn_gains(score: rr.Score) -> list[float | None]:
    """Return the gain of each turn but the last one, None for a turn without results."""
    return [turn.get("info_gain") for turn in score.details["turns"]][:-1]


# --- LEAR ----------------------------------------------------------------------------------------


def lear(items: Sequence[Item]) -> dict[str, Any]:
    """Return by kind how often each masked answer contains the gold answer, and its mean F1."""
    scored = scores(rr.recipe("lear"), items)
    result: dict[str, Any] = {}
    for kind in REASONED:
        own = [(i, s) for i, s in zip(items, scored, strict=True) if i.kind == kind]
        if own:
            result[kind] = {part: _answers(own, part) for part in ("rationale", "evidence", "full")}
    result["data"] = {
        data: len({question(i) for i in items if i.data == data}) for data in _data(items)
    }
    return result


def _answers(own: Sequence[tuple[Item, rr.Score]], part: str) -> dict[str, Figure]:
    return {
        "right": mean((question(i), float(_is_right(i, part))) for i, _ in own),
        "words": mean((question(i), float(len(_answer(i, part).split()))) for i, _ in own),
        "f1": mean((question(i), part_of(s, f"answer_{part}")) for i, s in own),
    }


def _is_right(item: Item, part: str) -> bool:
    """Return whether an answer contains the gold answer as whole words."""
    text = _answer(item, part)
    return any(contains(text, alias) for aliases in item.rollout.gold for alias in aliases)


def _answer(item: Item, part: str) -> str:
    if part == "full":
        return item.rollout.parsed.text.rpartition("<answer>")[2].removesuffix("</answer>")
    return getattr(item.rollout.masked_answers, part) or ""


# --- precision -----------------------------------------------------------------------------------


def precision(items: Mapping[str, Sequence[Item]]) -> dict[str, Any]:
    """Return the differences of E in bfloat16 from float32, on the same rows."""
    by_type = {
        name.split()[3]: part
        for name, part in items.items()
        if name.startswith("contrastive HotpotQA chat")
    }
    exact = by_type.get("float32", [])
    if not exact:
        return {}
    fast = by_type["bfloat16"][: len(exact)]
    recipe = rr.recipe("ctrl-rag-clr")
    pairs = [
        (part_of(a, "evidential_contribution"), part_of(b, "evidential_contribution"))
        for a, b in zip(scores(recipe, exact), scores(recipe, fast), strict=True)
    ]
    return {
        "rows": len(pairs),
        "mean difference": fmean(abs(a - b) for a, b in pairs),
        "largest difference": max(abs(a - b) for a, b in pairs),
        "threshold flips": sum((a > 1) != (b > 1) for a, b in pairs),
    }
