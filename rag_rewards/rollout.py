"""The typed rollout: what happened, what is known, what models said; and the score.

A `Rollout` has the same names as a row of the JSONL contract, so decoding is the constructor.
Rollouts are never changed: what is derived from one (its cut response, its gold answers) is
computed once and kept beside its fields, outside equality and pickling.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from rag_rewards.errors import DataError, EvidenceError, RolloutError, RowError
from rag_rewards.text.lazy import lazy
from rag_rewards.text.normalize import Normalizer, tokens
from rag_rewards.text.response import Response, read_response

R = TypeVar("R", bound="Rollout")
E = TypeVar("E", bound="RolloutError")
Text = str | int | float | bool
"""A gold answer as data sets write it; numbers and booleans are read as their text."""


class Document(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A retrieved document, in prompt order.

    `supports` holds one boolean per gold answer (Trust-Align's `answers_found`).
    """

    text: str
    id: str | int | None = None
    title: str | None = None
    supports: tuple[bool | int, ...] | None = None

    @property
    def premise(self) -> str:
        """The document as an entailment model reads it: "Title: t\\ntext", or the text alone."""
        return f"Title: {self.title}\n{self.text}" if self.title else self.text


class Message(msgspec.Struct, frozen=True):
    """One chat message. Content may be text, or a list of parts of which text counts."""

    role: str
    content: str | list[dict[str, Any]] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            parts = (part.get("text") for part in self.content if part.get("type") == "text")
            return "".join(part for part in parts if isinstance(part, str))
        return self.content or ""


