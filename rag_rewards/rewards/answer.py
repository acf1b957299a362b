"""Is the answer right: exact match, substring, token F1, or a judge's verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rag_rewards.evidence.needs import Need, VerdictNeed, unmet
from rag_rewards.evidence.protocols import JudgeQuestion
from rag_rewards.rollout import GoldForms, GoldTokens, Rollout, Score
from rag_rewards.text.citations import compiled, strip_markers
from rag_rewards.text.normalize import Normalizer, NormalizerName, normalizer, squad, tokens
from rag_rewards.text.sections import Tags
from rag_rewards.text.statements import sentences
from rag_rewards.text.strict import LONGEST_ANSWER, StrictText

Metric = Literal["exact", "substring", "f1", "judge"]
Reads = Literal["answer", "response", "final"]
Compare = Callable[[str, str, str, str], float]
"""(normalised prediction, normalised gold, prediction, gold) → 0 to 1."""


def exact_match(prediction: str, aliases: Iterable[str], normalize: Normalizer = squad) -> float:
    """1 when the prediction equals an alias after normalising, else 0.

    Where an alias normalises to nothing the raw casefolded strings are compared. An empty
    prediction matches nothing. Source: SQuAD v1.1.

    >>> exact_match("the Eiffel tower!", ["Eiffel Tower"]), exact_match("", [""])
    (1.0, 0.0)
    """
    return _best(_exact, prediction, aliases, normalize)


def substring_match(
    prediction: str, aliases: Iterable[str], normalize: Normalizer = squad
) -> float:
    """1 when an alias stands somewhere in the prediction after normalising, else 0.

    Source: Search-R1's subEM; CTRL-RAG, Eq. 3.

    >>> substring_match("It is Macron.", ["Ron"])  # see `strict` for word boundaries
    1.0
    """
    return _best(_substring, prediction, aliases, normalize)


def token_f1(prediction: str, aliases: Iterable[str], normalize: Normalizer = squad) -> float:
    """F1 = 2PR / (P + R) over the multisets of normalised tokens; the best alias counts.

    Source: SQuAD v1.1; LEAR, Eq. 4.

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
    sought = raw_gold.strip().casefold()
    return 1.0 if sought and sought in raw.casefold() else 0.0


def _f1(prediction: str, gold: str, raw: str, raw_gold: str) -> float:
    if not gold:
        prediction, gold = raw.casefold(), raw_gold.casefold()
    return multiset_f1(tokens(prediction), tokens(gold))


def multiset_f1(prediction: Sequence[str], gold: Sequence[str]) -> float:
    """Harmonic mean of precision and recall over multisets of tokens, 0 where they share none.

    >>> multiset_f1(["a", "a", "b"], ["a", "b", "c"])
    0.6666666666666666
    """
    return _multiset_f1(prediction, set(prediction), gold)


def _multiset_f1(prediction: Sequence[str], distinct: set[str], gold: Sequence[str]) -> float:
    same = len(distinct.intersection(gold))
    if not same:
        return 0.0
    if len(distinct) < len(prediction) and len(set(gold)) < len(gold):  # both repeat a token
        same = sum((Counter(prediction) & Counter(gold)).values())
    precision, recall = same / len(prediction), same / len(gold)
    return 2 * precision * recall / (precision + recall)


Required = tuple[tuple[str, ...], ...]
_COMPARE: dict[str, Compare] = {"exact": _exact, "substring": _substring, "f1": _f1}


