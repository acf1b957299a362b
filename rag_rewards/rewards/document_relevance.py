"""Document relevance: whether a response names the supporting documents (ARENA)."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from rag_rewards.errors import check_choice
from rag_rewards.reward import RolloutReward
from rag_rewards.rollout import Rollout, Score
from rag_rewards.settings import about, check_choices
from rag_rewards.text.citations import labels_in
from rag_rewards.text.sections import Tags

Notation = Literal["json", "any"]
_IDS = msgspec.json.Decoder(list[int | str])
_TOKEN = re.compile(
    r"(?P<ids>\d{1,9}(?: ?[-–] ?\d{1,9})?)(?!\.?\d)|[\s\[\](){}.,;:、，；。\"'“”*•#&-]"
    r"|(?:and|docs?|documents?|passages?|sources?|refs?|references?)\b",
    re.IGNORECASE,
)


def relevance_ids(section: str | None, notation: Notation = "json") -> list[int | str] | None:
    """Return the ids in a relevance section, which is a JSON list of integers or strings.

    With the notation `any`, the section can also contain whole numbers with other marks, "and" or
    a word such as "document" between them. The result is None for any other text. Booleans and
    floats are not ids.

    >>> relevance_ids(' [2, "5", 2] '), relevance_ids("[true]"), relevance_ids("2, 5")
    ([2, '5', 2], None, None)
    >>> relevance_ids("[2][5].", "any"), relevance_ids("Documents 2 and 5", "any")
    ([2, 5], [2, 5])
    """
    check_choice("notation", notation, Notation)
    return None if section is None else _ids(section, notation)


def _ids(section: str, notation: Notation) -> list[int | str] | None:
    try:
        return _IDS.decode(section)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _numbers(section) if notation == "any" else None


def _numbers(section: str) -> list[int | str] | None:
    """Return the different numbers in a text of numbers, marks and names of documents."""
    ids: dict[int | str, None] = {}
    read: set[str] = set()
    at = 0
    while at < len(section):
        token = _TOKEN.match(section, at)
        if token is None:
            return None
        if token["ids"] and token["ids"] not in read:  # a range can be repeated
            read.add(token["ids"])
            ids.update(dict.fromkeys(map(int, labels_in(token["ids"]))))
        at = token.end()
    return list(ids) or None


def relevance(
    named: Collection[str], supporting: Collection[str], min_precision: float = 0.0
) -> float:
    """Return 1 if the sets are equal, 0.5 if they overlap, else 0.

    An overlap earns 0.5 only if at least the share `min_precision` of the named documents is
    supporting. Source: ARENA, section 3.3.

    >>> relevance({"1"}, {"1", "2"}), relevance({"1", "2", "3"}, {"1"}, min_precision=0.5)
    (0.5, 0.0)
    """
    named, supporting = set(named), set(supporting)
    if named == supporting:
        return 1.0
    right = len(named & supporting)
    return 0.5 if right and right >= min_precision * len(named) else 0.0


@dataclass(frozen=True)
@check_choices
class Relevance(RolloutReward):
    """ARENA's relevance reward: 0, 0.5 or 1. A section that is not a list of ids earns 0.

    Raises DataError for a row without `supporting`; an empty list is allowed. Source: ARENA,
    section 3.3.
    """

    tags: Tags = Tags(("relevance",))
    min_precision: Annotated[
        float,
        about(
            "minimum share of supporting documents among the listed documents for a relevance "
            "of 0.5",
            "ARENA, section 3.3: one supporting document is enough",
            ge=0,
            le=1,
        ),
    ] = 0.0
    notation: Annotated[
        Notation,
        about(
            "notation of the listed documents; json: a JSON list such as [1, 3]; any: also [1][3], "
            "1 and 3, or Documents 1, 3",
            "ARENA, authors' code",
        ),
    ] = "json"
    name: str = "relevance"
    scope: Literal["rollout"] = "rollout"

    def score(self, rollout: Rollout) -> Score:
        supporting = rollout.supporting_labels
        section = rollout.parsed.cut(self.tags).content.get("relevance")
        named = None if section is None else _ids(section, self.notation)
        if named is None:
            return Score(0.0, details={"relevance": None})
        labels = list(dict.fromkeys(rollout.labels_of(named)))
        if labels == [*supporting]:  # the same order, as in most right responses
            return Score(1.0, details={"relevance": labels})
        value = relevance(labels, supporting, self.min_precision)
        return Score(value, details={"relevance": labels})
