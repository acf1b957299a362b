r"""How the papers' responses are said in the tiny world, and how each is asked for.

Every paper has a mark of its own before the question, and the model answers in its format. The
mark `?` asks for the bare answer with its citation, `?which` for the citation alone: ARENA names
its documents before it says anything, and learns that best from here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rag_rewards.contexts import Prompt
from rag_rewards.text.refusal import REFUSAL
from tiny_world.world import Question

ABSTENTION = "I don't know"
_DOCUMENT = "{text} [{label}] ."


@dataclass(frozen=True)
class Format:
    """One way to respond.

    mark       stands before the question
    say        (person, flower, citation) → response; without a flower, the abstention
    abstains   an unanswerable question has the abstention as its gold answer, for rewards that
               know no other way to say that abstaining was right
    """

    name: str
    mark: str
    say: Callable[[str, str | None, int | None], str] = field(repr=False)
    abstains: bool = False

    def row(self, asked: Question, **further: Any) -> dict[str, Any]:
        """The question as a data set has it: what is known before a response, and the prompt."""
        row = asked.row(**further)
        if self.abstains and not asked.answerable:
            row["answers"] = [[ABSTENTION]]
        shown = " ".join(f"{who} {flower} [{i}] ." for i, (who, flower) in asked.numbered)
        return {"prompt": f"{shown} {self.mark} {asked.who}", **row}

    @property
    def prompt(self) -> Prompt:
        """How a question stands in the prompt; a document can be left out of it."""
        form = f"{{documents}} {self.mark} {{question}}"
        return Prompt(form, document=_DOCUMENT, untitled=_DOCUMENT, separator=" ")


def _cited(flower: str | None, cited: int | None) -> str:
    return f"{flower} [{cited}]" if flower else ABSTENTION


def _plain(who: str, flower: str | None, cited: int | None) -> str:
    return _cited(flower, cited)


def _which(who: str, flower: str | None, cited: int | None) -> str:
    return f"[{cited}]" if flower else "[]"


def _truthrl(who: str, flower: str | None, cited: int | None) -> str:
    thought = f"<think> {who} {_cited(flower, cited)} </think>"
    return f"{thought} \\boxed{{ {flower or ABSTENTION} }}"


def _arena(who: str, flower: str | None, cited: int | None) -> str:
    return (
        f"<relevance> {_which(who, flower, cited)} </relevance> "
        f"<analysis> {who} {_cited(flower, cited)} </analysis> "
        f"<answer> {flower or ABSTENTION} </answer>"
    )


def _ground(who: str, flower: str | None, cited: int | None) -> str:
    thought = f"<think> {who} {_cited(flower, cited)} </think>"
    return f"{thought} <answer> {_cited(flower, cited) if flower else REFUSAL} </answer>"


def _lear(who: str, flower: str | None, cited: int | None) -> str:
    return (
        f"<reason> {who} {_cited(flower, cited)} </reason> "
        f"<extract> {who} {flower or ABSTENTION} </extract> "
        f"<answer> {flower or ABSTENTION} </answer>"
    )


PLAIN = Format("plain", "?", _plain)
WHICH = Format("which", "?which", _which)
TRUTHRL = Format("truthrl", "?truthrl", _truthrl)
ARENA = Format("arena", "?arena", _arena, abstains=True)
GROUND = Format("ground", "?ground", _ground)
LEAR = Format("lear", "?lear", _lear, abstains=True)
FORMATS = (PLAIN, TRUTHRL, ARENA, GROUND, LEAR)
TAGS = tuple(
    f"<{slash}{name}>"
    for name in ("think", "answer", "relevance", "analysis", "reason", "extract")
    for slash in ("", "/")
)