@dataclass(frozen=True)
class AnswerMatch:
    """A response's answer against the gold answers of its row. Range 0 to 1.

    `reads`: the answer section; the response without its thinking; or the final answer (the
    section, else the last statement). Against aliases the best counts. Of several required
    answers `exact` and `substring` need all, `f1` takes the mean; `exact` reads the answer as a
    comma-separated list then, which `extra="reject"` allows to hold no wrong item.
    `strict` (substring) asks that the answer is asserted: see `text.strict`.

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
    strict: bool = False
    extra: Literal["allow", "reject"] = "allow"
    tags: Tags = Tags(("answer",))
    scope: Literal["rollout"] = "rollout"

    def needs(self, rollout: Rollout) -> list[Need]:
        text = (self.read(rollout) or "").strip() if self.metric == "judge" else ""
        if not text:
            return []
        asked = JudgeQuestion("accuracy", rollout.question or "", text, judged_gold(rollout.gold))
        return [VerdictNeed(self.name, (asked,))]

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
        )

    def read(self, rollout: Rollout) -> str | None:
        """The text that is compared, None when the response has none."""
        response = rollout.parsed
        if self.reads == "response":
            return response.visible
        answer = response.cut(self.tags).content.get("answer")
        if answer is not None or self.reads == "answer":
            return answer
        if "answer" in response.cut(self.tags).repeated:
            return None
        if len(rollout.gold) > 1:
            return response.visible  # several answers may take several statements
        return _last_statement(response.visible)

    def _score(self, rollout: Rollout, forms: GoldForms) -> Score:
        if self.reads == "answer":
            answer = rollout.parsed.answer(self.tags, forms.normalize)
            text, normal = answer.text, answer.normal
            value = self._value(rollout, text, normal, forms)
            return Score(value, details={"answer": text})
        value = self.value_of(rollout, self.read(rollout), forms)
        return _RIGHT if value == 1.0 else Score(value)

    def value_of(self, rollout: Rollout, text: str | None, forms: GoldForms) -> float:
        """How right a text is as the rollout's answer, whoever read it. Range 0 to 1."""
        normal = None if not text or text.isspace() else forms.normalize(text)
        return self._value(rollout, text, normal, forms)

    def _value(
        self, rollout: Rollout, text: str | None, normal: str | None, forms: GoldForms
    ) -> float:
        required, metric = rollout.gold, self.metric
        if text is None or normal is None:
            return 0.0
        if self.strict or metric == "judge" or (golds := forms.plain(required)) is None:
            return self._compare(rollout, text, required, forms.normalize)
        if metric == "exact":
            return 1.0 if normal in golds else 0.0
        if metric == "f1":
            return best_f1(normal, forms.tokens_of(required[0]))
        for gold in golds:
            if gold in normal:
                return 1.0
        return 0.0

    def _compare(
        self,
        rollout: Rollout,
        text: str,
        required: tuple[tuple[str, ...], ...],
        normalize: Normalizer,
    ) -> float:
        """The rarer cases: a verdict, strict, several required answers, gold that is no word."""
        if self.metric == "judge":
            verdict = rollout.verdict(self.name)
            if verdict is None:
                raise unmet(VerdictNeed(self.name))
            return float(verdict)
        if self.metric == "substring" and self.strict:
            # What a last statement asserts, the statements before it must not leave open.
            section = rollout.parsed.cut(self.tags).content.get("answer")
            alone = self.reads != "final" or section is not None
            if section is not None and len(section.split()) > LONGEST_ANSWER:
                return 0.0
            texts = [text] if alone else [text, rollout.parsed.visible]
            read = [StrictText(each, normalize, required) for each in texts]
            return float(all(each.contains(aliases) for aliases in required for each in read))
        if self.metric == "exact" and len(required) > 1:
            return list_match(text, required, normalize, extra=self.extra)
        best = [_best(_COMPARE[self.metric], text, aliases, normalize) for aliases in required]
        return sum(best) / len(best) if self.metric == "f1" else min(best)


_RIGHT = Score(1.0)


def best_f1(normal: str, golds: GoldTokens) -> float:
    """The best F1 of a normalised text against tokenised gold answers."""
    predicted = tokens(normal)
    distinct = set(predicted)
    if distinct.isdisjoint(golds.known):
        return 0.0
    best = 0.0
    for gold in golds.aliases:
        if predicted == gold:
            return 1.0
        f1 = _multiset_f1(predicted, distinct, gold)
        if f1 > best:
            best = f1
    return best


def judged_gold(required: Required) -> tuple[str, ...]:
    """What a judge compares with: the aliases, or several required answers as one list.

    >>> judged_gold((("Paris", "City of Paris"),)), judged_gold((("Rome",), ("UK", "Britain")))
    (('Paris', 'City of Paris'), ('all of: Rome; UK or Britain',))
    """
    if len(required) == 1:
        return required[0]
    return ("all of: " + "; ".join(" or ".join(aliases) for aliases in required),)


def _last_statement(text: str) -> str | None:
    """The last sentence that says something once its markers are gone."""
    bare = strip_markers(text, compiled())
    return next((s.strip() for s in reversed(sentences(bare)) if _says_something(s)), None)


def _says_something(sentence: str) -> bool:
    """A word, and more than the heading of a list of sources."""
    words = squad(sentence).split()
    return bool(set(words) - _HEADINGS) or (not words and any(map(str.isalnum, sentence)))


_HEADINGS = frozenset(
    "sources source references reference citations citation see documents document also".split()
)


def list_match(
    text: str,
    required: Sequence[Sequence[str]],
    normalize: Normalizer = squad,
    *,
    extra: Literal["allow", "reject"] = "allow",
) -> float:
    """1 when a comma-separated list holds every required answer, else 0.

    An alias that has commas itself is sought over as many neighbouring items. `extra="reject"`
    gives 0 to a list with an item that is no required answer.

    >>> list_match("Rome, Washington, D.C.", [["Washington, D.C."], ["Rome"]])
    1.0
    """
    items = [item for item in text.split(",") if item.strip()]
    windows: dict[int, dict[str, list[int]]] = {}
    claimed: set[int] = set()
    for aliases in required:
        found = False
        for alias in aliases:
            width = alias.count(",") + 1
            if width not in windows:
                windows[width] = _windows(items, width, normalize)
            starts = windows[width].get(_form(alias, normalize), [])
            claimed.update(at for start in starts for at in range(start, start + width))
            found = found or bool(starts)
        if not found:
            return 0.0
    return 1.0 if extra == "allow" or len(claimed) == len(items) else 0.0


def _windows(items: Sequence[str], width: int, normalize: Normalizer) -> dict[str, list[int]]:
    """Where each normalised run of neighbouring items begins."""
    starts: dict[str, list[int]] = {}
    for start in range(len(items) - width + 1):
        form = _form(",".join(items[start : start + width]), normalize)
        starts.setdefault(form, []).append(start)
    return starts


def _form(text: str, normalize: Normalizer) -> str:
    """What is compared: the normal form, or the raw casefolded text where that is empty."""
    return normalize(text) or "\0" + text.strip().casefold()
