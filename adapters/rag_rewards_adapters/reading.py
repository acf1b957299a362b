"""A rollout from what a trainer has: gold data, prompt, response or turns, token ids and masks.

The own tokens of the policy in a response with turns are

verl        runs of `response_mask`
TRL         runs of `tool_mask` or `env_mask`
OpenRLHF    `action_ranges`, which are positions in prompt and response
ms-swift    the list of lists `response_token_ids`
SkyRL       runs of `loss_masks`
slime       runs of `Sample.loss_mask`; without a mask, all tokens are own tokens
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec

import msgspec

from rag_rewards.errors import DataError, RolloutError, UsageError
from rag_rewards.loading import import_object
from rag_rewards.recipe_object import Recipe
from rag_rewards.rollout import Rollout
from rag_rewards.rows.columns import (
    label_fields,
    last_question,
    response_prefix_of,
    rollout_from_columns,
    to_builtins,
)
from rag_rewards.training.curriculum import Curriculum
from rag_rewards.turns.actions import CUT_OFF
from rag_rewards.turns.dialects import DIALECTS, Dialect, block_of, dialect_of, results_in
from rag_rewards.turns.trajectory import Reading, read_trajectory
from rag_rewards.turns.turn import TurnRow

P = ParamSpec("P")
Retriever = Callable[[str], Sequence[Mapping[str, Any]]]
"""A function from a query to documents."""

Span = tuple[int, int]
"""A half-open range of token positions."""
_TAG_TOKENS = 32
"""The number of tokens at the end of a prompt that are searched for an opened tag."""
_USE_RAG_GROUP = (
    "so the text of the model cannot be separated from that of the tools: use the agent loop "
    "rag_group, which reads the loop's own mask"
)
_MARKER = "tool-message-text"
_CHAT_WITH_TOOL: list[dict[str, Any]] = [
    {"role": "user", "content": "?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "call00000", "type": "function", "function": {"name": "search", "arguments": {}}}
        ],
    },
    {"role": "tool", "name": "search", "tool_call_id": "call00000", "content": "."},
]


# --- rollouts -----------------------------------------------------------------------------------


def with_errors(
    read: Callable[P, Rollout | RolloutError],
) -> Callable[P, Rollout | RolloutError]:
    """Let a function that reads a rollout return the RolloutError that it raises."""

    @wraps(read)
    def result(*arguments: P.args, **named: P.kwargs) -> Rollout | RolloutError:
        try:
            return read(*arguments, **named)
        except RolloutError as error:
            return error.with_traceback(None)

    return result


@with_errors
def read_rollout(
    gold: Mapping[str, Any], prompt: Any, *, label: Any = None, **trainer: Any
) -> Rollout | RolloutError:
    """Return a rollout from the data of its row and from what the trainer generated, or its error.

    gold     the fields of the row
    prompt   the prompt that the policy saw, as text or as messages. Its last user message is the
             question of a row without one
    label    gold data in a form of `label_fields`, which take precedence over `gold`
    trainer  the fields that the trainer sets: `response` or `turns`, `response_prefix`,
             `prompt_token_ids`, `response_token_ids`, `finish_reason`, `step`, …

    >>> read_rollout({}, [{"role": "user", "content": "Which river?"}], label="Seine",
    ...              response="Rhone").question
    'Which river?'
    """
    fields = {**gold, **label_fields(label)}
    if fields.get("question") is None:
        fields["question"] = last_question(prompt or "")
    return rollout_from_columns(fields, prompt=prompt or None, **trainer)


def with_spans(
    turns: Sequence[Mapping[str, Any]], tokens: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return turns with their spans: their own, `token_span`, or the runs of `response_mask`.

    Raises DataError if their number differs, and for values that are not lists of turns and spans.
    """
    rows = [
        {name: value for name, value in turn.items() if value is not None} for turn in _turns(turns)
    ]
    if "token_span" not in tokens and all("token_span" in row for row in rows):
        return rows
    spans = tokens.get("token_span")
    if spans is None and "response_mask" in tokens:
        spans = runs(as_list(tokens["response_mask"], "response_mask"))
    if spans is None:
        return rows
    if len(as_list(spans, "token_span")) != len(rows):
        raise DataError(
            f"{len(spans)} spans for {len(rows)} turns: return one span per turn", "token_span"
        )
    return [
        row | {"token_span": as_list(span, f"token_span[{i}]")}
        for i, (row, span) in enumerate(zip(rows, spans, strict=True))
    ]


