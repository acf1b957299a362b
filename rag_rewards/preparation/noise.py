"""Noise: documents unrelated to a question, from other rows or from a corpus."""

from __future__ import annotations

import random
from collections.abc import Iterable

import msgspec

from rag_rewards.datasets.gold import Gold, Problem, generator, normal_answers
from rag_rewards.datasets.records import Records
from rag_rewards.errors import UsageError
from rag_rewards.rollout import Document
from rag_rewards.text.gold_forms import contains_answer
from rag_rewards.text.normalize import squad

POOL_SIZE = 10_000
"""Size of the sample of documents."""
_TRIES = 50
"""Draws per document of noise before giving up."""


class NoisePool:
    """A uniform sample of the documents that are offered."""

    def __init__(self, seed: int, size: int = POOL_SIZE) -> None:
        self._random = generator(seed, "pool")
        self._size = size
        self._offered = 0
        self._documents: list[Document] = []
        self._normalized: dict[int, str] = {}

    def offer(self, documents: Iterable[Document]) -> None:
        """Add documents to the population of the sample."""
        for document in documents:
            self._offered += 1
            if len(self._documents) < self._size:
                self._documents.append(document)
            elif (at := self._random.randrange(self._offered)) < self._size:
                self._documents[at] = document

    def sample(self, gold: Gold, count: int, rng: random.Random) -> list[Document] | Problem:
        """Return `count` documents with other titles and without a gold answer, or the problem."""
        forms = [form for aliases in normal_answers(gold) for form in aliases]
        titles = {document.title for document in gold.documents if document.title}
        own = {document.text for document in gold.documents}
        drawn: list[Document] = []
        size = len(self._documents)
        for _ in range(count * _TRIES if size else 0):
            at = rng.randrange(size)
            document = self._documents[at]
            if (
                document.title in titles
                or document.text in own
                or contains_answer(self._text(at), forms)
            ):
                continue
            drawn.append(Document(text=document.text, title=document.title))
            own.add(document.text)
            if len(drawn) == count:
                return drawn
        return Problem("too few documents for noise", f"{len(drawn)} of {count}")

    def _text(self, at: int) -> str:
        """The normalized text of a document, computed at its first use."""
        if at not in self._normalized:
            self._normalized[at] = squad(self._documents[at].text)
        return self._normalized[at]


class _Contents(msgspec.Struct):
    """A passage of a corpus. In Search-R1 `contents` starts with the title in quotation marks."""

    contents: str = ""
    text: str = ""
    title: str | None = None

    @property
    def document(self) -> Document | None:
        title, newline, text = self.contents.partition("\n")
        if not self.contents:
            return Document(text=self.text, title=self.title) if self.text else None
        if not newline:
            return Document(text=title)
        return Document(text=text, title=title.strip('"'))


def offer_corpus(pool: NoisePool, path: str) -> None:
    """Offer the passages of a corpus with rows `{contents}` or `{title, text}` to a pool.

    Raises UsageError for a row of another form.
    """
    with Records(path) as records:
        for number, row in records:
            try:
                document = msgspec.convert(row, _Contents).document
            except msgspec.ValidationError as error:
                raise UsageError(f"{path}: row {number}: {error}") from None
            if document is None:
                raise UsageError(
                    f"{path}: row {number} has neither `contents` nor `text`: add one of them"
                )
            pool.offer([document])
