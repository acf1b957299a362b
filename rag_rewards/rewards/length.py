"""Lengths of texts: units, the tokenizer that counts tokens, and costs (CTRL-RAG, Eq. 4)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

from rag_rewards.errors import SettingError, needs_extra
from rag_rewards.reward import RolloutReward
from rag_rewards.rollout import Rollout, Score
from rag_rewards.settings import about, check_choices
from rag_rewards.text.lengths import auto_length, characters, words

LengthUnit = Literal["auto", "words", "tokens", "characters"]
_DIGITS = 16
"""Hexadecimal digits of the digest of a tokenizer."""


@dataclass(frozen=True)
class TokenLength:
    """The number of tokens of a text, without special tokens.

    file  path of a tokenizer.json

    The file is read when the first text is counted. Raises MissingExtraError without the package
    tokenizers.
    """

    file: str

    def __call__(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    @cached_property
    def _tokenizer(self) -> Any:
        with needs_extra("transformers", "tokenizers"):
            from tokenizers import Tokenizer
        try:
            tokenizer = Tokenizer.from_file(self.file)
        except Exception as error:  # the library raises Exception itself
            raise SettingError(f"{self.file} is not a tokenizer: {error}") from error
        tokenizer.no_truncation()  # files of encoder models cut a text at their maximum length
        tokenizer.no_padding()
        return tokenizer


def length_function(unit: LengthUnit, tokenizer: str | None = None) -> Callable[[str], int]:
    """Return the function that measures a text.

    unit       `words` between white space; `tokens`; `characters` that are not white space;
               `auto`: tokens if there is a tokenizer, otherwise words, where a character of a
               script without spaces is a word
    tokenizer  tokenizer.json, or its folder

    Raises SettingError for tokens without a tokenizer, and for a tokenizer that does not count.

    >>> length_function("auto")("in 法国"), length_function("characters")("in 法国")
    (3, 4)
    """
    if unit == "tokens" and not tokenizer:
        raise SettingError("the unit tokens requires a tokenizer: set tokenizer to its folder")
    if tokenizer and unit in ("words", "characters"):
        raise SettingError(f"the unit {unit} uses no tokenizer: set unit to tokens or auto")
    if tokenizer:
        return TokenLength(_file_of(tokenizer))
    return {"words": words, "characters": characters}.get(unit, auto_length)


def with_digest(tokenizer: str) -> str:
    """Return a tokenizer as PATH#DIGEST, so that a signature identifies its content.

    Raises SettingError if the file is missing, or if it differs from a digest in the value.
    """
    path, _, expected = _split(tokenizer)
    digest = sha256(Path(_file_of(path)).read_bytes()).hexdigest()[:_DIGITS]
    if expected and expected != digest:
        raise SettingError(
            f"the tokenizer in {path} has the digest {digest}, not {expected}: use the tokenizer "
            "that counted the lengths, or remove the digest"
        )
    return f"{path}#{digest}"


def _split(tokenizer: str) -> tuple[str, str, str]:
    """Split PATH#DIGEST. A path may contain # itself."""
    path, mark, digest = tokenizer.rpartition("#")
    is_digest = len(digest) == _DIGITS and not digest.strip("0123456789abcdef")
    return (path, mark, digest) if mark and is_digest else (tokenizer, "", "")


def _file_of(tokenizer: str) -> str:
    path = _split(tokenizer)[0]
    file = os.path.join(path, "tokenizer.json") if os.path.isdir(path) else path
    if not os.path.isfile(file):
        raise SettingError(
            f"there is no tokenizer {file}: set tokenizer to a tokenizer.json or its folder"
        )
    return file


# --- costs ---------------------------------------------------------------------------------------


def length_cost(words: int, budget: int) -> float:
    """Return max(0, words/budget − 1): 0 within the budget, 1 at twice the budget.

    `words` and `budget` are numbers of words.

    >>> length_cost(300, 200)
    0.5
    """
    return max(0.0, words / budget - 1.0)


def repetition_cost(words: Sequence[str], n: int) -> float:
    """Return the share of n-grams that repeat an earlier one: 1 − distinct/all. Range 0 to 1.

    >>> repetition_cost("a b a b a b".split(), 2)
    0.6
    """
    grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    return 1.0 - len(set(grams)) / len(grams) if grams else 0.0


@dataclass(frozen=True)
@check_choices
class Cost(RolloutReward):
    """The cost of a response with its thinking, at least 0. A composition subtracts it.

    Source: CTRL-RAG, Eq. 4.
    """

    kind: Annotated[
        Literal["length", "repetition"],
        about("length above the budget, or share of repeated n-grams", "CTRL-RAG, Eq. 4: both"),
    ] = "length"
    budget: Annotated[
        int,
        about(
            "with kind=length, number of words without a cost",
            "ours: CTRL-RAG does not state it",
            ge=1,
        ),
    ] = 512
    ngram: Annotated[
        int,
        about(
            "with kind=repetition, number of words in an n-gram",
            "ours: CTRL-RAG does not state it",
            ge=1,
        ),
    ] = 4
    name: str = "cost"
    scope: Literal["rollout"] = "rollout"

    def score(self, rollout: Rollout) -> Score:
        text = rollout.parsed.text
        if self.kind == "length":
            return Score(length_cost(words(text), self.budget))
        return Score(repetition_cost(text.split(), self.ngram))
