"""The turns of a search agent in the forms that a row can have, in the dialect search-r1."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rag_rewards.audit.capitals import Row
from rag_rewards.turns.conversation import SEARCH_R1_ERROR

Turns = Sequence[Mapping[str, Any]]


def with_turns(turns: Turns) -> Row:
    """Return the turns in the field `turns`."""
    return {"turns": list(turns)}


def with_messages(turns: Turns) -> Row:
    """Return the turns as chat messages. The environment replies as a user."""
    messages = []
    for turn in turns:
        messages.append({"role": "assistant", "content": turn["text"]})
        if reply := _reply(turn, turn is turns[-1]):
            messages.append({"role": "user", "content": reply})
    return {"response": messages}


def with_transcript(turns: Turns) -> Row:
    """Return the turns as one text."""
    texts = (turn["text"] + _reply(turn, turn is turns[-1]) for turn in turns)
    return {"response": "".join(texts)}


FORMS: Mapping[str, Callable[[Turns], Row]] = {
    "turns": with_turns,
    "messages": with_messages,
    "transcript": with_transcript,
}


def _reply(turn: Mapping[str, Any], is_last: bool) -> str:
    """Return what the environment of Search-R1 writes after a turn."""
    results = turn.get("results")
    if results is None:
        return "" if is_last else SEARCH_R1_ERROR
    lines = (
        f"Doc {number}(Title: {result.get('title', 'Untitled')}) {result['text']}"
        for number, result in enumerate(results, 1)
    )
    return "\n\n<information>" + "\n".join(lines) + "</information>\n\n"


def shown(row: Row) -> str:
    """Return the words of a row in any form as one text.

    >>> shown({"turns": [{"text": "a"}, {"text": "b"}]}), shown({"response": "c"})
    ('a b', 'c')
    """
    if "turns" in row:
        return " ".join(turn["text"] for turn in row["turns"])
    response = row["response"]
    return response if isinstance(response, str) else " ".join(each["content"] for each in response)
