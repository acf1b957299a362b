"""Replace the words of the last turn of a rollout, which contain its answer."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from rag_rewards.rollout import Rollout

R = TypeVar("R", bound=Rollout)


def with_last_turn(rollout: R, text: str, **fields: Any) -> R:
    """Return a rollout whose parsed text is `text`: its response or the last turn of it.

    Earlier turns stay. `fields` replace further fields.

    >>> from rag_rewards.rows import decode_row
    >>> rollout = decode_row({"turns": [{"text": "<search>a</search>"}, {"text": "b"}]})
    >>> [turn.text for turn in with_last_turn(rollout, "c").turns]
    ['<search>a</search>', 'c']
    """
    prefix = rollout.response_prefix or ""
    if rollout.turns is not None:
        *earlier, last = rollout.turns
        if not earlier:
            text = text.removeprefix(prefix)
        last = msgspec.structs.replace(last, text=text, token_span=None, token_ids=None)
        response: Any = text
        fields |= {"turns": (*earlier, last), "response_prefix": rollout.response_prefix}
    elif isinstance(rollout.response, str):
        response = text
        fields["response_prefix"] = None  # the parsed text contains it
    else:
        response = list(rollout.response)
        at = max(i for i, message in enumerate(response) if message.role == "assistant")
        response[at] = msgspec.structs.replace(response[at], content=text.removeprefix(prefix))
        fields["response_prefix"] = rollout.response_prefix
    return msgspec.structs.replace(rollout, response=response, **fields)
