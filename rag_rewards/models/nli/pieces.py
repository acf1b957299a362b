"""Encoded (premise, hypothesis) pairs, and their division into pieces that fit into a model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rag_rewards.errors import BackendError, UsageError
from rag_rewards.models.local_models import check_tokenizer, load_tokenizer

Pair = tuple[str, str]
"""A premise and a hypothesis."""
Both = tuple[float, float]
"""The probabilities of entailment and of contradiction."""
_PREMISE_SHARE = 8
"""The premise gets at least 1/8 of the maximum length, so that the number of pieces is limited."""

ENCODING_OPTIONS = {
    "truncation": False,
    "padding": False,
    "return_attention_mask": False,
    "split_special_tokens": True,
    "verbose": False,
}
"""Arguments of a tokenizer that encode a text without special treatment."""


def windows(length: int, room: int, overlap: int) -> list[tuple[int, int]]:
    """Return spans of at most `room` that cover 0 to `length`; neighbors share `overlap` or more.

    If there are several spans, each has the length `room`: the last one begins earlier to reach
    it. `overlap` is less than `room`.

    >>> windows(10, 4, 1)
    [(0, 4), (3, 7), (6, 10)]
    >>> windows(9, 4, 1)
    [(0, 4), (3, 7), (5, 9)]
    """
    if length <= room:
        return [(0, length)]
    starts = [*range(0, length - room, room - overlap), length - room]
    return [(start, start + room) for start in starts]


@dataclass(frozen=True)
class Piece:
    """Token ids, and token type ids if the model has them, of one input of a model.

    `hypothesis` is the span of the hypothesis in the tokens.
    """

    ids: list[int]
    types: list[int] | None
    hypothesis: tuple[int, int]


@dataclass(frozen=True)
class EncodedPair:
    """The tokens of a whole pair, and the spans of its two texts in them."""

    ids: list[int]
    types: list[int] | None
    premise: tuple[int, int]
    hypothesis: tuple[int, int]

    def pieces(self, limit: int, overlap: int, chunk: int | None = None) -> list[Piece]:
        """Return pieces of at most `limit` tokens, each with the whole hypothesis.

        `chunk` is the maximum number of tokens of the premise in a piece. Together they contain
        every token of the premise. Neighbors share `overlap` tokens, but at most half of the tokens
        of the premise that fit. The premise needs up to an eighth of `limit`: a hypothesis that
        does not leave that has no piece. Raises BackendError if no hypothesis would.
        """
        (start, end), (first, last) = self.premise, self.hypothesis
        if len(self.ids) <= limit and (chunk is None or end - start <= chunk):
            return [Piece(self.ids, self.types, self.hypothesis)]
        around = len(self.ids) - (end - start)
        least = min(end - start, max(limit // _PREMISE_SHARE, 1))
        if around - (last - first) + least >= limit:
            raise BackendError(
                f"max_length={limit} leaves no room for a hypothesis beside {least} tokens of the "
                "premise and the special tokens: increase max_length"
            )
        room = limit - around
        if room < least:
            return []
        room = min(room, chunk or room)
        return [
            Piece(
                self._without(self.ids, start + a, start + b),
                self.types and self._without(self.types, start + a, start + b),
                self._moved(b - a - (end - start)),
            )
            for a, b in windows(end - start, room, min(overlap, room // 2))
        ]

    def _moved(self, longer: int) -> tuple[int, int]:
        """Return the span of the hypothesis if the premise has `longer` more tokens."""
        first, last = self.hypothesis
        shift = longer if first >= self.premise[1] else 0
        return first + shift, last + shift

    def _without(self, ids: list[int], start: int, end: int) -> list[int]:
        """Return the tokens without those of the premise before `start` and from `end` on."""
        return ids[: self.premise[0]] + ids[start:end] + ids[self.premise[1] :]


def divide(
    encoded: Iterable[EncodedPair | None], limit: int, overlap: int, chunk: int | None = None
) -> tuple[list[Piece], list[int]]:
    """Return the pieces of all pairs as `EncodedPair.pieces`, and the position of the pair of each.

    A pair has no piece if one of its texts has no token, or if its hypothesis is too long.
    """
    pieces: list[Piece] = []
    owners: list[int] = []
    for i, pair in enumerate(encoded):
        parts = pair.pieces(limit, overlap, chunk) if pair else []
        pieces += parts
        owners += [i] * len(parts)
    return pieces, owners


def highest(count: int, owners: Sequence[int], of_pieces: Sequence[Both]) -> list[Both]:
    """Return the highest probabilities of a piece for each of `count` pairs; 0 without a piece."""
    best = [(0.0, 0.0)] * count
    for owner, (entailment, contradiction) in zip(owners, of_pieces, strict=True):
        best[owner] = max(best[owner][0], entailment), max(best[owner][1], contradiction)
    return best


def span(is_inside: Sequence[bool]) -> tuple[int, int] | None:
    """Return the span from the first to the last true value, None if there is none."""
    positions = [i for i, inside in enumerate(is_inside) if inside]
    return (positions[0], positions[-1] + 1) if positions else None


def encoded_pair(
    ids: list[int],
    types: list[int] | None,
    premise: tuple[int, int] | None,
    hypothesis: tuple[int, int] | None,
    special: Mapping[int, int],
) -> EncodedPair | None:
    """Return the pair, or None if one of its texts has no token.

    `special` maps special tokens to the tokens that replace them inside the texts.
    """
    if premise is None or hypothesis is None:
        return None
    clean = list(ids)
    for start, end in (premise, hypothesis):
        clean[start:end] = [special.get(i, i) for i in ids[start:end]]
    return EncodedPair(clean, types, premise, hypothesis)


def encode_template(
    tokenizer: Any, template: str, pairs: Sequence[Pair], *, has_types: bool = False
) -> Iterator[EncodedPair | None]:
    """Yield the tokens of each pair in a template, None if one of its texts has no token.

    Special tokens of the template are special tokens. The same ones in the texts are unknown.
    """
    if not pairs:
        return
    separator = tokenizer.eos_token or tokenizer.sep_token or ""
    before, between, after = re.split(
        r"\{premise\}|\{hypothesis\}", template.replace("{sep}", separator)
    )
    texts = [f"{before}{premise}{between}{hypothesis}{after}" for premise, hypothesis in pairs]
    special = special_tokens(tokenizer)
    is_plain = not any(token in before + between + after for token in tokenizer.all_special_tokens)
    options = {**ENCODING_OPTIONS, "split_special_tokens": is_plain}
    batch = tokenizer(texts, **options)
    for (premise, hypothesis), encoding in zip(pairs, batch.encodings, strict=True):
        start = len(before)
        second = start + len(premise) + len(between)
        spans = [
            span([a < end and b > begin for a, b in encoding.offsets])
            for begin, end in (
                (start, start + len(premise)),
                (second, second + len(hypothesis)),
            )
        ]
        types = list(encoding.type_ids) if has_types else None
        yield encoded_pair(list(encoding.ids), types, spans[0], spans[1], special)


def load_fast_tokenizer(folder: Path, model: Any) -> Any:
    """Load a tokenizer that reports offsets. Raises UsageError if it does not fit the model."""
    tokenizer = load_tokenizer(folder)
    if not tokenizer.is_fast:
        raise UsageError(f"{folder} has no fast tokenizer (tokenizer.json)")
    check_tokenizer(tokenizer, model)
    return tokenizer


def special_tokens(tokenizer: Any) -> dict[int, int]:
    """Return the special tokens, mapped to the unknown token.

    A text that contains "[SEP]" or "</s>" must not give the model a special token.
    """
    unknown = tokenizer.unk_token_id
    return {} if unknown is None else dict.fromkeys(tokenizer.all_special_ids, unknown)


def padding_id(tokenizer: Any, model: Any) -> int:
    """Return the id of the padding token, 0 if there is none."""
    for token_id in (tokenizer.pad_token_id, model.config.pad_token_id):
        if token_id is not None:
            return int(token_id)
    return 0
