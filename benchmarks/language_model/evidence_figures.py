"""Figures about the evidence of a language model, from rows that contain it.

An interval is the 95% bootstrap interval over questions, with 2,000 resamples and the seed 0. An
AUC is the probability that a row of the first label has the greater score, plus half that of equal
scores; over all pairs of rows unless it is called "within questions".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import mul
from statistics import fmean, median
from typing import Any

from language_model.rows import COPIED_ANSWER, FORMS, KINDS, REASONED, Item, contains

import rag_rewards as rr
from rag_rewards.metrics.agreement import Labelled, ScoreCounts, figures
from rag_rewards.metrics.intervals import Resampling, interval, intervals_of, resampled_weights

RESAMPLING = Resampling(2_000, seed=0)
OTHERS = tuple(KINDS)[1:]
PROMPTS = ("chat", "plain")
EVIDENCE = "E"
MEAN = "E, mean over the documents"
VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    EVIDENCE: ("evidential_contribution", {}),
    MEAN: ("evidential_contribution", {"loo": "mean"}),
    "R_CLR (τ = 1, /√T)": ("clr", {}),
    "R_CLR, mean over the documents": ("clr", {"loo": "mean"}),
    "R_CLR without τ": ("clr", {"threshold": None}),
    "R_CLR without length norm": ("clr", {"length_norm": "none"}),
}
"""The component and the settings of `ctrl-rag-clr` of each variant."""
R_CLR = "R_CLR (τ = 1, /√T)"
GATED = "R_CLR · accuracy, as in ctrl-rag"
ACCURACY = "accuracy alone"
"""The component `accuracy` of `ctrl-rag`, which is also that of `rag-total`."""
ALL = "others"
NO_COPIES = "others without copied gold"
FEW = ("memory", "wrong", "copied gold")
COPIES = ("copied distractor", "copied gold")
"""The kinds of responses in tables of some of the questions."""
NOT_RIGHT = ("wrong", "misread")
"""The kinds of responses that are left out if their accuracy is 1."""
DRAWS = 1
"""Draws of other results for the baseline `random` of igpo, whose default is 3."""
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


def difference(
    first: Sequence[tuple[Any, float, bool]], second: Sequence[tuple[Any, float, bool]]
) -> Figure:
    """Return the AUC of the first scores minus that of the second, on the same rows.

    The rows are (question, score, label). A resample has the same weights for both.

    >>> rows = [("a", 2.0, True), ("a", 1.0, False), ("b", 1.0, True), ("b", 1.0, False)]
    >>> difference(rows, [(prompt, 0.0, label) for prompt, _, label in rows])["value"]
    0.25
    """
    place = {prompt: i for i, prompt in enumerate(dict.fromkeys(row[0] for row in first))}
    wins = [[0.0] * len(place) for _ in place]
    yes, no = [0.0] * len(place), [0.0] * len(place)
    pairs = list(zip(first, second, strict=True))
    for a, b in pairs:
        (yes if a[2] else no)[place[a[0]]] += 1
        for c, d in pairs if a[2] else ():
            if not c[2]:
                wins[place[a[0]]][place[c[0]]] += _win(a[1], c[1]) - _win(b[1], d[1])

    def value(weights: Sequence[float]) -> float | None:
        count = _dot(yes, weights) * _dot(no, weights)
        total = math.fsum(w * _dot(row, weights) for w, row in zip(weights, wins, strict=True) if w)
        return total / count if count else None

    ends = interval([value(each) for each in resampled_weights(len(place), RESAMPLING)])
    low, high = ends or (None, None)
    return rounded({"value": value([1.0] * len(place)), "low": low, "high": high})


def _win(yes: float, no: float) -> float:
    return (yes > no) + (yes == no) / 2


def _dot(values: Sequence[float], weights: Sequence[float]) -> float:
    return sum(map(mul, values, weights))


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
    left_out = [item for item, each in _with_accuracy(items) if is_left_out(item, each)]
    items = [item for item, each in _with_accuracy(items) if not is_left_out(item, each)]
    variants = {
        name: [part_of(each, part) for each in scores(rr.recipe("ctrl-rag-clr", settings), items)]
        for name, (part, settings) in VARIANTS.items()
    }
    variants[ACCURACY] = [each for _, each in _with_accuracy(items)]
    variants[GATED] = [a * b for a, b in zip(variants[R_CLR], variants[ACCURACY], strict=True)]
    result: dict[str, Any] = {
        "rows": _counts(items),
        "left out": _counts(left_out),
        "right copies": _counts(
            item for item, each in _with_accuracy(items) if each and item.kind in COPIES
        ),
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
        result[form] = _of_form(by_variant)
        result[form][COPIED_ANSWER] = {
            name: auc(
                (question(item), value, item.kind == "supported")
                for item, value in zip(items, variants[name], strict=True)
                if item.kind == COPIED_ANSWER or (item.kind, item.form) == ("supported", form)
                if (item.data, item.question) in copied
            )
            for name in (EVIDENCE, R_CLR, GATED, ACCURACY)
            if copied
        }
    return result


def _with_accuracy(items: Sequence[Item]) -> list[Scored]:
    """Return rows with the accuracy of `ctrl-rag`."""
    results = scores(rr.recipe("ctrl-rag"), items)
    return [(item, part_of(each, "accuracy")) for item, each in zip(items, results, strict=True)]


def is_left_out(item: Item, accuracy: float) -> bool:
    """Return whether a response that should have a wrong answer still contains the right one."""
    return item.kind in NOT_RIGHT and accuracy == 1


def _of_form(variants: Mapping[str, Sequence[Scored]]) -> dict[str, Any]:
    evidence = variants[EVIDENCE]
    return {
        "auc": {name: _by_kind(rows) for name, rows in variants.items()},
        "product minus accuracy": {
            name: difference(*(_against(variants[each], kinds) for each in (GATED, ACCURACY)))
            for name, kinds in {**POOLS, "memory": ("memory",)}.items()
        },
        "by documents": {
            name: {
                label: _by_kind([(item, v) for item, v in variants[name] if condition(item)], kinds)
                for label, condition in NUMBERS.items()
            }
            for name, kinds in ((EVIDENCE, FEW), (MEAN, ()))
        },
        "by question": {
            label: _by_kind([(item, v) for item, v in evidence if condition(item)], FEW)
            for label, condition in QUESTIONS.items()
        },
        "by data": {
            data: _by_kind([(item, v) for item, v in evidence if item.data == data], FEW)
            for data in _data([item for item, _ in evidence])
        },
        "within": {kind: within(evidence, kind) for kind in OTHERS if kind != "memory"},
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


POOLS = {ALL: OTHERS, NO_COPIES: tuple(kind for kind in OTHERS if kind != "copied gold")}


def _by_kind(rows: Sequence[Scored], kinds: Sequence[str] = OTHERS) -> dict[str, Figure]:
    """Return the AUC of supported responses against all others, and against each kind."""
    result = {}
    for name, against in (POOLS | {kind: (kind,) for kind in kinds}).items():
        chosen = _against(rows, against)
        labels = {label for _, _, label in chosen}
        if len(labels) == 2:
            result[name] = auc(chosen)
    return result


def _against(rows: Sequence[Scored], kinds: Sequence[str]) -> list[tuple[Any, float, bool]]:
    """Return (question, value, label) of supported responses and of those of some kinds."""
    return [
        (question(item), value, item.kind == "supported")
        for item, value in rows
        if item.kind == "supported" or item.kind in kinds
    ]


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
