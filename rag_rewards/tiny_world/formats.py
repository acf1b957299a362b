r"""Response formats of the tiny world, one per paper.

A marker before the question selects the format. The marker `?` requests the plain answer with its
citation. The marker `?which` requests only the citation. Pretraining uses it because a response of
ARENA starts with the relevant documents, which the model learns best from this simpler format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rag_rewards.prompts import Prompt
from rag_rewards.text.refusal import REFUSAL
from rag_rewards.tiny_world.world import WorldQuestion

ABSTENTION = "I don't know"
_DOCUMENT = "{text} [{label}] ."


@dataclass(frozen=True)
class ResponseFormat:
    """One response format.

    marker     text before the question that selects the format
    write      (person, flower, citation) → response; a flower of None gives the abstention
    abstains   whether the abstention is the gold answer of an unanswerable question, for rewards
               that have no other way to reward a correct abstention
    """

    name: str
    marker: str
    write: Callable[[str, str | None, int | None], str] = field(repr=False)
    abstains: bool = False

    def row(self, question: WorldQuestion, **more: Any) -> dict[str, Any]:
        """Return the question as a row of a data set: its fields and its prompt."""
        row = question.row(**more)
        if self.abstains and not question.answerable:
            row["answers"] = [[ABSTENTION]]
        documents = " ".join(f"{who} {flower} [{i}] ." for i, (who, flower) in question.numbered)
        return {"prompt": f"{documents} {self.marker} {question.person}", **row}

    @property
    def prompt(self) -> Prompt:
        """The prompt form, from which a document can be left out."""
        form = f"{{documents}} {self.marker} {{question}}"
        return Prompt(form, document=_DOCUMENT, untitled=_DOCUMENT, separator=" ")


def _cited(flower: str | None, citation: int | None) -> str:
    return f"{flower} [{citation}]" if flower else ABSTENTION


def _plain(person: str, flower: str | None, citation: int | None) -> str:
    return _cited(flower, citation)


def _which(person: str, flower: str | None, citation: int | None) -> str:
    return f"[{citation}]" if flower else "[]"


def _truthrl(person: str, flower: str | None, citation: int | None) -> str:
    thought = f"<think> {person} {_cited(flower, citation)} </think>"
    return f"{thought} \\boxed{{ {flower or ABSTENTION} }}"


def _arena(person: str, flower: str | None, citation: int | None) -> str:
    return (
        f"<relevance> {_which(person, flower, citation)} </relevance> "
        f"<analysis> {person} {_cited(flower, citation)} </analysis> "
        f"<answer> {flower or ABSTENTION} </answer>"
    )


def _ground(person: str, flower: str | None, citation: int | None) -> str:
    thought = f"<think> {person} {_cited(flower, citation)} </think>"
    return f"{thought} <answer> {_cited(flower, citation) if flower else REFUSAL} </answer>"


def _lear(person: str, flower: str | None, citation: int | None) -> str:
    return (
        f"<reason> {person} {_cited(flower, citation)} </reason> "
        f"<extract> {person} {flower or ABSTENTION} </extract> "
        f"<answer> {flower or ABSTENTION} </answer>"
    )


PLAIN = ResponseFormat("plain", "?", _plain)
WHICH = ResponseFormat("which", "?which", _which)
TRUTHRL = ResponseFormat("truthrl", "?truthrl", _truthrl)
ARENA = ResponseFormat("arena", "?arena", _arena, abstains=True)
GROUND = ResponseFormat("ground", "?ground", _ground)
LEAR = ResponseFormat("lear", "?lear", _lear, abstains=True)
FORMATS = (PLAIN, TRUTHRL, ARENA, GROUND, LEAR)
TAGS = tuple(
    f"<{slash}{name}>"
    for name in ("think", "answer", "relevance", "analysis", "reason", "extract")
    for slash in ("", "/")
)