class LogProbs(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Natural-log probabilities of the response's tokens, in nats.

    `full` has one value per response token under the full context; `without[d]` the same with
    document `d` left out. `answer_span` is the half-open token range of the answer.
    """

    full: tuple[float, ...]
    without: dict[str, tuple[float, ...] | None] = {}
    answer_span: tuple[int, int] | None = None


class MaskedAnswers(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """LEAR's answers, generated from contexts with parts masked out."""

    rationale: str | None = None
    evidence: str | None = None


class MaskedLogProbs(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Per gold alias (in the order of `answers`), its token log-probabilities, in nats."""

    rationale: tuple[tuple[float, ...], ...] | None = None
    evidence: tuple[tuple[float, ...], ...] | None = None
    full: tuple[tuple[float, ...], ...] | None = None


class Entailment(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The probability, 0 to 1, that a premise entails a hypothesis."""

    premise: str
    hypothesis: str
    entailment: float


class Similarity(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The similarity, 0 to 1, of a text to a reference."""

    text: str
    reference: str
    similarity: float


class Evidence(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What models said about a rollout. Where a field is present no model is asked."""

    logprobs: LogProbs | None = None
    masked_answers: MaskedAnswers | None = None
    masked_logprobs: MaskedLogProbs | None = None
    verdicts: dict[str, Literal[0, 1] | None] | None = None
    nli: tuple[Entailment, ...] | None = None
    similarity: tuple[Similarity, ...] | None = None


EVIDENCE_FIELDS: tuple[str, ...] = Evidence.__struct_fields__


class Rollout(Evidence, frozen=True, kw_only=True, dict=True):
    """One response of a policy, with what is known and what models said about it.

    >>> r = Rollout(question="Capital of France?", response="<answer>Paris</answer>",
    ...             answers=["Paris", "City of Paris"])
    >>> r.gold
    (('Paris', 'City of Paris'),)
    """

    response: str | list[Message]
    id: str | int | None = None
    group: str | int | None = None
    question: str | None = None
    query_time: str | None = None
    documents: tuple[Document, ...] | None = None
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

    @lazy
    def parsed(self) -> Response:
        """The response, cut once. Of several assistant messages the last is the response."""
        text = self.response
        if not isinstance(text, str):
            said = [message.text for message in text if message.role == "assistant"]
            if not said:
                raise RowError("no assistant message among the messages", "response")
            text = said[-1]
        return read_response(self.response_prefix + text if self.response_prefix else text)

    @lazy
    def key(self) -> str | None:
        """The group this rollout belongs to: `group`, else the question."""
        return str(self.group) if self.group is not None else self.question

    @lazy
    def gold(self) -> tuple[tuple[str, ...], ...]:
        """Required answers, each with its aliases. DataError when there is none."""
        required = _gold(self.answers)
        if not required:
            what = "missing" if self.answers is None else "no answer in it"
            raise DataError(what, "answers")
        return required

    @lazy
    def _in_order(self) -> bool:
        """Documents without ids, or with ids 1, 2, 3 …: most are, and need no lookup table."""
        ids = [document.id for document in self.documents or ()]
        return ids == list(range(1, len(ids) + 1)) or ids.count(None) == len(ids)

    @lazy
    def labels(self) -> tuple[str, ...]:
        """What the prompt calls each document: its id when a whole number, else its position."""
        if self._in_order:
            return tuple(map(str, range(1, len(self.documents or ()) + 1)))
        labels: list[str] = []
        for position, document in enumerate(self.documents or (), start=1):
            label = canonical(document.id) if document.id is not None else str(position)
            labels.append(label if label.isdigit() and label.isascii() else str(position))
        if len(set(labels)) < len(labels):
            first = {label: i for i, label in reversed(list(enumerate(labels)))}
            at = next(i for i, label in enumerate(labels) if first[label] < i)
            raise DataError(f"two documents are labelled {labels[at]}", f"documents[{at}].id")
        return tuple(labels)

    @lazy
    def _by_reference(self) -> dict[str, str]:
        """Id or label of a document → its label; ids win."""
        names = dict(zip(self.labels, self.labels, strict=True))
        if not self._in_order:
            for label, document in zip(self.labels, self.documents or (), strict=True):
                if document.id is not None:
                    names[canonical(document.id)] = label
        return names

    def label_of(self, reference: str | int) -> str | None:
        """The label of the document that an id or a label names, None when there is none.

        Rows without documents (a trainer may send none) know their documents by label alone.
        """
        if not self.documents:
            return canonical(reference)
        if type(reference) is int and self._in_order:
            return str(reference) if 0 < reference <= len(self.documents) else None
        return self._by_reference.get(canonical(reference))

    @lazy
    def supporting_labels(self) -> tuple[str, ...]:
        """Labels of D+, each once. DataError when `supporting` is absent or names no document."""
        if self.supporting is None:
            raise DataError("missing", "supporting")
        labels: dict[str, None] = {}
        for i, reference in enumerate(self.supporting):
            label = self.label_of(reference)
            if label is None:
                known = ", ".join(self.labels)
                raise DataError(
                    f"{reference!r} names no document (documents: {known})", f"supporting[{i}]"
                )
            labels[label] = None
        return tuple(labels)

    @lazy
    def _entailed(self) -> dict[tuple[str, str], float]:
        pairs = {}
        for i, item in enumerate(self.nli or ()):
            if not 0.0 <= item.entailment <= 1.0:
                raise EvidenceError(
                    f"a probability is 0 to 1, found {item.entailment}", f"nli[{i}].entailment"
                )
            pairs[item.premise.strip(), item.hypothesis.strip()] = item.entailment
        return pairs

    def entailment(self, premise: str, hypothesis: str) -> float | None:
        """P(premise entails hypothesis), None when nobody asked a model yet."""
        return self._entailed.get((premise.strip(), hypothesis.strip()))

    @lazy
    def _similar(self) -> dict[tuple[str, str], float]:
        pairs = {}
        for i, item in enumerate(self.similarity or ()):
            if not math.isfinite(item.similarity):
                raise EvidenceError(
                    f"not a finite number: {item.similarity}", f"similarity[{i}].similarity"
                )
            pairs[item.text.strip(), item.reference.strip()] = item.similarity
        return pairs

    def similarity_to(self, text: str, reference: str) -> float | None:
        """Similarity of a text to a reference, None when nobody asked a model yet."""
        return self._similar.get((text.strip(), reference.strip()))

    def verdict(self, component: str) -> int | None:
        """A judge's 0 or 1 on a component, None when nobody asked a judge yet."""
        return self.verdicts.get(component) if self.verdicts else None

    @property
    def evidence(self) -> Evidence:
        """What models said, alone."""
        return Evidence(**{name: getattr(self, name) for name in EVIDENCE_FIELDS})

    def with_evidence(self: R, evidence: Evidence) -> R:
        """A rollout with these evidence fields; fields that are None leave what was there."""
        new = {name: getattr(evidence, name) for name in EVIDENCE_FIELDS}
        return msgspec.structs.replace(self, **{k: v for k, v in new.items() if v is not None})


class Score(msgspec.Struct, frozen=True, gc=False):
    """A finite float, or "not scored" (None). Never NaN, never 0 for something that broke.

    `components` and `correct` are filled by recipes, `details` by whoever parsed something
    worth showing.
    """

    value: float | None
    components: Mapping[str, float | None] = {}
    correct: float | None = None
    details: Mapping[str, Any] = {}

    def __post_init__(self) -> None:
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError(f"a score is finite or None, not {self.value}")


ScoreOrError = Score | RolloutError
"""What scoring a rollout gives: its score, or the reason why it has none."""


def with_row_id(error: E, rollout: Rollout) -> E:
    """Return the error with the id of the rollout that it is about, and without its frames."""
    if error.row is None and rollout.id is not None:
        error.row = str(rollout.id)
    return error.with_traceback(None)


def canonical(reference: str | int) -> str:
    """Integers and their text are the same: 7, "7" and "07" are "7"."""
    if isinstance(reference, int):
        return str(reference)
    text = reference.strip()
    if text.isascii() and text.isdigit():
        return text.lstrip("0") or "0"
    return text


def gold_text(value: Text) -> str:
    """Numbers and booleans as text: 1969 → "1969", true → "yes"."""
    if value is True:
        return "yes"
    if value is False:
        return "no"
    return value if isinstance(value, str) else str(value)


class GoldTokens(NamedTuple):
    """The tokens of each alias, and all of them."""

    aliases: tuple[list[str], ...]
    known: frozenset[str]


class GoldForms:
    """Gold answers in a normaliser's form, each computed once for all the rollouts of a batch."""

    def __init__(self, normalize: Normalizer) -> None:
        self.normalize = normalize
        self._known: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._plain: dict[tuple[tuple[str, ...], ...], tuple[str, ...] | None] = {}
        self._tokens: dict[tuple[str, ...], GoldTokens] = {}

    def of(self, aliases: tuple[str, ...]) -> tuple[str, ...]:
        found = self._known.get(aliases)
        if found is None:
            found = self._known[aliases] = tuple(map(self.normalize, aliases))
        return found

    def plain(self, required: tuple[tuple[str, ...], ...]) -> tuple[str, ...] | None:
        """The aliases' forms in the usual case: one required answer, no form of it empty."""
        try:
            return self._plain[required]
        except KeyError:
            forms = self.of(required[0])
            found = forms if len(required) == 1 and "" not in forms else None
            self._plain[required] = found
            return found

    def tokens_of(self, aliases: tuple[str, ...]) -> GoldTokens:
        found = self._tokens.get(aliases)
        if found is None:
            forms = zip(self.of(aliases), aliases, strict=True)
            cut = tuple([tokens(form or alias.casefold()) for form, alias in forms])
            found = self._tokens[aliases] = GoldTokens(cut, frozenset().union(*cut))
        return found


def _gold(answers: Any) -> tuple[tuple[str, ...], ...]:
    if answers is None:
        return ()
    if isinstance(answers, list):
        try:  # the usual case: a flat list of strings
            flat = tuple([alias for alias in answers if alias.strip()])
            return (flat,) if flat else ()
        except AttributeError:
            pass
    items = answers if isinstance(answers, (list, tuple)) else [answers]
    if any(isinstance(item, (list, tuple)) for item in items):
        if not all(isinstance(item, (list, tuple)) for item in items):
            raise RowError("either aliases or lists of aliases, not both", "answers")
        required = [[gold_text(alias) for alias in item] for item in items]
        for i, aliases in enumerate(required):
            if not any(alias.strip() for alias in aliases):
                raise DataError("no answer in it", f"answers[{i}]")
    else:
        required = [[gold_text(alias) for alias in items]]
    kept = [tuple([alias for alias in aliases if alias.strip()]) for aliases in required]
    return tuple([aliases for aliases in kept if aliases])
