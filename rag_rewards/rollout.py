"""`Rollout`, a typed row with its evidence, and `Score`.

The fields of a rollout have the names of the row's fields. Rollouts are immutable. Values that are
derived from a rollout, such as its parsed response, are computed once and cached outside equality
and pickling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, Literal, TypeVar

import msgspec

from rag_rewards.errors import DataError, EvidenceError, RolloutError, RowError
from rag_rewards.evidence.values import EVIDENCE_FIELDS as EVIDENCE_FIELDS
from rag_rewards.evidence.values import AliasLogProbs as AliasLogProbs
from rag_rewards.evidence.values import Criterion as Criterion
from rag_rewards.evidence.values import Entailment as Entailment
from rag_rewards.evidence.values import Evidence as Evidence
from rag_rewards.evidence.values import LogProbs as LogProbs
from rag_rewards.evidence.values import MaskedAnswers as MaskedAnswers
from rag_rewards.evidence.values import MaskedLogProbs as MaskedLogProbs
from rag_rewards.evidence.values import Similarity as Similarity
from rag_rewards.evidence.values import StoredVerdict
from rag_rewards.evidence.values import TurnLogProbs as TurnLogProbs
from rag_rewards.text.lazy import lazy
from rag_rewards.text.response import Response, read_response
from rag_rewards.turns.trajectory import (
    READING,
    Reading,
    Trajectory,
    can_have_results,
    distinct,
    read_trajectory,
)
from rag_rewards.turns.turn import Document as Document
from rag_rewards.turns.turn import DocumentOrText, Result, Turn, TurnRow, check_texts, check_turns
from rag_rewards.turns.turn import Message as Message

R = TypeVar("R", bound="Rollout")
E = TypeVar("E", bound="RolloutError")
Text = str | int | float | bool
"""A gold answer as data sets write it; numbers and booleans are read as their text."""


def canonical(reference: str | int) -> str:
    """Return the text of a reference to a document: 7, "7" and "07" become "7"."""
    if isinstance(reference, int):
        return str(reference)
    text = reference.strip()
    if text.isascii() and text.isdigit():
        return text.lstrip("0") or "0"
    return text


_NO_RESPONSE: Any = msgspec.UNSET
"""The value of `response` until the last turn replaces it."""


class Rollout(Evidence, frozen=True, kw_only=True, dict=True):
    """One response of a policy, with its question, documents, gold data and evidence.

    >>> r = Rollout(question="Capital of France?", response="<answer>Paris</answer>",
    ...             answers=["Paris", "City of Paris"])
    >>> r.gold
    (('Paris', 'City of Paris'),)
    """

    response: str | list[Message] = _NO_RESPONSE
    turns: tuple[TurnRow, ...] | None = None
    id: str | int | None = None
    group: str | int | None = None
    question: str | None = None
    query_time: str | None = None
    documents: tuple[DocumentOrText, ...] | None = None
    response_prefix: str | None = None
    finish_reason: str | None = None
    prompt: str | list[dict[str, Any]] | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    response_token_ids: tuple[int, ...] | None = None
    step: int | None = None
    split: str | None = None
    weight_version: str | int | None = None
    supporting: tuple[str | int, ...] | None = None
    answers: Text | list[Text | list[Text]] | None = None
    answer_kind: Literal["short", "list", "claims"] | None = None
    answerable: bool | None = None
    out_of_knowledge: bool | None = None
    rubrics: tuple[str, ...] | None = None
    search_keys: tuple[tuple[str, ...], ...] | None = None
    gold_documents: tuple[str, ...] | None = None
    rubric: tuple[Criterion, ...] | None = None

    def __post_init__(self) -> None:
        if self.documents and str in map(type, self.documents):
            msgspec.structs.force_setattr(self, "documents", tuple(map(_document, self.documents)))
        if self.turns is not None:
            self._complete(self.turns)
        elif self.response is _NO_RESPONSE:
            raise TypeError("Object missing required field `response`")  # the words of msgspec
        elif self.documents is None and can_have_results(self.response):
            self._add_results()

    def _complete(self, turns: tuple[TurnRow, ...]) -> None:
        """Check the turns, and derive from them a response and documents that the row lacks."""
        check_turns(
            turns, None if self.response_token_ids is None else len(self.response_token_ids)
        )
        if self.response in (_NO_RESPONSE, "", turns[-1].text):
            msgspec.structs.force_setattr(self, "response", turns[-1].text)
        elif isinstance(self.response, str):
            check_texts(turns, self.response)
        else:
            check_texts(turns, "\n".join(message.text for message in self.response))
        if self.documents is None:
            results = distinct(item for turn in turns for item in turn.flat_results or ())
            msgspec.structs.force_setattr(self, "documents", results)

    def _add_results(self) -> None:
        """Set the documents to the results of the messages or of the transcript, if any."""
        run = self.trajectory()
        if any(turn.results is not None for turn in run.turns):
            msgspec.structs.force_setattr(self, "documents", run.results)

    @lazy
    def parsed(self) -> Response:
        """The parsed response: the last turn, the last assistant message, or the whole text."""
        text = self.response
        if self.turns is not None:
            if len(self.turns) > 1:
                return read_response(self.turns[-1].text)
            text = self.turns[0].text
        elif not isinstance(text, str):
            texts = [message.text for message in text if message.role == "assistant"]
            if not texts:
                raise RowError("the messages contain no assistant message", "response")
            text = texts[-1]
        return read_response(self.response_prefix + text if self.response_prefix else text)

    def trajectory(self, reading: Reading = READING) -> Trajectory:
        """Return the turns of the rollout with their dialect. The result is cached."""
        cache: dict[Reading, Trajectory] = self.__dict__.setdefault("_trajectories", {})
        if reading not in cache:
            cache[reading] = read_trajectory(
                self.response,
                self.turns,
                reading,
                prefix=self.response_prefix,
                finish_reason=self.finish_reason,
            )
        return cache[reading]

    def steps(self, dialect: str = "auto") -> tuple[Turn, ...]:
        """Return the turns of the rollout, from the field `turns` or from the response.

        >>> Rollout(response="<search>a</search><information></information>b").steps()[0].queries
        ('a',)
        """
        return self.trajectory(Reading(dialect)).turns

    @property
    def has_turns(self) -> bool:
        """Whether the field `turns` has several turns; the last one is then the response."""
        return self.turns is not None and len(self.turns) > 1

    @property
    def response_tokens(self) -> int | None:
        """The number of tokens of the response, or of the last turn; None if it is unknown."""
        if self.turns is None or len(self.turns) < 2:
            return None if self.response_token_ids is None else len(self.response_token_ids)
        last = self.turns[-1]
        if last.token_ids is not None:
            return len(last.token_ids)
        return None if last.token_span is None else last.token_span[1] - last.token_span[0]

    @property
    def retrieved(self) -> tuple[Result, ...]:
        """The different documents that the environment returned in any turn."""
        return self.trajectory().results

    @lazy
    def key(self) -> str | None:
        """The group of this rollout: the field `group`, or the question if it is missing."""
        return str(self.group) if self.group is not None else self.question

    @lazy
    def gold(self) -> tuple[tuple[str, ...], ...]:
        """The required answers, each with its aliases. Raises DataError if there is none."""
        answers: Any = self.answers
        if isinstance(answers, list) and answers:
            try:  # the usual case: a flat list of strings
                if all(map(str.strip, answers)):
                    return (tuple(answers),)
            except TypeError:
                pass
        required = _gold(answers)
        if not required:
            what = "missing" if self.answers is None else "contains no answer"
            raise DataError(what, "answers")
        return required

    @property
    def supporting_in_order(self) -> tuple[str, ...]:
        """The labels of the supporting documents in the order of the documents.

        A row without documents, which a trainer may send, keeps the order of `supporting`.
        """
        if not self.documents:
            return self.supporting_labels
        return tuple(label for label in self.labels if label in self.supporting_labels)

    @property
    def supported_gold(self) -> tuple[int, ...]:
        """The positions of the required answers that a document supports; all if that is unknown.

        Raises DataError if the `supports` of a document has a wrong length.

        >>> documents = [Document(text="Rome …", supports=(False, True))]
        >>> Rollout(response="", answers=[["Paris"], ["Rome"]], documents=documents).supported_gold
        (1,)
        """
        positions = range(len(self.gold))
        supports = []
        for at, document in enumerate(self.documents or ()):
            if document.supports is None:
                continue
            if len(document.supports) != len(positions):
                raise DataError(
                    f"one boolean per required answer: expected {len(positions)}, "
                    f"found {len(document.supports)}",
                    f"documents[{at}].supports",
                )
            supports.append(document.supports)
        if not supports:
            return tuple(positions)
        return tuple(i for i in positions if any(bits[i] for bits in supports))

    @property
    def gold_text(self) -> str:
        """The first alias of each required answer, separated by commas.

        >>> Rollout(response="", answers=[["Paris", "Lutetia"], ["Rome"]]).gold_text
        'Paris, Rome'
        """
        return ", ".join(aliases[0] for aliases in self.gold)

    @lazy
    def _in_order(self) -> bool:
        """Whether the documents have no ids, or the ids 1, 2, 3 …, and need no lookup table."""
        ids = [document.id for document in self.documents or ()]
        return ids == [*range(1, len(ids) + 1)] or ids.count(None) == len(ids)

    @lazy
    def labels(self) -> tuple[str, ...]:
        """The label of each document in the prompt: its id if that is a number, else its position.

        Raises DataError if two documents have the same label.
        """
        if self._in_order:
            return tuple(map(str, range(1, len(self.documents or ()) + 1)))
        labels: list[str] = []
        for position, document in enumerate(self.documents or (), start=1):
            label = canonical(document.id) if document.id is not None else str(position)
            labels.append(label if label.isdigit() and label.isascii() else str(position))
        if len(set(labels)) < len(labels):
            first = {label: i for i, label in reversed(list(enumerate(labels)))}
            at = next(i for i, label in enumerate(labels) if first[label] < i)
            raise DataError(
                f"two documents have the label {labels[at]}: give them different ids",
                f"documents[{at}].id",
            )
        return tuple(labels)

    @lazy
    def _by_reference(self) -> dict[str, str]:
        """The label of a document by its id or label. Ids take precedence."""
        names = dict(zip(self.labels, self.labels, strict=True))
        if not self._in_order:
            for label, document in zip(self.labels, self.documents or (), strict=True):
                if document.id is not None:
                    names[canonical(document.id)] = label
        return names

    def label_of(self, reference: str | int) -> str | None:
        """Return the label of the document with this id or label, or None if there is none.

        In a row without documents, which a trainer may send, every reference is a label.
        """
        if not self.documents:
            return canonical(reference)
        if type(reference) is int and self._in_order:
            return str(reference) if 0 < reference <= len(self.documents) else None
        return self._by_reference.get(canonical(reference))

    def labels_of(
        self, references: Sequence[str | int], otherwise: Callable[[str | int], str] = canonical
    ) -> list[str]:
        """Return the labels of documents, and `otherwise(reference)` where there is none."""
        count = len(self.documents) if self.documents and self._in_order else 0
        labels = []
        for reference in references:
            if type(reference) is int and 0 < reference <= count:  # as most are
                labels.append(str(reference))
            else:
                label = self.label_of(reference)
                labels.append(otherwise(reference) if label is None else label)
        return labels

    @lazy
    def supporting_labels(self) -> tuple[str, ...]:
        """The labels of the supporting documents, each once.

        A supporting document that no search of the rollout found keeps its id. Raises DataError if
        `supporting` is missing, or contains a reference to no document of a row without searches.
        """
        if self.supporting is None:
            raise DataError("missing", "supporting")
        return tuple(dict.fromkeys(self.labels_of(self.supporting, self._label_without_document)))

    def _label_without_document(self, reference: str | int) -> str:
        """Return the label of a supporting document that is not in the documents."""
        if self.has_results_as_documents:
            return canonical(reference)
        labels = ", ".join(self.labels)
        hint = "; positions count from 1" if reference in (0, "0") else ""
        raise DataError(
            f"document id {reference!r} does not exist (documents: {labels}){hint}",
            f"supporting[{(self.supporting or ()).index(reference)}]",
        )

    @property
    def has_results_as_documents(self) -> bool:
        """Whether searches found the documents, so that a supporting document can be missing."""
        if self.turns is not None:
            return True
        return all(isinstance(document, Result) for document in self.documents or ())

    @lazy
    def _nli_by_pair(self) -> dict[tuple[str, str], Entailment]:
        pairs = {}
        for i, item in enumerate(self.nli or ()):
            for name in ("entailment", "contradiction"):
                value = getattr(item, name)
                if value is not None and not 0.0 <= value <= 1.0:
                    raise EvidenceError(
                        f"a probability must be between 0 and 1, found {value}", f"nli[{i}].{name}"
                    )
            pairs[item.premise.strip(), item.hypothesis.strip()] = item
        return pairs

    def entailment(self, premise: str, hypothesis: str) -> float | None:
        """Return the probability that the premise entails the hypothesis, or None if unknown."""
        item = self._nli_by_pair.get((premise.strip(), hypothesis.strip()))
        return None if item is None else item.entailment

    def contradiction(self, premise: str, hypothesis: str) -> float | None:
        """Return the probability that the premise contradicts the hypothesis, None if unknown."""
        item = self._nli_by_pair.get((premise.strip(), hypothesis.strip()))
        return None if item is None else item.contradiction

    @lazy
    def _similar(self) -> dict[tuple[str, str], float]:
        pairs = {}
        for i, item in enumerate(self.similarity or ()):
            if not isfinite(item.similarity):
                raise EvidenceError(
                    f"not a finite number: {item.similarity}", f"similarity[{i}].similarity"
                )
            pairs[item.text.strip(), item.reference.strip()] = item.similarity
        return pairs

    def similarity_to(self, text: str, reference: str) -> float | None:
        """Return the similarity of a text to a reference, or None if unknown."""
        return self._similar.get((text.strip(), reference.strip()))

    def verdict(self, component: str) -> StoredVerdict | None:
        """Return the verdict of a judge on a component, or None if unknown."""
        return self.verdicts.get(component) if self.verdicts else None

    @property
    def evidence(self) -> Evidence:
        """The evidence of the rollout, without its other fields."""
        return Evidence(**{name: getattr(self, name) for name in EVIDENCE_FIELDS})

    def with_evidence(self: R, evidence: Evidence) -> R:
        """Return the rollout with this evidence. A field that is None does not replace another."""
        new = {name: getattr(evidence, name) for name in EVIDENCE_FIELDS}
        return msgspec.structs.replace(self, **{k: v for k, v in new.items() if v is not None})


TurnEntries = tuple[float | None, ...]
"""The rewards of the turns of a rollout, None for a turn without one; the sum is its reward."""


class Score(msgspec.Struct, frozen=True, gc=False):
    """A reward with its components and details.

    value       the reward: a finite number, or None for an unscored rollout
    components  value of each component, None for one that was not computed
    correct     whether the answer is right, 0 to 1
    details     what a reward parsed from the response, for reports
    turns       reward of each turn, None for a turn without one; the sum is the value. Empty for
                a reward of the whole response, which belongs to the last turn

    Raises ValueError for a reward that is not finite.
    """

    value: float | None
    components: Mapping[str, float | None] = {}
    correct: float | None = None
    details: Mapping[str, Any] = {}
    turns: TurnEntries = ()

    def __post_init__(self) -> None:
        if not self.turns and isfinite(self.value or 0.0):  # as most scores
            return
        for value in (self.value, *self.turns):
            if value is not None and not isfinite(value):
                raise ValueError(f"a reward must be a finite number or None, found {value}")

    def _repr_html_(self) -> str:
        """Return the score as a table for notebooks."""
        from rag_rewards.report.terminal import html, number_text, scores_table

        table = scores_table([(self.value, self.components, self.correct, "")])
        turns = ", ".join(map(number_text, self.turns))
        return html(table, f"rewards of the turns: {turns}") if turns else html(table)


ScoreOrError = Score | RolloutError
"""The result for one rollout: its score, or the reason why it has none."""


class Scores(list[ScoreOrError]):
    """A list of scores and errors, which notebooks show as a table."""

    def _repr_html_(self) -> str:
        from rag_rewards.report.terminal import html, scores_table

        rows = [
            (None, {}, None, str(each))
            if isinstance(each, RolloutError)
            else (each.value, each.components, each.correct, "")
            for each in self
        ]
        return html(scores_table(rows, [str(i) for i in range(len(rows))]))


def with_row_id(error: E, rollout: Rollout) -> E:
    """Return the error with the id of its rollout and without a traceback."""
    if error.row is None and rollout.id is not None:
        error.row = str(rollout.id)
    return error.with_traceback(None)


def gold_text(value: Text) -> str:
    """Return a gold answer as text: 1969 becomes "1969" and true becomes "yes"."""
    if value is True:
        return "yes"
    if value is False:
        return "no"
    return value if isinstance(value, str) else str(value)


def _document(document: Document | str) -> Document:
    return Document(text=document) if isinstance(document, str) else document


def _gold(answers: Any) -> tuple[tuple[str, ...], ...]:
    if answers is None:
        return ()
    items = answers if isinstance(answers, (list, tuple)) else [answers]
    if any(isinstance(item, (list, tuple)) for item in items):
        if not all(isinstance(item, (list, tuple)) for item in items):
            raise RowError("must contain either aliases or lists of aliases, not both", "answers")
        required = [[gold_text(alias) for alias in item] for item in items]
        for i, aliases in enumerate(required):
            if not any(alias.strip() for alias in aliases):
                raise DataError("contains no answer", f"answers[{i}]")
    else:
        required = [[gold_text(alias) for alias in items]]
    filled = [tuple([alias for alias in aliases if alias.strip()]) for aliases in required]
    return tuple([aliases for aliases in filled if aliases])
