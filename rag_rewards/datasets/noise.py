"""Documents that have nothing to do with a question, from other rows or from a corpus."""

from __future__ import annotations

import random
from collections.abc import Iterable

import msgspec

from rag_rewards.datasets.files import Records
from rag_rewards.datasets.gold import Gold, Problem, generator, holds, normal_answers
from rag_rewards.errors import UsageError
from rag_rewards.rollout import Document
from rag_rewards.text.normalize import squad

POOL = 10_000
"""Documents kept to draw from, whatever the size of the file."""
_TRIES = 50


class Pool:
    """A uniform sample of documents: every document that was offered has the same chance."""

    def __init__(self, seed: int, size: int = POOL) -> None:
        self._random = generator(seed, "pool")
        self._size = size
        self._seen = 0
        self._documents: list[Document] = []
        self._normal: dict[int, str] = {}

    def offer(self, documents: Iterable[Document]) -> None:
        for document in documents:
            self._seen += 1
            if len(self._documents) < self._size:
                self._documents.append(document)
            elif (at := self._random.randrange(self._seen)) < self._size:
                self._documents[at] = document

    def noise(self, gold: Gold, count: int, rng: random.Random) -> list[Document] | Problem:
        """So many documents of other titles, without any of the gold answers in them."""
        forms = [form for each in normal_answers(gold) for form in each]
        titles = {document.title for document in gold.documents if document.title}
        own = {document.text for document in gold.documents}
        drawn: list[Document] = []
        there = len(self._documents)
        for _ in range(count * _TRIES if there else 0):
            at = rng.randrange(there)
            document = self._documents[at]
            if document.title in titles or document.text in own or holds(self._form(at), forms):
                continue
            drawn.append(Document(text=document.text, title=document.title))
            own.add(document.text)
            if len(drawn) == count:
                return drawn
        return Problem("too few documents for noise", f"{len(drawn)} of {count}")

    def _form(self, at: int) -> str:
        """A document as answers are looked for in it, worked out at its first use."""
        if at not in self._normal:
            self._normal[at] = squad(self._documents[at].text)
        return self._normal[at]


class _Contents(msgspec.Struct):
    """A passage of a corpus: Search-R1's `contents` begins with the title in quotation marks."""

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


def offer_corpus(pool: Pool, path: str) -> None:
    """Fill a pool from a corpus of `{contents}` or `{title, text}`."""
    with Records(path) as records:
        for number, row in records:
            try:
                document = msgspec.convert(row, _Contents).document
            except msgspec.ValidationError as error:
                raise UsageError(f"{path}, row {number}: {error}") from None
            if document is None:
                raise UsageError(f"{path}, row {number} has neither `contents` nor `text`")
            pool.offer([document])
