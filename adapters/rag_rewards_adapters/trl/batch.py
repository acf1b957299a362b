"""One batch, as GRPOTrainer passes it to a reward function, and its completions as fields of rows.

A completion has turns if TRL's tool loop or a `rollout_func` generated it:

messages       with tools, TRL passes the messages of the conversation; each assistant message is a
               turn, and its tokens are a run of the mask
turns          column that a `rollout_func` returns, with the turns of each completion as in a row
token_span     column that a `rollout_func` returns: for each completion, the span of each turn
response_mask  1 for own tokens of the policy, 0 for others. `TurnGRPOTrainer` adds this column
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from rag_rewards.errors import BackendError, DataError, RolloutError
from rag_rewards.rollout import Rollout
from rag_rewards.rows.columns import GOLD_FIELDS, response_prefix_of, to_builtins
from rag_rewards_adapters.reading import (
    Span,
    as_list,
    response_text,
    runs,
    tool_loop_limit,
    turns_of_mask,
    with_spans,
)
from rag_rewards_adapters.trl.trainer_settings import TrainerSettings

_TOKEN_COLUMNS = ("token_span", "response_mask", "prompt_token_ids")
"""The columns that describe the tokens of a completion."""


@dataclass(frozen=True)
class Batch:
    """The arguments of a reward function: lists with one value per completion."""

    prompts: Sequence[Any]
    completions: Sequence[Any]
    completion_ids: Sequence[Sequence[int]] | None = None
    trainer_state: Any = None
    log_extra: Any = None
    log_metric: Any = None
    environments: Sequence[Any] | None = None
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, **arguments: Any) -> Batch:
        named = {
            name: arguments.pop(name) for name in cls.__dataclass_fields__ if name in arguments
        }
        return cls(**named, columns=arguments)

    @property
    def positions(self) -> range:
        return range(len(self.prompts))

    @property
    def updates(self) -> int | None:
        return getattr(self.trainer_state, "global_step", None)

    def check_environment(self, position: int) -> None:
        """Raise BackendError if the environment of a completion has an `environment_error`."""
        environment = self.environments[position] if self.environments else None
        if error := getattr(environment, "environment_error", None):
            raise BackendError(f"the environment failed in this rollout: {error}")

    def tokens(self, position: int) -> dict[str, list[Any]]:
        """Return what the columns state about the tokens of a completion.

        Raises DataError for a value that is not a list.
        """
        columns = {name: self.columns.get(name) for name in _TOKEN_COLUMNS}
        return {
            name: as_list(values[position], name)
            for name, values in columns.items()
            if values is not None and values[position] is not None
        }


def gold_column(fields: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return the gold fields of each completion as JSON; empty if the data set has none.

    With this column, the files of `log_completions` can be scored again. The value of a completion
    is null if its gold fields are no JSON, so that it is unscored.

    >>> gold_column({"answers": [["Seine"]], "url": ["…"]})
    ['{"answers":["Seine"]}']
    """
    gold = {name: fields[name] for name in GOLD_FIELDS if name in fields}
    rows = zip(*gold.values(), strict=True)
    return [_json(dict(zip(gold, row, strict=True))) for row in rows]


def _json(fields: Mapping[str, Any]) -> str:
    try:
        return msgspec.json.encode(to_builtins(fields)).decode()
    except (RolloutError, TypeError, ValueError, OverflowError):
        return "null"


# --- completions -------------------------------------------------------------------------------


