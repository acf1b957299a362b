"""Correctness of the answer: exact, substring or lenient match, F1, a judge, or a cascade."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from rag_rewards.evidence.needs import Need, VerdictNeed, unmet
from rag_rewards.evidence.protocols import JudgeQuestion
from rag_rewards.matching.lenient import lenient_matches
from rag_rewards.rewards.answer_decision import Ask, Decision, Undecided, decide_answer
from rag_rewards.rewards.answer_list import list_match
from rag_rewards.rollout import Rollout, Score
from rag_rewards.settings import check_choices
from rag_rewards.text.citations import compiled, strip_markers
from rag_rewards.text.gold_forms import GoldForms, GoldTokens
from rag_rewards.text.normalize import Normalizer, NormalizerName, normalizer, squad, tokens
from rag_rewards.text.sections import Tags
from rag_rewards.text.statements import sentences

Metric = Literal["exact", "substring", "f1", "lenient", "judge", "cascade"]
Reads = Literal["answer", "response", "final"]
Compare = Callable[[str, str, str, str], float]
"""(normalized prediction, normalized gold, prediction, gold) → 0 to 1."""


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
    precision, recall = common / len(prediction), common / len(gold)
    return 2 * precision * recall / (precision + recall)


Required = tuple[tuple[str, ...], ...]
_COMPARE: dict[str, Compare] = {"exact": _exact, "substring": _substring, "f1": _f1}


@dataclass(frozen=True)
@check_choices
class AnswerMatch:
    """Compares the answer of a response with the gold answers of its row. Range 0 to 1.

    metric  `exact`, `substring`, `f1`, `lenient`, `judge` or `cascade`. The best alias counts. With
            several required answers, `f1` is the mean, and the others require all of them.
            `lenient` guesses where `matching.decide` leaves the answer undecided, see
            `matching.lenient`; the details contain the rule. A policy can exploit it. `cascade`:
            `matching.decide` decides, and a judge where it leaves the answer undecided
    reads   `answer`: the answer section; `response`: the response without its thinking, but with
            its tags, which are words; `final`: the answer section, or the last statement if there
            is none
    undecided  `match`: the metric alone decides; `wrong` and `judge`: `matching.decide` decides in
            place of `exact`, `substring` and `f1`, with 1 for a right answer. An answer that it
            leaves undecided is wrong, or is left to a judge
    ask     `cascade`, or undecided=`judge`: answers that a judge decides on, see `Ask`
    extra   `exact` with several required answers: the answer is a comma-separated list, which may
            contain other items (`allow`) or not (`reject`)
    tags    section names of the output form

    Raises DataError for a row without gold answers, or without a verdict that it needs.

    >>> AnswerMatch()([Rollout(response="<answer>Paris.</answer>", answers="Paris")])[0].value
    1.0
    """

    name: str = "accuracy"
    metric: Metric = "exact"
    normalizer: NormalizerName = "squad"
    fold_accents: bool = False
    numbers: bool = False
    dates: bool = False
    reads: Reads = "answer"
    undecided: Undecided = "match"
    extra: Literal["allow", "reject"] = "allow"
    tags: Tags = Tags(("answer",))
    scope: Literal["rollout"] = "rollout"
    ask: Ask = "undecided"

    def needs(self, rollout: Rollout) -> list[Need]:
        return self.needs_of(rollout, self.read(rollout)) if self._can_ask else []

    def needs_of(self, rollout: Rollout, answer: str | None) -> list[Need]:
        """Return the verdict that an answer needs, if a judge decides on it."""
        text = (answer or "").strip()
        if not self._can_ask or not text:
            return []
        if self.metric != "judge" and not self.decide(rollout, answer).is_judged:
            return []
        gold = judge_references(rollout.gold)
        question = JudgeQuestion("accuracy", rollout.question or "", text, gold)
        return [VerdictNeed(self.name, (question,))]

    @cached_property
    def is_decided(self) -> bool:
        """Whether `matching.decide` decides on the answer."""
        is_compared = self.metric in ("exact", "substring", "f1")
        return self.metric == "cascade" or (is_compared and self.undecided != "match")

    @property
    def _can_ask(self) -> bool:
        """Whether a judge can decide on an answer."""
        return self.metric in ("judge", "cascade") or (
            self.is_decided and self.undecided == "judge"
        )

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        forms = GoldForms(self.normalize)
        return [self._score(rollout, forms) for rollout in rollouts]

    @property
    def normalize(self) -> Normalizer:
        return normalizer(
            self.normalizer,
            fold_accents=self.fold_accents,
            numbers=self.numbers,
            dates=self.dates,
            spellings=self.metric == "exact",
        )

    def read(self, rollout: Rollout) -> str | None:
        """Return the text that is compared, or None if the response has none."""
        response = rollout.parsed
        if self.reads == "response":
            return response.visible
        answer = response.cut(self.tags).content.get("answer")
        if answer is not None or self.reads == "answer":
            return answer
        if "answer" in response.cut(self.tags).repeated:
            return None
        if len(rollout.gold) > 1:
            return response.visible  # several answers can be in several statements
        return _last_statement(response.visible)

    def _score(self, rollout: Rollout, forms: GoldForms) -> Score:
        if self.is_decided:
            return self._decided_score(rollout, forms)
        if self.metric == "lenient":
            return self._lenient_score(rollout)
        if self.reads == "answer":
            answer = rollout.parsed.answer(self.tags, forms.normalize)
            value = self._value(rollout, answer.text, answer.normal, forms)
            return Score(value, details={"answer": answer.text})
        value = self.value_of(rollout, self.read(rollout), forms)
        return _RIGHT if value == 1.0 else Score(value)

    def _lenient_score(self, rollout: Rollout) -> Score:
        text = self.read(rollout) or ""
        matches = lenient_matches(text, rollout.gold, rollout.question or "")
        details = {"answer": text, "matches": [match._asdict() for match in matches]}
        return Score(float(all(matches)), details=details)

    def _decided_score(self, rollout: Rollout, forms: GoldForms) -> Score:
        text = self.read(rollout)
        value, decision = self.decided_value(rollout, text, forms)
        return Score(value, details={"answer": text, **decision})

    def decide(self, rollout: Rollout, text: str | None) -> Decision:
        """Return the decision on a text as the answer."""
        return decide_answer(text, rollout, judge=self._can_ask, ask=self.ask)

    def decided_value(
        self, rollout: Rollout, text: str | None, forms: GoldForms
    ) -> tuple[float, dict[str, Any]]:
        """Return `value_of` and the details of the decision on the text, if there is one."""
        if not self.is_decided:
            return self.value_of(rollout, text, forms), {}
        decision = self.decide(rollout, text)
        return float(decision.is_right(rollout, self.name)), decision.details

    def value_of(self, rollout: Rollout, text: str | None, forms: GoldForms) -> float:
        """Return the value of a text as the answer of a rollout, 0 to 1."""
        if self.is_decided:
            return self.decided_value(rollout, text, forms)[0]
        normal = None if not text or text.isspace() else forms.normalize(text)
        return self._value(rollout, text, normal, forms)

    def _value(
        self, rollout: Rollout, text: str | None, normal: str | None, forms: GoldForms
    ) -> float:
        required, metric = rollout.gold, self.metric
        if text is None or normal is None:
            return 0.0
        if metric not in _COMPARE:
            return self._decided(rollout, text)
        if (golds := forms.plain(required)) is None:
            return self._compare(rollout, text, required, forms.normalize)
        if metric == "exact":
            return 1.0 if normal in golds else 0.0
        if metric == "f1":
            return best_f1(normal, forms.tokens_of(required[0]))
        for gold in golds:
            if gold in normal:
                return 1.0
        return 0.0

    def _decided(self, rollout: Rollout, text: str) -> float:
        """Return the value by lenient rules or a verdict."""
        if self.metric == "lenient":
            return float(all(lenient_matches(text, rollout.gold, rollout.question or "")))
        verdict = rollout.verdict(self.name)
        if verdict is None:
            raise unmet(VerdictNeed(self.name))
        return float(verdict)

    def _compare(
        self,
        rollout: Rollout,
        text: str,
        required: tuple[tuple[str, ...], ...],
        normalize: Normalizer,
    ) -> float:
        """Return the value in the rarer cases.

        These are several required answers, and a gold answer without a word.
        """
        if self.metric == "exact" and len(required) > 1:
            return float(bool(list_match(text, required, normalize, extra=self.extra)))
        best = [_best(_COMPARE[self.metric], text, aliases, normalize) for aliases in required]
        return math.fsum(best) / len(required) if self.metric == "f1" else min(best)


_RIGHT = Score(1.0)


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


def _last_statement(text: str) -> str | None:
    """Return the last sentence with content, without markers, or None."""
    bare = strip_markers(text, compiled())
    return next((s.strip() for s in reversed(sentences(bare)) if _has_content(s)), None)


def _has_content(sentence: str) -> bool:
    """Return whether a sentence contains words other than the heading of a list of sources."""
    words = squad(sentence).split()
    return bool(set(words) - _HEADINGS) or (not words and any(map(str.isalnum, sentence)))


_HEADINGS = frozenset(
    "sources source references reference citations citation see documents document also".split()
)
