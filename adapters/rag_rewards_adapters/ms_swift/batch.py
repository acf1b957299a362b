"""One batch, as ms-swift passes it to a reward function, and its completions as fields of rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from rag_rewards.errors import DataError, GroupError, UsageError
from rag_rewards.groups import positions_by_key
from rag_rewards.rows.columns import to_builtins
from rag_rewards_adapters.reading import response_text, spans_of_lists

T = TypeVar("T")


class Batch:
    """The completions of one call. If a request has several samples (turns), the last is scored."""

    def __init__(self, completions: Sequence[Any], columns: Mapping[str, Any]) -> None:
        self.completions = completions
        self.updates: int | None = getattr(columns.get("trainer_state"), "global_step", None)
        lists = {
            name: to_builtins(values) if hasattr(values, "tolist") else values
            for name, values in columns.items()
        }
        self.columns: dict[str, Sequence[Any]] = {
            name: values for name, values in lists.items() if isinstance(values, (list, tuple))
        }
        requests = self.columns.get("request_id") or range(len(completions))
        self._requests = [
            i if request in (None, "") else request for i, request in enumerate(requests)
        ]
        last = {request: i for i, request in enumerate(self._requests)}
        self.positions = sorted(last.values())
        self._index = {self._requests[i]: index for index, i in enumerate(self.positions)}

    @property
    def step(self) -> int | None:
        """The first optimizer step that trains the batch, as the trainer's log counts them.

        A reward does not learn whether ms-swift evaluates, which has the number of the next step.
        """
        return None if self.updates is None else self.updates + 1

    def value(self, column: str, position: int) -> Any:
        """Return a value of a column, or None if the batch does not have the column."""
        values = self.columns.get(column)
        return None if values is None else values[position]

    @property
    def prompts(self) -> dict[str, list[int]]:
        """The scored completions of each prompt. Raises GroupError without prompt ids."""
        prompts = [self.value("prompt_id", i) for i in self.positions]
        if not all(prompts):
            raise GroupError("prompt_id is missing: use ms-swift 4.0 or later, which provides it")
        return positions_by_key(map(str, prompts))

    def for_all_samples(self, values: Sequence[T]) -> list[T]:
        """Return the value of each sample: that of the scored sample of its request."""
        return [values[self._index[request]] for request in self._requests]


# --- completions -------------------------------------------------------------------------------


def completion_fields(
    completion: Any, messages: Sequence[Mapping[str, Any]], ids: Sequence[Any], *, has_turns: bool
) -> dict[str, Any]:
    """Return the prompt, the response and its token ids as fields of a row.

    ids        lists of token ids, one for each turn
    has_turns  whether the response is a conversation with a turn for each list of token ids

    Raises DataError if the assistant messages are not those of the lists.
    """
    if not has_turns:
        last = ids[-1] if ids and isinstance(ids[-1], list) else None
        return {"prompt": messages[:-1], "response": completion, "response_token_ids": last}
    own = [i for i, message in enumerate(messages) if message.get("role") == "assistant"]
    own = own[-len(ids) :]
    if len(own) != len(ids):
        raise DataError(
            f"has {len(own)} assistant messages for {len(ids)} lists of token ids", "messages"
        )
    spans = dict(zip(own, spans_of_lists(ids), strict=True))
    response = [
        dict(message, token_span=spans[i]) if i in spans else dict(message)
        for i, message in enumerate(messages)
    ]
    return {
        "prompt": messages[: own[0]],
        "response": response[own[0] :],
        "response_token_ids": [token for turn in ids for token in turn],
    }


class MessageTexts:
    """Reads messages with the tokenizer of the model. `args` are the arguments of the trainer.

    After each turn but the last, ms-swift replaces the text of the policy's message by its token
    ids (swift/rollout/multi_turn.py, set_assistant_message_token_ids).
    """

    def __init__(self, args: Any) -> None:
        self._args = args

    def of(self, messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the messages with texts for token ids. UsageError if the model is unknown."""
        return [self._with_text(message) for message in messages]

    def _with_text(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        ids = token_ids(message.get("content"))
        if ids is None or message.get("role") != "assistant":
            return message
        return {**message, "content": response_text(self._tokenizer, ids)}

    @cached_property
    def _tokenizer(self) -> Any:
        """The tokenizer of the model that the trainer trains.

        The arguments that a reward gets do not contain the model. ms-swift writes those that do to
        `args.json` in the output folder, before it creates the trainer. `model_dir` is the folder
        of the model on this machine, also if `--model` is a name of a hub.
        """
        from swift.arguments import BaseArguments

        folder = getattr(self._args, "output_dir", None) or "output_dir"
        file = Path(folder, "args.json")
        if not file.exists():
            raise UsageError(
                "the messages of a multi-turn scheduler contain token ids, and the model with "
                f"their tokenizer is unknown: {file} does not exist. Create the reward with the "
                "arguments of the trainer, as in RagReward(args=args), and share the folder "
                "--output_dir between all machines"
            )
        model = json.loads(file.read_text(encoding="utf-8"))["model_dir"]
        arguments = BaseArguments.from_pretrained(folder)
        _, processor = arguments.get_model_processor(model=model, load_model=False)
        return getattr(processor, "tokenizer", processor)


def token_ids(content: Any) -> list[int] | None:
    """Return the token ids of a message, None if its content is a text or a list of parts.

    >>> token_ids([5, 6]), token_ids({"token_ids": [5]}), token_ids("text"), token_ids([])
    ([5, 6], [5], None, None)
    """
    ids = content.get("token_ids") if isinstance(content, Mapping) else content
    if not isinstance(ids, Sequence) or isinstance(ids, str) or not ids:
        return None
    return list(ids) if all(type(token) is int for token in ids) else None