@dataclass(frozen=True)
class CompletionReader:
    """Reads completions with the settings and the tokenizer of a trainer, which may be unknown.

    prefix     the tag that the prompt opens; None reads it from the prompt or the chat template
    settings   the settings of the trainer, None before `bind`
    tokenizer  the tokenizer of the trainer, None before `bind` and in another process
    """

    prefix: str | None
    settings: TrainerSettings | None
    tokenizer: Any

    def fields(
        self, batch: Batch, position: int, turns: Any = None, dialect: str | None = None
    ) -> dict[str, Any]:
        """Return the fields of a row that the trainer sets: the prompt, the response and its end.

        turns    the turns of the completion in the data of its row
        dialect  how turns are read; None reads only the last message

        Raises DataError if the tokens do not fit the turns.
        """
        prompt, completion = batch.prompts[position], batch.completions[position]
        ids = None if batch.completion_ids is None else list(batch.completion_ids[position])
        if dialect is not None:
            tokens = batch.tokens(position)
            fields = self._turns(completion, turns, ids, tokens, dialect)
            if fields is not None:
                return {
                    "prompt": prompt,
                    "response_prefix": self._prompt_prefix(prompt),
                    "prompt_token_ids": tokens.get("prompt_token_ids"),
                    "response_token_ids": ids,
                    "finish_reason": self._finish_reason(ids, fields.get("response")),
                    **fields,
                }
        prompt, last = last_message(prompt, completion)
        # With tool turns, the ids are those of the whole conversation.
        own = ids if last is completion else None
        response, prefix = self._response(last, own, self._prompt_prefix(prompt))
        return {
            "prompt": prompt,
            "response": response,
            "response_prefix": prefix,
            "response_token_ids": own,
            "finish_reason": self._finish_reason(ids),
        }

    def _prompt_prefix(self, prompt: Any) -> str | None:
        """Return the tag that a prompt opens for the model."""
        if self.prefix is not None:
            return self.prefix
        if isinstance(prompt, str):
            return response_prefix_of(prompt)
        return self.settings.response_prefix if self.settings else None

    def _response(
        self, completion: Any, ids: Sequence[int] | None, prefix: str | None
    ) -> tuple[Any, str | None]:
        """Return the response with its thoughts, and the tag that the prompt opened for it.

        A tokenizer with a response template separates thoughts from the text, with an opened tag.
        """
        if isinstance(completion, str) or len(completion) != 1:
            return completion, prefix
        message = completion[0]
        thought = message.get("reasoning_content") or message.get("thinking")
        is_parsed = thought or (self.settings is not None and self.settings.parses_thoughts)
        if not is_parsed:
            return completion, prefix
        if ids is not None and self.tokenizer is not None:
            return self.tokenizer.decode(ids, skip_special_tokens=True), prefix
        content = message.get("content") or ""
        return (f"<think>{thought}</think>{content}" if thought else content), None

    def _finish_reason(
        self, ids: Sequence[int] | None, messages: Sequence[Mapping[str, Any]] | None = None
    ) -> str | None:
        """Return `length` or `max_turns` if a limit ended the response, else `stop`.

        The reason depends on the last token and on the messages of the tool loop. It is None if it
        is not known.
        """
        if self.settings is None or not ids:
            return None
        if ids[-1] not in self.settings.end_tokens:
            return "length"
        if messages is None or self.settings.max_turns is None:
            return "stop"
        return tool_loop_limit(messages, self.settings.max_turns) or "stop"

    def _turns(
        self,
        completion: Any,
        turns: Any,
        ids: Sequence[int] | None,
        tokens: Mapping[str, Any],
        dialect: str,
    ) -> dict[str, Any] | None:
        """Return the fields `turns` or `response` of a row, None for a plain completion."""
        mask = tokens.get("response_mask")
        if turns is not None:
            return {"turns": with_spans(turns, tokens)}
        if not isinstance(completion, str) and _is_conversation(completion):
            return {"response": _messages_with_spans(completion, mask)}
        if mask is None or ids is None or self.tokenizer is None:
            return None
        decode = partial(response_text, self.tokenizer)
        return {"turns": turns_of_mask(ids, mask, decode, dialect)}


def last_message(prompt: Any, completion: Any) -> tuple[Any, Any]:
    """Return all before the last assistant message of a completion with tool turns, and it."""
    if isinstance(completion, str) or isinstance(prompt, str) or len(completion) < 2:
        return prompt, completion
    own = [i for i, message in enumerate(completion) if message["role"] == "assistant"]
    if not own:
        return prompt, completion
    return [*prompt, *completion[: own[-1]]], [completion[own[-1]]]


def _is_conversation(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether there are several messages, or a tool call."""
    return len(messages) > 1 or any(message.get("tool_calls") for message in messages)


def _messages_with_spans(
    messages: Sequence[Mapping[str, Any]], mask: Sequence[int] | None
) -> list[dict[str, Any]]:
    """Return messages with the runs of the mask as the spans of the assistant messages."""
    own = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    spans: Sequence[Span | None] = [None] * len(own) if mask is None else runs(mask)
    if len(spans) != len(own):
        raise DataError(
            f"has {len(own)} assistant messages for {len(spans)} runs of own tokens: return the "
            "columns turns and token_span",
            "response",
        )
    result = [_message(message) for message in messages]
    for i, span in zip(own, spans, strict=True):
        if span is not None:
            result[i]["token_span"] = list(span)
    return result


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message with the names of the OpenAI chat format."""
    renamed = {"thinking": "reasoning_content"}
    return {renamed.get(name, name): value for name, value in message.items() if value is not None}


def has_unopened_thoughts(rollouts: Iterable[Rollout | RolloutError]) -> bool:
    """Return whether a response closes <think>, and neither it nor its prompt opens it."""
    for rollout in rollouts:
        if isinstance(rollout, RolloutError) or rollout.response_prefix is not None:
            continue
        text = _text(rollout.response)
        if "</think>" in text and "<think>" not in text:
            return True
    return False


def _text(response: Any) -> str:
    return response if isinstance(response, str) else "".join(m.text for m in response)
