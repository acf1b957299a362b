"""Correctness of an answer: its comparison with the gold answers, by rules or by a judge.

Rewards and metrics read an answer from a response in their own ways, and decide on it here.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from rag_rewards.errors import check_choice
from rag_rewards.evidence.judge_needs import VerdictNeed
from rag_rewards.evidence.needs import Need
from rag_rewards.evidence.protocols import JudgeQuestion
from rag_rewards.rollout import Rollout
from rag_rewards.settings import check_choices
from rag_rewards.text.gold_forms import GoldForms, GoldTokens
from rag_rewards.text.normalize import Normalizer, squad, tokens

Metric = Literal["exact", "substring", "f1", "lenient", "judge", "cascade"]
Extra = Literal["allow", "reject"]
Undecided = Literal["match", "wrong", "judge", "doubtful"]
"""What decides on an answer.

match     the metric alone, as published
wrong     `matching.decide`; an undecided answer is wrong
judge     `matching.decide`; a judge decides on an undecided answer
doubtful  as judge; a judge also decides on a right answer that equals no gold answer
"""
CascadeUndecided = Literal["judge", "doubtful"]
"""Answers that a judge decides on with the metric `cascade`, see `Undecided`."""
UNDECIDED = (
    "match: the comparison alone decides; others: an answer is right only if every word of it is "
    "explained; one that is neither right nor wrong is wrong (wrong), or a judge decides (judge); "
    "doubtful: a judge, also with cascade, decides on right ones that equal no gold answer too",
    "ours: match, as published",
)
Required = tuple[tuple[str, ...], ...]
Compare = Callable[[str, str, str, str], float]
"""(normalized prediction, normalized gold, prediction, gold) → 0 to 1."""


class Decision(NamedTuple):
    """The decision of the rules on an answer.

    value, reason  see `matching.decide.AnswerDecision`
    is_judged      whether a judge decides instead
    """

    value: Literal["right", "wrong", "undecided"]
    reason: str
    is_judged: bool = False

    def is_right(self, rollout: Rollout, component: str) -> bool:
        """Return whether the answer is right, by the rules or by the verdict on this component.

        Raises DataError if the rollout lacks a required verdict.
        """
        if not self.is_judged:
            return self.value == "right"
        return bool(VerdictNeed(component).read(rollout))

    @property
    def details(self) -> dict[str, Any]:
        """The decision, its reason, and who decided, as details of a score."""
        details = {"decision": self.value, "decision_reason": self.reason}
        return details | {"decided_by": "judge"} if self.is_judged else details


EMPTY = Decision("wrong", "empty")


@dataclass(frozen=True)
@check_choices
class Correctness:
    """How right a text is as the answer of a rollout. Range 0 to 1.

    metric     `exact`, `substring`, `f1`, `lenient`, `judge` or `cascade`. The best alias counts.
               With several required answers, `f1` is the mean, and the others require all of them
    undecided  see `Undecided`, for `exact`, `substring` and `f1`; `cascade` reads `doubtful`, too
    extra      `exact` with several required answers: whether the list may contain other items
    component  name of the verdict of a judge
    asks       the question for the judge: that of ARENA, or that of TruthRL (`outcome`)
    normalize  text normalizer of the comparison

    A text without words is wrong.
    """

    metric: Metric = "exact"
    undecided: Undecided = "match"
    extra: Extra = "allow"
    component: str = "accuracy"
    asks: Literal["accuracy", "outcome"] = "accuracy"
    normalize: Normalizer = squad

    @cached_property
    def forms(self) -> GoldForms:
        """The normalized gold answers."""
        return GoldForms(self.normalize)

    @cached_property
    def is_decided(self) -> bool:
        """Whether `matching.decide` decides on the answer."""
        is_compared = self.metric in _COMPARE
        return self.metric == "cascade" or (is_compared and self.undecided != "match")

    @cached_property
    def can_ask(self) -> bool:
        """Whether a judge can decide on an answer."""
        return self.metric in ("judge", "cascade") or (
            self.is_decided and self.undecided in ("judge", "doubtful")
        )

    def needs(self, rollout: Rollout, text: str | None) -> list[Need]:
        """Return the verdict that a text needs, if a judge decides on it."""
        answer = (text or "").strip()
        if not answer or not self.can_ask:
            return []
        if self.metric != "judge" and not self.decide(rollout, text).is_judged:
            return []
        return [self.verdict_need(rollout, answer)]

    def verdict_need(self, rollout: Rollout, answer: str) -> VerdictNeed:
        """Return the need for a verdict on an answer."""
        if self.asks == "outcome":
            return VerdictNeed(self.component, outcome_questions(rollout, answer))
        gold = judge_references(rollout.gold)
        question = JudgeQuestion("accuracy", rollout.question or "", answer, gold)
        return VerdictNeed(self.component, (question,))

    def decide(self, rollout: Rollout, text: str | None) -> Decision:
        """Return the decision of the rules on a text, and whether a judge decides instead.

        >>> row = Rollout(response="", question="Where was it?", answers="Paris")
        >>> [Correctness().decide(row, text).value for text in ("In Paris.", "In Rome.", "")]
        ['right', 'undecided', 'wrong']
        """
        from rag_rewards.matching.decide import decide  # the published metrics do not import it

        context: tuple[str, ...] = ()
        if text and ("," in text or "(" in text):  # "Paris, France"
            context = tuple([document.text for document in rollout.documents or ()])
        value, reason = decide(text, rollout.gold, rollout.question or "", context)
        is_doubtful = value == "undecided" or (
            self.undecided == "doubtful" and value == "right" and reason != "equal"
        )
        return Decision(value, reason, self.can_ask and is_doubtful)

    def value_of(self, rollout: Rollout, text: str | None) -> float:
        """Return the value of a text. Raises DataError for a missing verdict or gold answer."""
        return self.decided_value(rollout, text)[0]

    def decided_value(self, rollout: Rollout, text: str | None) -> tuple[float, dict[str, Any]]:
        """Return the value of a text, and the details of the decision if there is one."""
        if self.is_decided:
            decision = self.decide(rollout, text)
            return float(decision.is_right(rollout, self.component)), decision.details
        required = rollout.gold
        if not text or text.isspace():
            return 0.0, {}
        if self.metric == "judge":
            return self.verdict(rollout, text), {}
        if self.metric == "lenient":
            from rag_rewards.matching.lenient import lenient_matches  # few settings need it

            return float(all(lenient_matches(text, required, rollout.question or ""))), {}
        normal = rollout.parsed.normal(text, self.normalize)
        return self.match(required, text, normal), {}

    def match(self, required: Required, text: str, normal: str) -> float:
        """Compare a text, of which `normal` is the normalized form, with the required answers."""
        if len(required) == 1:
            return self._best_alias(required[0], text, normal)
        if self.metric == "exact":
            return list_match(text, required, self.normalize, extra=self.extra)
        values = [self._best_alias(aliases, text, normal) for aliases in required]
        return math.fsum(values) / len(values) if self.metric == "f1" else min(values)

    def _best_alias(self, aliases: tuple[str, ...], text: str, normal: str) -> float:
        golds = self.forms.of(aliases)
        if normal and self.metric == "exact":
            return 1.0 if normal in golds else 0.0
        if "" in golds:  # a gold answer without a word is compared as written
            pairs = zip(golds, aliases, strict=True)
            return max(_COMPARE[self.metric](normal, gold, text, alias) for gold, alias in pairs)
        if self.metric == "f1":
            return best_f1(normal, self.forms.tokens_of(aliases))
        return 1.0 if any(gold in normal for gold in golds) else 0.0

    def verdict(self, rollout: Rollout, text: str | None) -> float:
        """Return the verdict of the judge on a text; 0 without words, which need no verdict."""
        if not text or text.isspace():
            return 0.0
        return float(VerdictNeed(self.component).read(rollout))


# --- comparison with one required answer ---------------------------------------------------------


def exact_match(prediction: str, aliases: Iterable[str], normalize: Normalizer = squad) -> float:
    """Return 1 if the normalized prediction equals a normalized alias, else 0.

    An alias whose normalized form is empty is compared as written, without case. An empty
    prediction matches nothing. Source: SQuAD v1.1.

    >>> exact_match("the Eiffel tower!", ["Eiffel Tower"]), exact_match("", [""])
    (1.0, 0.0)
    """
    return _best(_exact, prediction, aliases, normalize)


def substring_match(
    prediction: str, aliases: Iterable[str], normalize: Normalizer = squad
) -> float:
    """Return 1 if the normalized prediction contains a normalized alias, else 0.

    Source: Search-R1's subEM; CTRL-RAG, Eq. 3.

    >>> substring_match("It is Macron.", ["Ron"])  # `matching.decide` compares whole words
    1.0
    """
    return _best(_substring, prediction, aliases, normalize)


def token_f1(prediction: str, aliases: Iterable[str], normalize: Normalizer = squad) -> float:
    """Return F1 = 2PR / (P + R) of the multisets of normalized tokens, for the best alias.

    Range 0 to 1. Source: SQuAD v1.1; LEAR, Eq. 5.

    >>> token_f1("New York City", ["New York"])
    0.8
    """
    return _best(_f1, prediction, aliases, normalize)


def _best(
    compare: Compare, prediction: str, aliases: Iterable[str], normalize: Normalizer
) -> float:
    normal = normalize(prediction)
    return max(
        (compare(normal, normalize(alias), prediction, alias) for alias in aliases), default=0.0
    )


def _exact(prediction: str, gold: str, raw: str, raw_gold: str) -> float:
    if gold:
        return 1.0 if prediction == gold else 0.0
    return 1.0 if raw.strip() and raw.strip().casefold() == raw_gold.strip().casefold() else 0.0


def _substring(prediction: str, gold: str, raw: str, raw_gold: str) -> float:
    if gold:
        return 1.0 if gold in prediction else 0.0
    alias = raw_gold.strip().casefold()
    return 1.0 if alias and alias in raw.casefold() else 0.0


def _f1(prediction: str, gold: str, raw: str, raw_gold: str) -> float:
    if not gold:
        prediction, gold = raw.casefold(), raw_gold.casefold()
    return multiset_f1(tokens(prediction), tokens(gold))


def multiset_f1(prediction: Sequence[str], gold: Sequence[str]) -> float:
    """Return the harmonic mean of precision and recall of two multisets of tokens, 0 to 1.

    >>> multiset_f1(["a", "a", "b"], ["a", "b", "c"])
    0.6666666666666666
    """
    return _multiset_f1(prediction, set(prediction), gold)


def _multiset_f1(prediction: Sequence[str], distinct: set[str], gold: Sequence[str]) -> float:
    common = len(distinct.intersection(gold))
    if not common:
        return 0.0
    if len(distinct) < len(prediction) and len(set(gold)) < len(gold):  # both repeat a token
        common = sum((Counter(prediction) & Counter(gold)).values())
    return f1_of(common / len(prediction), common / len(gold))


def f1_of(precision: float, recall: float) -> float:
    """Return the harmonic mean 2PR / (P + R); 0 if one of them is 0.

    >>> f1_of(0.5, 1.0), f1_of(0.0, 0.0)
    (0.6666666666666666, 0.0)
    """
    if not precision or not recall:
        return 0.0
    return 2 * precision * recall / (precision + recall)


def best_f1(normal: str, golds: GoldTokens) -> float:
    """Return the best F1 of a normalized text and tokenized aliases, 0 to 1."""
    predicted = tokens(normal)
    distinct = set(predicted)
    if distinct.isdisjoint(golds.vocabulary):
        return 0.0
    best = 0.0
    for gold in golds.aliases:
        if predicted == gold:
            return 1.0
        f1 = _multiset_f1(predicted, distinct, gold)
        if f1 > best:
            best = f1
    return best


_COMPARE: dict[str, Compare] = {"exact": _exact, "substring": _substring, "f1": _f1}


# --- lists of required answers -------------------------------------------------------------------


_BULLET = re.compile(r"(?m)^[ \t]{0,8}(?:[-*•·–]|\(?\d{1,3}[.)])[ \t]{1,8}")
_JOINTS = re.compile(
    r"[,;，；、\n]|\s(?:and|as well as|und|et|[&+])\s|^\s{0,8}both\s", re.IGNORECASE
)
"""What separates the items of a list. A gold answer with such a word has several items."""


def list_match(
    text: str,
    required: Sequence[Sequence[str]],
    normalize: Normalizer = squad,
    *,
    extra: Extra = "allow",
) -> float:
    """Return 1 if a list contains every required answer, else 0.

    Commas, semicolons, line breaks, bullets and "and" separate the items. An alias that contains
    them can match several adjacent items. `extra="reject"` gives 0 to a list with an item that is
    not a required answer.

    >>> list_match("Rome and Washington, D.C.", [["Washington, D.C."], ["Rome"]])
    1.0
    """
    check_choice("extra", extra, Extra)
    items = _items(text)
    windows: dict[int, dict[str, list[int]]] = {}
    matched: set[int] = set()
    for aliases in required:
        is_listed = False
        for alias in aliases:
            parts = _items(alias) or [alias]
            width = len(parts)
            if width not in windows:
                windows[width] = _windows(items, width, normalize)
            starts = windows[width].get(_form(parts, normalize), [])
            matched.update(at for start in starts for at in range(start, start + width))
            is_listed = is_listed or bool(starts)
        if not is_listed:
            return 0.0
    return 1.0 if extra == "allow" or len(matched) == len(items) else 0.0


def _items(text: str) -> list[str]:
    """Return the items of a list."""
    if "\n" in text or text[:1] in "-*•·–(1":
        text = _BULLET.sub("", text)
    return [item for item in _JOINTS.split(text) if item.strip()]


def _windows(items: Sequence[str], width: int, normalize: Normalizer) -> dict[str, list[int]]:
    """Return the positions of each normalized run of `width` adjacent items."""
    starts: dict[str, list[int]] = {}
    for start in range(len(items) - width + 1):
        form = _form(items[start : start + width], normalize)
        starts.setdefault(form, []).append(start)
    return starts


def _form(items: Sequence[str], normalize: Normalizer) -> str:
    """Return the normalized form of a text, or the text without case if that form is empty."""
    text = ",".join(item.strip() for item in items)
    return normalize(text) or "\0" + text.strip().casefold()


def supported_answers(rollout: Rollout) -> int:
    """Return the number of required answers that a document supports; all if that is unknown.

    Also a row whose documents support none of them has all. Raises DataError if `supports` of a
    document does not have one boolean per required answer.
    """
    return len(rollout.supported_gold) or len(rollout.gold)


# --- a judge -------------------------------------------------------------------------------------


def judge_references(required: Required) -> tuple[str, ...]:
    """Return the references for a judge: the aliases, or several required answers as one list.

    >>> judge_references((("Paris", "City of Paris"),))
    ('Paris', 'City of Paris')
    >>> judge_references((("Rome",), ("UK", "Britain")))
    ('all of: Rome; UK or Britain',)
    """
    if len(required) == 1:
        return required[0]
    return ("all of: " + "; ".join(" or ".join(aliases) for aliases in required),)


def references_of(rollout: Rollout) -> tuple[str, ...]:
    """Return the references of a row for a judge, none for a row without gold answers."""
    gold = rollout.gold if rollout.answers is not None else ()
    return judge_references(gold) if gold else ()


def outcome_questions(rollout: Rollout, answer: str) -> tuple[JudgeQuestion, ...]:
    """Return one question per alias; several required answers are one question.

    The answer is right if any verdict is 1.
    """
    golds = judge_references(rollout.gold)
    question, time = rollout.question or "", rollout.query_time
    return tuple(
        JudgeQuestion("outcome", question, answer, (gold,), query_time=time) for gold in golds
    )
