"""Real questions with real passages, split into training and held-out questions.

Sources in the folder of `--shared`: the passages that the rollouts of R1-Searcher retrieved for
questions of HotpotQA and Bamboogle, and 69 rows of HotpotQA, 2Wiki and MuSiQue with gold and
distractor passages. Each question gets three passages of at most 32 words. It is answerable if one
of them contains a gold answer as words, with dates in any order. One question of four loses its
passages with the answer, so that enough questions are unanswerable. Yes/no questions are left out
because no passage contains "yes" as an answer.

All choices depend on the texts alone, so that equal files give equal questions.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rag_rewards.matching.mentions import mentioned_answers
from rag_rewards.text.normalize import squad

DOCUMENTS = 3
WORDS = 32
HELD_OUT = 3
"""One question of this number is held out."""
WITHHELD = 4
"""One question of this number loses the passages with its answer."""
_BLOCK = re.compile(r"<\|begin_of_documents\|>(.*?)<\|end_of_documents\|>", re.DOTALL)
_PASSAGE = re.compile(r"^\(\d+\)(.*)$", re.MULTILINE)
_TITLE = re.compile(r"(?:Title: )?(.*?)(?: Text: |   )\s*(.*)")


@dataclass(frozen=True)
class Passage:
    """A retrieved passage. `is_gold` is None if the source does not state it."""

    title: str
    text: str
    is_gold: bool | None = None

    def __repr__(self) -> str:
        return f"Passage({self.title!r}, {self.text!r})"


@dataclass(frozen=True)
class Question:
    """A question with its documents.

    documents    pairs (title, text)
    supporting   positions of the documents that support the answer, from 1; empty if no document
                 contains the answer
    is_withheld  whether its passages with the answer were removed
    """

    text: str
    answer: str
    documents: tuple[tuple[str, str], ...] = field(repr=False)
    supporting: tuple[int, ...]
    is_withheld: bool = False

    @property
    def digest(self) -> str:
        """The first 16 digits of the SHA-256 digest of the question's text."""
        return digest(self.text)

    @property
    def is_answerable(self) -> bool:
        return bool(self.supporting)

    @property
    def is_held_out(self) -> bool:
        return int(self.digest, 16) % HELD_OUT == 0

    def row(self) -> dict[str, Any]:
        """Return the fields of a row that exist before a response."""
        return {
            "question": self.text,
            "documents": [
                {"id": str(i), "title": title, "text": text}
                for i, (title, text) in enumerate(self.documents, 1)
            ],
            "supporting": [str(i) for i in self.supporting],
            "answers": [[self.answer]],
            "answerable": self.is_answerable,
        }


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def questions(shared: Path) -> list[Question]:
    """Return all questions in the order of their digests.

    Raises SystemExit if the files are missing.
    """
    if not (shared / "data" / "r1_searcher").is_dir():
        raise SystemExit(f"{shared}/data contains no r1_searcher: pass the folder with --shared")
    passages: dict[tuple[str, str], dict[tuple[str, str], Passage]] = {}
    for text, answer, sources in (*_searched(shared), *_multi_hop(shared)):
        own = passages.setdefault((text, answer), {})
        own.update({(p.title, p.text): p for p in sources if (p.title, p.text) not in own})
    built = [build(*key, list(own.values())) for key, own in passages.items()]
    return sorted((q for q in built if q), key=lambda q: q.digest)


def digest_of(every: Sequence[Question]) -> str:
    """Return a digest of all texts and labels of questions."""
    return digest(json.dumps([question.row() for question in every]))


def split(every: Sequence[Question]) -> tuple[list[Question], list[Question]]:
    """Return the training questions and the held-out questions."""
    return [q for q in every if not q.is_held_out], [q for q in every if q.is_held_out]


# --- the files -----------------------------------------------------------------------------------


def _searched(shared: Path) -> Iterator[tuple[str, str, list[Passage]]]:
    for file in sorted((shared / "data" / "r1_searcher").glob("*.jsonl")):
        for row in _rows(file):
            blocks = _BLOCK.findall(row["gen_text_store"])
            lines = [line for block in blocks for line in _PASSAGE.findall(block)]
            yield (
                row["question"].strip(),
                row["answer"].strip(),
                list(filter(None, map(read, lines))),
            )


