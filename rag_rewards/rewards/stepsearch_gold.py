"""The gold documents of a question, and their comparison with the results of searches."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from rag_rewards.documents import Document, Result
from rag_rewards.errors import DataError
from rag_rewards.rollout import Rollout, canonical
from rag_rewards.text.normalize import squad
from rag_rewards.text.tfidf import References, counts


class GoldTexts:
    """Similarities of results to gold documents, each of which is computed once a batch."""

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
            if not any(map(self._squad, rollout.gold_documents)):
                raise DataError("contains no text", "gold_documents")
            return rollout.gold_documents
        if rollout.supporting is None:
            raise DataError("missing: add their texts, or the field supporting", "gold_documents")
        documents = dict(zip(rollout.labels, rollout.documents or (), strict=True))
        labels = gold_labels(rollout)
        return tuple(_text(documents[each]) if each in documents else "" for each in labels)

    def similarities(self, result: Result, gold: tuple[str, ...]) -> list[float]:
        """Return the cosine of a result to each gold document."""
        text = _text(result)
        key = text, gold
        if key not in self._similarities:
            references = self._references.get(gold)
            if references is None:
                references = References([counts(self._squad(each)) for each in gold])
                self._references[gold] = references
            self._similarities[key] = references.cosines(counts(self._squad(text)))
        return self._similarities[key]

    def identity(self, result: Result) -> Hashable:
        """Return what identifies a result: its id, or its normalized text.

        >>> texts = GoldTexts()
        >>> texts.identity(Result(text="The Seine.")) == texts.identity(Result(text="the seine"))
        True
        """
        if result.id is not None:
            return canonical(result.id)
        return "", self._squad(_text(result))

    def _squad(self, text: str) -> str:
        if text not in self._normal:
            self._normal[text] = squad(text)
        return self._normal[text]


def _text(document: Document) -> str:
    return f"{document.title}\n{document.text}" if document.title else document.text


def gold_labels(rollout: Rollout) -> tuple[str, ...]:
    """Return the labels of the supporting documents; those that no search found keep their id.

    Raises DataError if there is none.
    """
    if not rollout.supporting:
        what = "missing" if rollout.supporting is None else "contains no document"
        raise DataError(f"{what}: name the gold documents", "supporting")
    return rollout.supporting_labels


def gold_and_found(
    rollout: Rollout, searches: Sequence[Sequence[Result]]
) -> tuple[tuple[str, ...], list[set[str]]]:
    """Return the gold documents, and the results of each search, by what identifies them.

    With `supporting`, these are labels. A row without it has the texts `gold_documents`, which are
    compared with the normalized texts of the results. Raises DataError if there is no gold
    document.
    """
    if rollout.supporting is not None or rollout.gold_documents is None:
        return gold_labels(rollout), _found_labels(rollout, searches)
    gold = tuple(filter(None, map(squad, rollout.gold_documents)))
    if not gold:
        raise DataError("contains no text", "gold_documents")
    return gold, [{squad(_text(result)) for result in results} for results in searches]


def _found_labels(rollout: Rollout, searches: Sequence[Sequence[Result]]) -> list[set[str]]:
    """Return the labels of the results of each search.

    A result without an id has the label of the document of the row with the same text.
    """
    by_text: dict[str, str] = {}
    for label, document in zip(rollout.labels, rollout.documents or (), strict=True):
        by_text.setdefault(squad(_text(document)), label)

    def label_of(result: Result) -> str:
        if result.id is not None:
            return rollout.label_of(result.id) or canonical(result.id)
        return by_text.get(squad(_text(result)), "")

    return [{label_of(result) for result in results} for results in searches]