def with_limit(rollout: Rollout, dialect: str, *, is_full: bool = False) -> Rollout:
    """Return a rollout with the limit that ended the loop of its trainer as the `finish_reason`.

    Some trainers report only how the last generation ended, which is `stop` if the loop has no
    further turn for the policy. A last turn without an answer needs a further turn if it contains a
    query or a call, or if the environment replied to it. The reason is then `length` if no further
    token fits (`is_full`), and otherwise `max_turns` after a query or a call.
    """
    last = rollout.steps(dialect)[-1]
    if rollout.finish_reason in CUT_OFF or last.answer is not None:
        return rollout
    asks = bool(last.queries or last.calls)
    if is_full and (asks or last.observation is not None):
        return msgspec.structs.replace(rollout, finish_reason="length")
    if asks:
        return msgspec.structs.replace(rollout, finish_reason="max_turns")
    return rollout


def as_list(value: Any, path: str) -> list[Any]:
    """Return a list or an array as a list. DataError for any other value."""
    values = to_builtins(value)
    if not isinstance(values, list):
        raise DataError(f"expected a list, found {type(value).__name__}", path)
    return values


def _turns(value: Any) -> list[dict[str, Any]]:
    """Return a list of mappings. DataError for any other value."""
    turns = as_list(value, "turns")
    for i, turn in enumerate(turns):
        if not isinstance(turn, dict):
            raise DataError(f"expected a mapping, found {type(turn).__name__}", f"turns[{i}]")
    return turns


# --- spans of turns ------------------------------------------------------------------------------


def runs(mask: Sequence[int]) -> list[Span]:
    """Return the runs of ones of a mask.

    >>> runs([0, 1, 1, 0, 1])
    [(1, 3), (4, 5)]
    """
    spans: list[Span] = []
    start = -1
    for i, own in enumerate(mask):
        if own and start < 0:
            start = i
        elif not own and start >= 0:
            spans.append((start, i))
            start = -1
    if start >= 0:
        spans.append((start, len(mask)))
    return spans


def spans_of_lists(turns: Sequence[Sequence[int]]) -> list[Span]:
    """Return the spans of the turns of a response that consists of their own tokens alone.

    >>> spans_of_lists([[5, 6], [7]])
    [(0, 2), (2, 3)]
    """
    spans: list[Span] = []
    at = 0
    for tokens in turns:
        spans.append((at, at + len(tokens)))
        at += len(tokens)
    return spans


def spans_in_response(ranges: Sequence[Span], prompt_tokens: int) -> list[Span]:
    """Return ranges of positions in prompt and response as spans of the response.

    Raises DataError for a range that begins inside the prompt.

    >>> spans_in_response([(10, 12), (15, 18)], 10)
    [(0, 2), (5, 8)]
    """
    for i, (start, _) in enumerate(ranges):
        if start < prompt_tokens:
            raise DataError(
                f"begins at {start}, inside the prompt of {prompt_tokens} tokens",
                f"action_ranges[{i}]",
            )
    return [(start - prompt_tokens, end - prompt_tokens) for start, end in ranges]


def turns_of_mask(
    token_ids: Sequence[int],
    mask: Sequence[int] | None,
    decode: Callable[[Sequence[int]], str],
    dialect: str = "auto",
) -> list[TurnRow]:
    """Return the turns of a response from the mask of the policy's own tokens.

    Each run of ones is a turn, and the tokens after it are its observation. The results are read
    from the observation. Without a mask, all tokens are one turn. Raises DataError if the mask and
    the tokens do not have the same length, or if no token is the policy's own.
    """
    if mask is not None and len(mask) != len(token_ids):
        raise DataError(
            f"has {len(mask)} values for {len(token_ids)} tokens: give one value per token", "mask"
        )
    return turns_of_spans(
        token_ids, [(0, len(token_ids))] if mask is None else runs(mask), decode, dialect
    )