def read(line: str) -> Passage | None:
    """Return a passage of R1-Searcher from its line, None if the line has no title.

    >>> read("Title: Paris Text:  A city."), read("Paris   Paris A city.")
    (Passage('Paris', 'A city.'), Passage('Paris', 'Paris A city.'))
    >>> read('"Title: Paris Text:  The ""city"" of light."')  # quoted as in a CSV file
    Passage('Paris', 'The "city" of light.')
    """
    line = line.strip()
    if line.startswith('"Title: ') and line.endswith('"'):
        line = line[1:-1].replace('""', '"')
    match = _TITLE.fullmatch(line)
    return Passage(match[1].strip(), match[2].strip()) if match and match[2].strip() else None


def _multi_hop(shared: Path) -> Iterator[tuple[str, str, list[Passage]]]:
    for file in sorted((shared / "data" / "ircot_multihop").glob("*.jsonl")):
        for row in _rows(file):
            pairs = zip(row["paragraphs"], row["is_supporting"], strict=True)
            passages = [Passage(p["title"], p["paragraph_text"], gold) for p, gold in pairs]
            yield row["question"].strip(), row["answer"].strip(), passages


def _rows(file: Path) -> Iterator[Mapping[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


# --- one question --------------------------------------------------------------------------------


def build(text: str, answer: str, passages: Sequence[Passage]) -> Question | None:
    """Return a question with its documents, None if it is left out.

    An answerable question keeps the passage with its answer that shares most words with the
    question, a further gold passage if there is one, and passages that do not contain the answer.
    An unanswerable one keeps the passages that share most words with it. A passage with the answer
    in its title alone is left out, because it makes the label doubtful. A question with gold
    passages, none of which contains the answer, is left out: its label would be wrong.
    """
    if len(passages) < DOCUMENTS or squad(answer) in ("", "yes", "no"):
        return None
    ranked = sorted(passages, key=lambda p: -overlap(text, f"{p.title} {p.text}"))
    holders = [p for p in ranked if contains(p.text, answer) and p.is_gold is not False]
    others = [p for p in ranked if not contains(f"{p.title}\n{p.text}", answer)]
    if not holders and any(p.is_gold for p in passages):
        return None
    is_withheld = bool(holders) and int(digest(text), 16) // HELD_OUT % WITHHELD == 0
    if is_withheld:
        holders = []
    gold = [p for p in others if p.is_gold]
    rest = [p for p in others if not p.is_gold]
    chosen = [*holders[:1], *gold[:1], *rest][:DOCUMENTS]
    if len(chosen) < DOCUMENTS:
        return None
    chosen.sort(key=lambda p: digest(f"{text} {p.title} {p.text}"))
    support = [i for i, p in enumerate(chosen, 1) if holders and (p is holders[0] or p in gold)]
    documents = tuple((p.title, window(text, answer, p.text)) for p in chosen)
    return Question(text, answer, documents, tuple(support), is_withheld)


def contains(text: str, answer: str) -> bool:
    """Return whether a text contains an answer as words, as a name or a date in another form.

    >>> contains("Born on 8 January 1891.", "January 8, 1891"), contains("Rosetta", "Rose")
    (True, False)
    """
    if f" {squad(answer)} " in f" {squad(text)} ":
        return True
    return all(mentioned_answers(text, [answer]))


def overlap(question: str, text: str) -> int:
    """Return the number of words of a question that a text contains, each counted once."""
    return len(set(squad(question).split()) & set(squad(text).split()))


def window(question: str, answer: str, text: str) -> str:
    """Return at most 32 words of a passage, from the start of a sentence if possible.

    A window with the answer precedes others, then the start of a sentence, then the number of words
    of the question, then the first position.
    """
    words = text.split()
    starts = range(max(1, len(words) - WORDS + 1))

    def value(start: int) -> tuple[bool, bool, int]:
        part = " ".join(words[start : start + WORDS])
        is_sentence = start == 0 or words[start - 1].endswith((".", "!", "?"))
        return contains(part, answer), is_sentence, overlap(question, part)

    start = max(starts, key=value)
    return " ".join(words[start : start + WORDS])
