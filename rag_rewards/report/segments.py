"""A response in segments: words, tags and citation markers, with the contribution of documents."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

import msgspec
from rich.text import Text

from rag_rewards.errors import RolloutError, plain
from rag_rewards.evidence.needs import values_without
from rag_rewards.evidence.protocols import Tokenizer
from rag_rewards.report.rows import Configuration
from rag_rewards.rewards.contrastive import token_contributions
from rag_rewards.rows import ScoredRow
from rag_rewards.text.citations import compiled, markers
from rag_rewards.text.response import strip_end_of_sequence

MAX_CHARACTERS = 20_000
"""Characters of a response or a document that are shown."""
_PIECE = re.compile(r"\s*(?:\w+|[^\w\s])")
_WORD = re.compile(r"\w+|[^\w\s]")
_TAG = re.compile(r"</?\w{1,20}>")
_DECODED_TOKENS = 32
"""Tokens that are decoded together. A limit keeps the time linear."""
_MAX_GAP = 24
"""Characters between two tokens of the response that the tokens do not contain."""

FULL_COLOR = 2.0
"""Nats at which a word has the full color."""
_MIN_COLOR = 0.05
"""Nats below which a word has no color."""

TokenStart = tuple[int, float | None]
"""The position of a token in the response, and its value."""


class Segment(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={"text": "t", "value": "v", "kind": "k", "labels": "c"},
):
    """A piece of the response.

    value   nats that the documents add to the log-probability of the piece
    kind    "tag", "cite" or ""
    labels  documents that a citation marker names
    """

    text: str
    value: float | None = None
    kind: str = ""
    labels: tuple[str, ...] = ()

    @property
    def style(self) -> str:
        """The style on a terminal: green if documents make the piece more likely, else red."""
        base = {"tag": "dim ", "cite": "bold underline "}.get(self.kind, "")
        if self.value is None or abs(self.value) < _MIN_COLOR:
            return base.strip()
        level = round(30 + 100 * min(abs(self.value) / FULL_COLOR, 1.0))
        color = f"rgb(0,{level},40)" if self.value > 0 else f"rgb({level},0,20)"
        return f"{base}white on {color}"


def colored(pieces: Sequence[Segment]) -> Text:
    """Return the response with the colors of its segments."""
    return Text.assemble(*((plain(piece.text), piece.style) for piece in pieces))


def legend(tokens: str) -> Text:
    """Return the meaning of the colors. `tokens` describes how tokens were determined."""
    return Text.assemble(
        ("green", f"not dim {Segment('', FULL_COLOR).style}"),
        ": more likely with the documents  ",
        ("red", f"not dim {Segment('', -FULL_COLOR).style}"),
        f": less likely; full color at {FULL_COLOR:g} nats; {plain(tokens)}",
        style="dim",
    )


# --- contributions of documents ------------------------------------------------------------------


def contributions(row: ScoredRow, configuration: Configuration) -> tuple[list[float], list[str]]:
    """Return ε of every token under d*, and the documents that can be left out, d* first.

    d* is the document without which the response is least likely. Both lists are empty if the row
    has no log-probabilities, or log-probabilities of another length. Source: CTRL-RAG, Eq. 12 and
    Figure 2.
    """
    logprobs = row.logprobs
    if logprobs is None or not logprobs.full:
        return [], []
    try:
        labels = row.supporting_labels if row.supporting else row.labels
    except RolloutError:
        return [], []
    without = _values_without(row, labels)
    if not without:
        return [], []
    start, end = counted_tokens(row, configuration)
    order = sorted(without, key=lambda label: math.fsum(without[label][start:end]))
    uses_mean = configuration.settings.get("loo") == "mean"
    compared = list(without.values()) if uses_mean else [without[order[0]]]
    values = token_contributions(logprobs.full, compared, "mean")
    return [v if start <= i < end else 0.0 for i, v in enumerate(values)], order


def document_shades(
    row: ScoredRow, texts: Sequence[str], configuration: Configuration
) -> dict[str, list[float | None]]:
    """Return the contribution of each document to each segment.

    The result is empty if the row has log-probabilities for fewer than two left-out documents.
    """
    logprobs = row.logprobs
    try:
        labels = row.labels
    except RolloutError:
        return {}
    if logprobs is None:
        return {}
    start, end = counted_tokens(row, configuration)
    shades: dict[str, list[float | None]] = {}
    for label, values in _values_without(row, labels).items():
        pairs = enumerate(zip(logprobs.full, values, strict=True))
        added = [full - less if start <= i < end else 0.0 for i, (full, less) in pairs]
        pieces = segments(row.parsed.text[:MAX_CHARACTERS], texts, added)
        shades[label] = [piece.value for piece in pieces]
    return shades if len(shades) > 1 else {}


def _values_without(row: ScoredRow, labels: Sequence[str]) -> dict[str, Sequence[float]]:
    """Return the log-probabilities without each document, where they have the right length."""
    count = len(row.logprobs.full) if row.logprobs else 0
    values = {label: values_without(row, label) for label in labels}
    return {label: v for label, v in values.items() if v is not None and len(v) == count}


def counted_tokens(row: ScoredRow, configuration: Configuration) -> tuple[int, int]:
    """Return the range of tokens that the recipe counts: all, or the answer (span=answer)."""
    logprobs = row.logprobs
    if logprobs is None:
        return 0, 0
    if configuration.settings.get("span") == "answer" and logprobs.answer_span:
        return logprobs.answer_span
    return 0, len(logprobs.full)


# --- texts of tokens -----------------------------------------------------------------------------


def token_texts(
    row: ScoredRow, count: int, tokenizer: Tokenizer | None = None
) -> tuple[list[str], str]:
    """Return the text of each token, and a description of the method.

    The texts come from a tokenizer if there is one, else from `tokens` in the row or in its
    details, else from words and punctuation if their number is equal. Otherwise there are no
    texts, and `segments` assigns the values to words by position.
    """
    text = strip_end_of_sequence(_policy_text(row))
    if tokenizer is not None:
        ids = row.response_token_ids or tuple(tokenizer.encode(text, add_special_tokens=False))
        if len(ids) == count:
            return _decode_each(tokenizer, ids), "tokens of the tokenizer"
    tokens = row.tokens or (row.details or {}).get("tokens")
    tokens = tokens if isinstance(tokens, list) and len(tokens) == count else []
    if tokens and all(isinstance(token, str) for token in tokens):
        return list(tokens), "tokens of the row"
    pieces = _PIECE.findall(text)
    if len(pieces) == count:
        return pieces, "words and punctuation in place of tokens, because their number is equal"
    words = text.split()
    if len(words) == count:
        texts = [f" {word}" if i else word for i, word in enumerate(words)]
        return texts, "words in place of tokens, because their number is equal"
    return [], f"approximate positions of {count} tokens; set a tokenizer for exact positions"


def _policy_text(row: ScoredRow) -> str:
    if isinstance(row.response, str):
        return row.response
    return next(m.text for m in reversed(row.response) if m.role == "assistant")


def _decode_each(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Return texts of tokens that join to the text: the text that each token adds."""
    texts: list[str] = []
    start = length = 0
    for end in range(1, len(ids) + 1):
        decoded = tokenizer.decode(ids[start:end])
        if decoded.endswith("\ufffd"):  # the token ends inside a character
            texts.append("")
            continue
        texts.append(decoded[length:])
        length = len(decoded)
        if end - start > _DECODED_TOKENS and decoded:
            start, length = end - 1, len(tokenizer.decode(ids[end - 1 : end]))
    return texts