def turns_of_spans(
    token_ids: Sequence[int],
    spans: Sequence[Span],
    decode: Callable[[Sequence[int]], str],
    dialect: str = "auto",
) -> list[TurnRow]:
    """Return the turns of a response from the spans of the policy's own tokens.

    Raises DataError if there is no span.
    """
    if not spans:
        raise DataError("contains no token of the policy", "mask")
    ends = [start for start, _ in spans[1:]] + [len(token_ids)]
    texts = [decode(token_ids[start:end]) for start, end in spans]
    observations = [
        decode(token_ids[end:after]) if after > end else None
        for (_, end), after in zip(spans, ends, strict=True)
    ]
    tags = DIALECTS.get(dialect) or dialect_of(texts, list(observations), has_tools=False)
    return [
        TurnRow(
            text=text,
            observation=observation,
            results=results_in(observation, tags) if observation and tags.block else None,
            token_span=span,
        )
        for text, observation, span in zip(texts, observations, spans, strict=True)
    ]


# --- dialects ------------------------------------------------------------------------------------


def dialect_at(reward: Recipe | Curriculum, step: int | None) -> str:
    """Return the dialect of a recipe, or of the stage of a curriculum at a training step."""
    recipe = reward.at(step or 0) if isinstance(reward, Curriculum) else reward
    return str((recipe.settings or {}).get("dialect", "auto"))


class SearchTool:
    """A search function with which an environment answers the policy, in the tags of a dialect.

    search   function from a query to a list of documents (`{id?, title?, text}`), or its
             `module:name`
    dialect  name of a dialect with tags; None and `auto` are Search-R1

    Raises UsageError for a dialect without tags.
    """

    def __init__(self, search: Retriever | str, dialect: str | None = None) -> None:
        name = "search-r1" if dialect in (None, "auto") else dialect
        if name not in DIALECTS or DIALECTS[name].block is None:
            tags = ", ".join(key for key, value in DIALECTS.items() if value.block)
            raise UsageError(f"dialect={name!r}: the environment reads tags: choose {tags}")
        self.dialect: Dialect = DIALECTS[name]
        self._search: Retriever = import_object(search) if isinstance(search, str) else search
        self._name = search if isinstance(search, str) else getattr(search, "__name__", str(search))

    def query_in(self, text: str) -> str | None:
        """Return the first query in the text of one turn, None without a query."""
        first = read_trajectory(text, None, Reading(self.dialect.name)).turns[0]
        return next(iter(first.queries), None)

    def documents(self, query: str) -> list[dict[str, Any]]:
        """Return the documents of a query, none for None. Their texts are strings.

        Raises UsageError for a document without `text`.
        """
        documents = list(self._search(query) or ())
        for document in documents:
            if "text" not in document:
                raise UsageError(
                    f"the retriever {self._name} returns a document without the key 'text' (its "
                    f"keys: {', '.join(map(str, document))}): return {{'text': …}} for each"
                )
        return [{**document, "text": str(document["text"])} for document in documents]

    def block(self, documents: Sequence[Mapping[str, Any]]) -> str:
        """Return documents as the reply to the policy."""
        return block_of(documents, self.dialect)


# --- text of tokens ------------------------------------------------------------------------------


def without_end_tokens(tokenizer: Any, ids: Sequence[int]) -> list[int]:
    """Return token ids without the end-of-sequence and padding tokens at their end."""
    ends = {tokenizer.eos_token_id, tokenizer.pad_token_id} - {None}
    length = len(ids)
    while length and ids[length - 1] in ends:
        length -= 1
    return list(ids[:length])


def response_text(tokenizer: Any, ids: Sequence[int]) -> str:
    """Return the text of a response. Special tokens stay: <think> is one in some vocabularies."""
    ids = without_end_tokens(tokenizer, ids)
    return str(tokenizer.decode(ids, skip_special_tokens=False))


