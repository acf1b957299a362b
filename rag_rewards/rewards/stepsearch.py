"""StepSearch: search keys, the information gain of each search, its redundancy, and coverage."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from rag_rewards.errors import DataError
from rag_rewards.evidence.needs import Need
from rag_rewards.reward import PartScore
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.correctness import multiset_f1
from rag_rewards.rewards.search import (
    REPEATED_ANSWER,
    RepeatedAnswer,
    answer_of,
    compared,
    details_of,
    sum_of,
)
from rag_rewards.rollout import Rollout, Score, canonical
from rag_rewards.settings import about, check_choices
from rag_rewards.text.normalize import Normalizer, squad
from rag_rewards.turns.trajectory import READING, Reading, Trajectory
from rag_rewards.turns.turn import Result

CODE = "StepSearch, authors' code at 43215ba: qa_step.py"
INFORAGE = "InForage, authors' code at fe5f0b1"
Assign = Literal["last", "best"]
Process = Literal["tfidf", "coverage"]
Values = list[float | None]


def key_score(
    queries: Sequence[str],
    keys: Sequence[Sequence[str]],
    assign: Assign = "last",
    normalize: Normalizer = squad,
) -> float:
    """Return the mean over the keys of the best F1 of a query to one of the aliases of a key.

    A query serves the key that it fits best, the first one of several. `last`: a later query of the
    same key replaces an earlier one; `best`: the greatest F1 counts. Range 0 to 1. Raises
    DataError without a key. Source: StepSearch, released code at 43215ba, qa_step.py (last).

    >>> key_score(["mayor of lyon", "jean"], [["mayor of lyon"], ["jean dupont birthplace"]])
    0.75
    """
    if not keys:
        raise DataError("contains no search key", "search_keys")
    tokens = [[normalize(alias).split() for alias in aliases] for aliases in keys]
    matched = [0.0] * len(keys)
    for query in queries:
        words = normalize(query).split()
        values = [
            max((multiset_f1(words, alias) for alias in aliases if alias), default=0.0)
            if words
            else 0.0
            for aliases in tokens
        ]
        best = max(range(len(keys)), key=values.__getitem__)
        if values[best]:
            matched[best] = values[best] if assign == "last" else max(matched[best], values[best])
    return math.fsum(matched) / len(keys)


def gains(similarities: Sequence[Sequence[Sequence[float]]], references: int) -> list[float]:
    """Return the information gain of each search.

    similarities  of each document of each search to each gold document
    references    number of gold documents

    gain_t = (1/n)·Σ_i max(c_i − m_i, 0), where c_i is the greatest similarity of a document of the
    search to the gold document i, and m_i is the greatest one of earlier searches. The sum of all
    gains is at most 1. Raises DataError without a gold document, or for a document without one
    similarity per gold document. Source: StepSearch, released code at 43215ba, qa_step.py.

    >>> [round(g, 6) for g in gains([[[0.6, 0.3]], [[0.5, 0.8], [0.1, 0.0]]], 2)]
    [0.45, 0.25]
    """
    if references < 1:
        raise DataError("contains no gold document", "gold_documents")
    for t, documents in enumerate(similarities):
        for i, values in enumerate(documents):
            if len(values) != references:
                raise DataError(
                    f"has {len(values)} values for {references} gold documents: give one for each",
                    f"similarities[{t}][{i}]",
                )
    reached = [0.0] * references
    result: list[float] = []
    for documents in similarities:
        current = [
            max((document[i] for document in documents), default=0.0) for i in range(references)
        ]
        rise = [max(now - before, 0.0) for now, before in zip(current, reached, strict=True)]
        result.append(math.fsum(rise) / references)
        reached = [max(pair) for pair in zip(current, reached, strict=True)]
    return result


def redundancies(searches: Sequence[Sequence[Hashable]]) -> list[float]:
    """Return the share of the documents of each search that an earlier result repeats.

    >>> redundancies([["d1", "d2"], ["d2", "d3"], []])
    [0.0, 0.5, 0.0]
    """
    seen: set[Hashable] = set()
    shares: list[float] = []
    for documents in searches:
        repeated = 0
        for document in documents:
            repeated += document in seen
            seen.add(document)
        shares.append(repeated / len(documents) if documents else 0.0)
    return shares


def coverage_rises(
    results: Sequence[Collection[Hashable]],
    gold: Collection[Hashable],
    of: Literal["turn", "all"] = "turn",
) -> list[float]:
    """Return how much each search raises the share of the gold documents that were found.

    results  ids of the results of each search
    of       `turn`: the share among the results of one search; `all`: among those of all searches
             so far. The rise is that of the running maximum, so that all rises sum to at most 1

    Raises DataError without a gold document. Source: InForage, qhqjhj00/InForage@fe5f0b1
    tools/llm_agent/generation.py (turn).

    >>> coverage_rises([{1}, {1}, {1, 2}], {1, 2}), coverage_rises([{1}, {2}], {1, 2})
    ([0.5, 0.0, 0.5], [0.5, 0.0])
    """
    wanted = set(gold)
    if not wanted:
        raise DataError("contains no document: name the gold documents", "supporting")
    together: set[Hashable] = set()
    best = 0.0
    rises: list[float] = []
    for ids in results:
        here = wanted.intersection(ids)
        together |= here
        share = len(here if of == "turn" else together) / len(wanted)
        rises.append(max(share - best, 0.0))
        best = max(best, share)
    return rises


def efficiency(turns: int, factor: float = 0.95) -> float:
    """Return factor^(T − 2) for T ≥ 4 turns, and 1 for fewer. Source: InForage, main_ppo.py.

    >>> efficiency(3), round(efficiency(4), 6)
    (1.0, 0.9025)
    """
    return factor ** (turns - 2) if turns >= 4 else 1.0


# --- gold documents ------------------------------------------------------------------------------


class GoldTexts:
    """Normalized texts and similarities to gold documents, each computed once in a batch."""

    def __init__(self) -> None:
        self._normal: dict[str, str] = {}
        self._references: dict[tuple[str, ...], References] = {}
        self._similarities: dict[tuple[str, tuple[str, ...]], list[float]] = {}

    def of(self, rollout: Rollout) -> tuple[str, ...]:
        """Return the gold documents: `gold_documents`, or the documents named by `supporting`.

        A supporting document that no search found has no text, so that its similarity is 0. Raises
        DataError if the row names no gold document.
        """
        if rollout.gold_documents is not None:
            if not any(map(self.normal, rollout.gold_documents)):
                raise DataError("contains no text", "gold_documents")
            return rollout.gold_documents
        if rollout.supporting is None:
            raise DataError("missing: add their texts, or the field supporting", "gold_documents")
        documents = dict(zip(rollout.labels, rollout.documents or (), strict=True))
        labels = gold_labels(rollout)
        return tuple(documents[each].titled_text if each in documents else "" for each in labels)

    def similarities(self, result: Result, gold: tuple[str, ...]) -> list[float]:
        """Return the cosine of a result to each gold document."""
        text = result.titled_text
        key = text, gold
        if key not in self._similarities:
            references = self._references.get(gold)
            if references is None:
                references = References([counts(self.normal(each)) for each in gold])
                self._references[gold] = references
            self._similarities[key] = references.cosines(counts(self.normal(text)))
        return self._similarities[key]

    def identity(self, result: Result) -> Hashable:
        """Return what identifies a result: its id, or its normalized text.

        >>> texts = GoldTexts()
        >>> texts.identity(Result(text="The Seine.")) == texts.identity(Result(text="the seine"))
        True
        """
        if result.id is not None:
            return canonical(result.id)
        return "", self.normal(result.titled_text)

    def normal(self, text: str) -> str:
        """Return a text as normalized by `squad`."""
        if text not in self._normal:
            self._normal[text] = squad(text)
        return self._normal[text]


def gold_labels(rollout: Rollout) -> tuple[str, ...]:
    """Return the labels of the supporting documents; those that no search found keep their id.

    Raises DataError if there is none.
    """
    if not rollout.supporting:
        what = "missing" if rollout.supporting is None else "contains no document"
        raise DataError(f"{what}: name the gold documents", "supporting")
    return rollout.supporting_labels


def gold_and_results(
    rollout: Rollout, searches: Sequence[Sequence[Result]]
) -> tuple[tuple[str, ...], list[set[str]]]:
    """Return the gold documents, and the results of each search, by what identifies them.

    With `supporting`, these are labels. A row without it has the texts `gold_documents`, which are
    compared with the normalized texts of the results. Raises DataError if there is no gold
    document.
    """
    if rollout.supporting is not None or rollout.gold_documents is None:
        return gold_labels(rollout), _result_labels(rollout, searches)
    gold = tuple(filter(None, map(squad, rollout.gold_documents)))
    if not gold:
        raise DataError("contains no text", "gold_documents")
    return gold, [{squad(result.titled_text) for result in results} for results in searches]


def _result_labels(rollout: Rollout, searches: Sequence[Sequence[Result]]) -> list[set[str]]:
    """Return the labels of the results of each search.

    A result without an id has the label of the document of the row with the same text.
    """
    by_text: dict[str, str] = {}
    for label, document in zip(rollout.labels, rollout.documents or (), strict=True):
        by_text.setdefault(squad(document.titled_text), label)

    def label_of(result: Result) -> str:
        if result.id is not None:
            return rollout.label_of(result.id) or canonical(result.id)
        return by_text.get(squad(result.titled_text), "")

    return [{label_of(result) for result in results} for results in searches]


# --- the reward ----------------------------------------------------------------------------------


class Steps(NamedTuple):
    """The components of each turn, None for a turn without a search, and for the last one."""

    gain: Values
    redundancy: Values


@dataclass(frozen=True)
@check_choices
class StepSearchReward:
    """The components of StepSearch's reward. The value is the answer.

    answer       F1 of the answer with the gold answers, or `bad_end`
    search_keys  score of the search keys, None with `coverage`
    gain         rise of the similarity or of the coverage by each search
    redundancy   share of results of each search that earlier ones repeat, None with `coverage`
    efficiency   factor^(T − 2) for T ≥ 4 turns

    With a bad end, all but the answer and the efficiency are None.

    answer      comparison of the answer with the gold answers
    reading     how the turns are read
    reads_keys  whether rows must have search keys

    Raises DataError for a row without gold answers, search keys or gold documents. Source:
    StepSearch, Zillwang/StepSearch@43215ba verl/utils/reward_score/qa_step.py.
    """

    process: Annotated[
        Process,
        about(
            "reward of a search; tfidf: rise of the similarity to the gold documents, minus "
            "repeated results; coverage (InForage): rise of the share of gold documents",
            f"{CODE}: tfidf",
        ),
    ] = "tfidf"
    answer: AnswerMatch = AnswerMatch("answer", metric="f1")
    reading: Reading = READING
    repeated: Annotated[RepeatedAnswer, about(*REPEATED_ANSWER, key="repeated_answer")] = "last"
    reads_keys: bool = True
    assign: Annotated[
        Assign,
        about(
            "query that counts for a search key; last: the last one that fits it; best: the one "
            "with the greatest F1",
            CODE,
            key="keys.assign",
        ),
    ] = "last"
    bad_end: Annotated[
        float,
        about("reward of a rollout without an answer, or with words after it", CODE, le=0),
    ] = -1.0
    of: Annotated[
        Literal["turn", "all"],
        about(
            "with process=coverage, results that are compared with the gold documents; turn: of "
            "one search; all: of all searches so far",
            INFORAGE,
            key="coverage.of",
        ),
    ] = "turn"
    factor: Annotated[
        float,
        about(
            "with process=coverage and T ≥ 4 turns, all rewards are multiplied by efficiency^(T−2)",
            INFORAGE,
            key="efficiency",
            ge=0,
            le=1,
        ),
    ] = 0.95
    name: str = "stepsearch_parts"
    scope: Literal["rollout"] = "rollout"

    def needs(self, rollout: Rollout) -> list[Need]:
        run = rollout.trajectory(self.reading)
        return self.answer.correctness.needs(rollout, answer_of(run, self.repeated))

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        texts = GoldTexts()
        return [self._score(rollout, texts) for rollout in rollouts]

    def _score(self, rollout: Rollout, texts: GoldTexts) -> Score:
        run = rollout.trajectory(self.reading)
        text = answer_of(run, self.repeated)
        value, correct, decision = compared(self.answer, rollout, text)
        value = round(value, 4)
        keys = self._keys(rollout, run, texts)
        steps = self._steps(rollout, run, texts)
        turns = len(run.turns)
        rate = efficiency(turns, self.factor)
        if self._is_bad_end(run, text, value):
            value, correct, keys, rate = self.bad_end, 0.0, None, 1.0
            steps = Steps([None] * turns, [None] * turns)
        per_turn = steps._asdict()
        components = {
            "answer": value,
            "search_keys": keys,
            "gain": sum_of(steps.gain),
            "redundancy": sum_of(steps.redundancy),
            "efficiency": rate,
        }
        details = details_of(run, text, per_turn) | decision
        entries = {name: tuple(values) for name, values in per_turn.items()}
        return PartScore(value, components, correct, details, entries=entries)

    def _is_bad_end(self, run: Trajectory, text: str | None, value: float) -> bool:
        """Return whether there is no answer, or whether words follow it.

        If rules decide on the answer, a wrong one without content is no answer.
        """
        if not text or text.isspace() or "text_after_answer" in run.turns[-1].malformed:
            return True
        return self.answer.undecided != "match" and not value and not self.answer.normalize(text)

    def _keys(self, rollout: Rollout, run: Trajectory, texts: GoldTexts) -> float | None:
        """Return the score of the search keys, None if the reward does not read it."""
        if self.process == "coverage" or not self.reads_keys:
            return None
        if not rollout.search_keys:
            raise DataError(
                "missing: list the aliases of each search key, or set keys.weight=0", "search_keys"
            )
        for i, aliases in enumerate(rollout.search_keys):
            if not any(map(texts.normal, aliases)):
                raise DataError("contains no search key with a word", f"search_keys[{i}]")
        queries = [query for turn in run.turns for query in turn.queries]
        return key_score(queries, rollout.search_keys, self.assign, texts.normal)

    def _steps(self, rollout: Rollout, run: Trajectory, texts: GoldTexts) -> Steps:
        """Return the components of the searches before the last turn."""
        at = [t for t, turn in enumerate(run.turns[:-1]) if turn.is_search]
        searches = [run.turns[t].results or () for t in at]
        steps = Steps([None] * len(run.turns), [None] * len(run.turns))
        if self.process == "coverage":
            gold, results = gold_and_results(rollout, searches)
            for t, rise in zip(at, coverage_rises(results, gold, self.of), strict=True):
                steps.gain[t] = rise
            return steps
        gold_texts = texts.of(rollout)
        similar = [[texts.similarities(result, gold_texts) for result in each] for each in searches]
        repeated = redundancies([[texts.identity(result) for result in each] for each in searches])
        for t, gain, share in zip(at, gains(similar, len(gold_texts)), repeated, strict=True):
            steps.gain[t], steps.redundancy[t] = gain, share
        return steps


_WORD = re.compile(r"\b\w\w+\b")


def counts(text: str) -> Counter[str]:
    """Return the number of occurrences of each token: two or more word characters.

    >>> counts("Paris, a paris")
    Counter({'paris': 2})
    """
    text = text.lower()
    words = text.split()
    if "".join(words).isalnum():  # a word boundary is then white space
        return Counter([word for word in words if len(word) > 1])
    return Counter(_WORD.findall(text))


class References:
    """The references of a TF-IDF space, to which texts are compared one by one.

    The space of a text is fitted on the text and the references. The weight of a token is its count
    times ln((1 + N)/(1 + df)) + 1, where N is the number of texts and df is the number of texts
    with this token.

    All references with k of the same tokens share a weight, so that the norms and the products are
    sums of integers by k, times the weights. Only the tokens that a text shares with a reference
    are visited, and the result does not depend on their order.
    """

    def __init__(self, references: Sequence[Mapping[str, int]]) -> None:
        frequency = Counter(token for each in references for token in each)
        self._size = len(references)
        # For each token: the number of references with it, and their positions with their counts.
        self._tokens: dict[str, tuple[int, list[tuple[int, int]]]] = {}
        self._squares = [[0] * (self._size + 1) for _ in references]
        for i, reference in enumerate(references):
            for token, count in reference.items():
                k = frequency[token]
                self._tokens.setdefault(token, (k, []))[1].append((i, count))
                self._squares[i][k] += count * count
        n = self._size + 1
        # The squared weight of a token in df of the texts.
        self._weights = [(math.log((1 + n) / (1 + df)) + 1) ** 2 for df in range(n + 1)]

    def cosines(self, text: Mapping[str, int]) -> list[float]:
        """Return the cosine of a text to each reference, 0 to 1; 0 without a common token.

        >>> gold = References([counts("paris capital"), counts("lyon river")])
        >>> [round(c, 6) for c in gold.cosines(counts("paris capital france"))]
        [0.732359, 0.0]
        """
        size, weights = self._size, self._weights
        own = [0] * (size + 1)  # squared counts in the text of the common tokens, by k
        common = [[0] * (size + 1) for _ in range(size)]  # the same in each reference
        products = [[0] * (size + 1) for _ in range(size)]
        for token in self._tokens.keys() & text.keys():
            k, places = self._tokens[token]
            count = text[token]
            own[k] += count * count
            for i, other in places:
                common[i][k] += other * other
                products[i][k] += count * other
        alone = sum([count * count for count in text.values()]) - sum(own)
        norm = alone * weights[1] + math.fsum([own[k] * weights[k + 1] for k in range(1, size + 1)])
        cosines = []
        for total, shared, product in zip(self._squares, common, products, strict=True):
            dot = squares = 0.0
            for k in range(1, size + 1):
                dot += product[k] * weights[k + 1]
                squares += (total[k] - shared[k]) * weights[k] + shared[k] * weights[k + 1]
            cosines.append(min(1.0, dot / math.sqrt(norm * squares)) if dot else 0.0)
        return cosines