# --- segments ------------------------------------------------------------------------------------


def segments(text: str, texts: Sequence[str], values: Sequence[float]) -> list[Segment]:
    """Split a response at tokens, tags and citation markers.

    `texts` are the texts of the tokens, `values` their contributions in nats. Without texts, the
    values are assigned to words by position.
    """
    if not text:
        return []
    tokens = _token_starts(text, texts, values)
    marks: dict[int, tuple[int, str, tuple[str, ...]]] = {}
    for match in _TAG.finditer(text):
        marks[match.start()] = (match.end(), "tag", ())
    for marker in markers(text, compiled()):
        marks.setdefault(marker.start, (marker.end, "cite", marker.labels))
    starts = [start for start, _ in tokens]
    cuts = sorted({0, len(text), *starts, *marks, *(end for end, _, _ in marks.values())})
    pieces: list[Segment] = []
    mark_end, kind = 0, ""
    labels: tuple[str, ...] = ()
    for start, end in pairwise(cuts):
        if start in marks:
            mark_end, kind, labels = marks[start]
        is_marked = start < mark_end
        token = bisect_right(starts, start) - 1
        value = tokens[token][1] if token >= 0 else None
        pieces.append(
            Segment(
                text[start:end],
                None if value is None else round(value, 3),
                kind if is_marked else "",
                labels if is_marked else (),
            )
        )
    return _merge(pieces)


def _merge(pieces: Sequence[Segment]) -> list[Segment]:
    """Merge adjacent segments of the same kind that have no value."""
    merged: list[Segment] = []
    for piece in pieces:
        last = merged[-1] if merged else None
        if (
            last
            and piece.value is None
            and last.value is None
            and (last.kind, last.labels) == (piece.kind, piece.labels)
        ):
            merged[-1] = Segment(last.text + piece.text, None, piece.kind, piece.labels)
        else:
            merged.append(piece)
    return merged


def _token_starts(text: str, texts: Sequence[str], values: Sequence[float]) -> list[TokenStart]:
    """Return the start and the value of each token that occurs in the text, and the end."""
    if not values:
        return []
    if not texts:
        return _word_starts(text, values)
    starts: list[TokenStart] = []
    position = 0
    for token, value in zip(texts, values, strict=True):
        bare = token.strip() or token
        start = text.find(bare, position, position + len(bare) + _MAX_GAP) if bare else -1
        if start < 0:
            continue
        starts.append((start, value))
        position = start + len(bare)
    starts.append((position, None))
    return starts


def _word_starts(text: str, values: Sequence[float]) -> list[TokenStart]:
    """Assign values to words by position. The value of a word is the sum of its tokens' values."""
    words = list(_WORD.finditer(text))
    if not words:
        return []
    sums = [0.0] * len(words)
    ends = [word.end() for word in words]
    for token, value in enumerate(values):
        position = (token + 0.5) * len(text) / len(values)
        sums[min(bisect_right(ends, position), len(words) - 1)] += value
    return [(word.start(), value) for word, value in zip(words, sums, strict=True)]