def finish_reason(tokenizer: Any, ids: Sequence[int], max_length: int) -> str:
    """Return `length` if a response of the maximum length has no end token, else `stop`."""
    has_end = bool(ids) and ids[-1] == tokenizer.eos_token_id
    return "length" if len(ids) >= max_length and not has_end else "stop"


def tool_loop_limit(messages: Sequence[Mapping[str, Any]], max_turns: float) -> str | None:
    """Return the limit that ended a trainer's tool loop, or None if the model ended it.

    The loop continues until a message of the model contains no call. If the last message is a call
    or a result, the loop has reached `max_turns` messages of the model, or the next tokens do not
    fit into the response.

    >>> call, result = {"role": "assistant", "tool_calls": [{}]}, {"role": "tool"}
    >>> answer = {"role": "assistant", "content": "Seine"}
    >>> [tool_loop_limit(end, 2) for end in ([call, result, answer], [call], [call, result, call])]
    [None, 'length', 'max_turns']
    """
    last = messages[-1]
    if last["role"] == "assistant" and not last.get("tool_calls"):
        return None
    turns = sum(message["role"] == "assistant" for message in messages)
    return "max_turns" if turns >= max_turns else "length"


def opened_tag(tokenizer: Any, prompt_ids: Sequence[int]) -> str | None:
    """Return the tag that a prompt opens at its end, such as <think>, or None."""
    end = tokenizer.decode(list(prompt_ids[-_TAG_TOKENS:]), skip_special_tokens=False)
    return response_prefix_of(str(end))


def turn_header(tokenizer: Any, template: Mapping[str, Any] | None = None) -> str:
    """Return the text that the chat template writes between a tool message and the next turn.

    It is the difference between such a chat with and without the generation prompt, which verl's
    tool loop also inserts between the turns. An opened <think> is part of it. Raises UsageError if
    the template writes nothing there.
    """
    options = {"tokenize": False, **(template or {})}
    try:
        chat, chat_and_header = (
            str(
                tokenizer.apply_chat_template(_CHAT_WITH_TOOL, add_generation_prompt=add, **options)
            )
            for add in (False, True)
        )
    except Exception as error:  # a template is code of the model's authors
        raise UsageError(
            f"the chat template does not accept tool turns ({error}), {_USE_RAG_GROUP}"
        ) from error
    header = chat_and_header[len(chat) :].lstrip() if chat_and_header.startswith(chat) else ""
    if not header:
        raise UsageError(
            f"the chat template writes nothing before the model's turn, {_USE_RAG_GROUP}"
        )
    return header


def tool_message_borders(
    tokenizer: Any, template: Mapping[str, Any] | None = None
) -> tuple[str, str]:
    """Return the text that the chat template writes before and after the text of a tool message.

    Both are "" if the template does not accept tool messages. White space at their ends is removed.
    """
    options = {"tokenize": False, **(template or {})}
    marked = [*_CHAT_WITH_TOOL[:2], {**_CHAT_WITH_TOOL[2], "content": _MARKER}]
    try:
        chat = str(tokenizer.apply_chat_template(_CHAT_WITH_TOOL[:2], **options))
        whole = str(tokenizer.apply_chat_template(marked, add_generation_prompt=True, **options))
    except Exception:  # a template is code of the model's authors
        return "", ""
    start = len(chat) if whole.startswith(chat) else 0
    before, marker, after = whole[start:].partition(_MARKER)
    return (before.strip(), after.strip()) if marker else ("", "")


def last_turn(text: str, header: str) -> str:
    """Return the last assistant message of a response with tool turns.

    verl's tool loop ends with a turn of the model, so all text after the last header is that of
    the model, whatever a tool returns. If the model writes the header itself, the text before it
    is lost. Raises DataError if the text does not contain the header.
    """
    _, separator, last = text.rpartition(header)
    if not separator:
        raise DataError(
            f"has several turns, but does not contain {header!r} of the chat template, "
            f"{_USE_RAG_GROUP}",
            "response",
        )
    return last
