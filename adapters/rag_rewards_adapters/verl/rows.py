"""verl's columns, token ids and outputs as rollouts, and scores as verl's numbers.

An agent loop has the mask of the policy's own tokens, whose runs are the turns. `tool_agent` does
not return its messages, so its calls are parsed with the parser of verl
(`rollout.multi_turn.format`), and the text of the chat template around a tool message is removed.
For other loops, the dialect of the recipe reads queries and results, unless the loop returns
`turns` in its `extra_fields`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

from rag_rewards.errors import DataError, RolloutError, UsageError
from rag_rewards.recipe_object import Recipe
from rag_rewards.rollout import Rollout, Score
from rag_rewards.rows.columns import DATASET_FIELDS, label_fields, rollout_from_columns, to_builtins
from rag_rewards.rows.decisions import decisions_of, undecided_share
from rag_rewards.scorer import Scorer
from rag_rewards.training.curriculum import Curriculum
from rag_rewards.turns.actions import visible_words
from rag_rewards_adapters.reading import (
    dialect_at,
    finish_reason,
    opened_tag,
    response_text,
    runs,
    tool_loop_limit,
    tool_message_borders,
    turns_of_mask,
    with_spans,
)

TOOL_AGENT = "tool_agent"
_TAGS = ("tool_call", "tool_calls", "tool_calls_section")
"""The names of the tags around calls in the parsers of verl. That of gpt-oss has none of them."""


# --- columns -----------------------------------------------------------------------------------


def row_fields(ground_truth: Any, *extra: Any) -> dict[str, Any]:
    """Return the fields of a row, without those that are None.

    Fields of `ground_truth` take precedence over those of `extra`, and later mappings of `extra`
    over earlier ones. The id is that of the data set: `id`, else `index`.

    >>> row_fields('{"answers": ["Seine"]}', {"index": 3, "question": "Which river?"})
    {'question': 'Which river?', 'id': 3, 'answers': ['Seine']}
    """
    values: dict[str, Any] = {}
    for information in extra:
        if isinstance(information, Mapping):
            values.update((key, value) for key, value in information.items() if value is not None)
    fields = {name: values[name] for name in values if name in DATASET_FIELDS}
    if "id" not in fields and "index" in values:
        fields["id"] = values["index"]
    try:
        gold = label_fields(ground_truth)
    except DataError as error:
        error.row = str(fields["id"]) if "id" in fields else None
        error.path = "reward_model.ground_truth"
        raise
    fields.update((name, value) for name, value in gold.items() if value is not None)
    return fields


def rollout_from_row(columns: Mapping[str, Any], **trainer: Any) -> Rollout | RolloutError:
    """Return a rollout from the columns of a data set, as agent loops and reward managers get them.

    `reward_model.ground_truth` takes precedence over `tool_extra_fields` (set by the agent loop),
    and these over `extra_info`. `trainer` contains the fields of the trainer (response,
    finish_reason, …).
    """
    truth = columns.get("reward_model")
    truth = truth.get("ground_truth") if isinstance(truth, Mapping) else None
    try:
        fields = row_fields(truth, columns.get("extra_info"), columns.get("tool_extra_fields"))
        step = to_builtins(columns.get("global_steps"))
    except RolloutError as error:
        return error.with_traceback(None)
    return rollout_from_columns(fields, **{"step": step, **trainer})


# --- token ids ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class RolloutReader:
    """Reads rollouts from token ids.

    tokenizer  the tokenizer of the trainer
    config     `actor_rollout_ref.rollout` of verl's configuration
    template   arguments of the chat template
    """

    tokenizer: Any
    config: Any
    template: Mapping[str, Any] = field(default_factory=dict)

    def rollout(
        self,
        columns: Mapping[str, Any],
        prompt: Sequence[int],
        response: Sequence[int],
        fields: Mapping[str, Any],
    ) -> Rollout | RolloutError:
        """Return a rollout with the prompt of the policy. `fields` are those of the response."""
        limit = response_limit(self.config, len(prompt))
        try:
            messages = to_builtins(columns.get("raw_prompt"))
        except RolloutError as error:
            return with_row_id(error, columns)
        reason = finish_reason(self.tokenizer, response, limit)
        return rollout_from_row(columns, **{"prompt": messages, "finish_reason": reason, **fields})

    async def of_output(
        self, output: Any, columns: Mapping[str, Any], reward: Recipe | Curriculum, inner: str
    ) -> Rollout | RolloutError:
        """Return an output of the agent loop `inner`, with the turns if the reward reads them."""
        columns = {**columns, "tool_extra_fields": output.extra_fields}
        fields: dict[str, Any] = {
            "group": str(columns["uid"]),
            "weight_version": _weight_version(output.extra_fields),
            "prompt_token_ids": tuple(output.prompt_ids),
        }
        try:
            if columns.get("raw_prompt") is None:
                raise DataError("missing", "raw_prompt")
            if any(recipe.reads_turns for recipe in reward.recipes):
                dialect = dialect_at(reward, to_builtins(columns.get("global_steps")))
                fields["response_prefix"] = opened_tag(self.tokenizer, output.prompt_ids)
                fields["response_token_ids"] = tuple(output.response_ids)
                fields |= await self._turn_fields(output, inner, dialect)
            else:
                fields |= self._response_fields(output)
        except RolloutError as error:
            return with_row_id(error, columns)
        return self.rollout(columns, output.prompt_ids, output.response_ids, fields)

    # --- responses -----------------------------------------------------------------------------

    def _response_fields(self, output: Any) -> dict[str, Any]:
        """Return one turn as text with its tokens, and several turns as messages."""
        turns = list(_turns(output.response_ids, output.response_mask))
        own = [i for i, (is_model, _) in enumerate(turns) if is_model]
        before = turns[own[-1] - 1][1] if own and own[-1] else output.prompt_ids
        fields = {"response_prefix": opened_tag(self.tokenizer, before)}
        if len(turns) == 1 and own:
            ids = turns[0][1]
            text = response_text(self.tokenizer, ids)
            return {"response": text, "response_token_ids": tuple(ids), **fields}
        messages = [
            {"role": "assistant", "content": response_text(self.tokenizer, ids)}
            if is_model
            else {"role": "tool", "content": self._decode(ids)}
            for is_model, ids in turns
        ]
        return {"response": messages if own else "", **fields}

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=False))

    # --- turns ---------------------------------------------------------------------------------

    async def _turn_fields(self, output: Any, inner: str, dialect: str) -> dict[str, Any]:
        """Return the turns of an output as fields of a row: `turns`, or messages as `response`.

        The fields contain `finish_reason` if `tool_agent` ended at a limit. Raises DataError for an
        output without own tokens.
        """
        ids, mask = list(output.response_ids), list(output.response_mask)
        if (turns := output.extra_fields.get("turns")) is not None:
            return {"turns": with_spans(turns, {"response_mask": mask})}
        if inner != TOOL_AGENT or dialect not in ("auto", "tools"):
            decode = partial(response_text, self.tokenizer)
            return {"turns": turns_of_mask(ids, mask, decode, dialect)}
        parser = self._parser()
        messages = await self._messages(ids, mask, parser)
        limit = tool_loop_limit(messages, _max_turns(self.config.multi_turn))
        if limit is None:  # verl found no call in the last message
            messages[-1].update(_unread_call(parser, messages[-1]["content"]))
            return {"response": messages}
        return {"response": messages, "finish_reason": limit}

    def _parser(self) -> Any:
        """Return verl's parser of tool calls. UsageError for an unknown format."""
        from verl.experimental.agent_loop.tool_parser import ToolParser

        try:
            return ToolParser.get_tool_parser(str(self.config.multi_turn.format), self.tokenizer)
        except ValueError as error:
            raise UsageError(f"actor_rollout_ref.rollout.multi_turn.format: {error}") from None

    async def _messages(self, ids: list[int], mask: list[int], parser: Any) -> list[dict[str, Any]]:
        """Return the assistant messages with their calls, and the tool messages between them."""
        spans = runs(mask)
        if not spans:
            raise DataError("contains no token of the policy", "response_mask")
        before, after = tool_message_borders(self.tokenizer, self.template)
        messages: list[dict[str, Any]] = []
        ends = [start for start, _ in spans[1:]] + [len(ids)]
        for (start, end), following in zip(spans, ends, strict=True):
            content, calls = await parser.extract_tool_calls(ids[start:end], [])
            text = response_text(self.tokenizer, ids[start:end])
            message = {"role": "assistant", "content": text, "token_span": [start, end]}
            if calls:
                end_text = self.tokenizer.eos_token or ""
                message["content"] = content.strip().removesuffix(end_text).rstrip()
                message["tool_calls"] = self._calls(calls)
            messages.append(message)
            if following > end:
                reply = self._decode(ids[end:following]).strip()
                reply = reply.removeprefix(before).removesuffix(after).strip()
                messages.append({"role": "tool", "content": reply})
        return messages

    def _calls(self, calls: Sequence[Any]) -> list[dict[str, Any]]:
        """Return the calls of a turn. verl does not execute those beyond its limit.

        These ask the environment nothing, so their arguments are empty.
        """
        executed = len(calls[: self.config.multi_turn.max_parallel_calls])
        arguments = [call.arguments if i < executed else "{}" for i, call in enumerate(calls)]
        return [
            {"type": "function", "function": {"name": call.name, "arguments": values}}
            for call, values in zip(calls, arguments, strict=True)
        ]


def response_limit(rollout: Any, prompt_tokens: int) -> int:
    """Return the greatest number of tokens of a response, from verl's configuration of rollouts.

    The engines limit the prompt and the response together to `prompt_length + response_length` and
    to `max_model_len` tokens. SGLang leaves one token of the latter free (verl,
    `async_sglang_server.py`).
    """
    length = int(rollout.response_length)
    context = int(rollout.prompt_length) + length
    if rollout.get("max_model_len") is not None:
        free = int(rollout.get("name") == "sglang")
        context = min(context, int(rollout.max_model_len) - free)
    return min(length, context - prompt_tokens)


def with_row_id(error: RolloutError, columns: Mapping[str, Any]) -> RolloutError:
    """Return the error with the id of its row in the data set."""
    extra = columns.get("extra_info")
    fields = extra if isinstance(extra, Mapping) else {}
    row = fields.get("id", fields.get("index"))
    error.row = None if row is None else str(row)
    return error.with_traceback(None)


def _turns(ids: Sequence[int], mask: Sequence[int]) -> Iterator[tuple[bool, list[int]]]:
    """Yield the turns of a response: whether the model wrote it, and its tokens.

    >>> list(_turns([5, 6, 7, 8], [1, 1, 0, 1]))
    [(True, [5, 6]), (False, [7]), (True, [8])]
    """
    pairs = zip(mask, ids, strict=True)
    for is_model, turn in groupby(pairs, key=lambda pair: bool(pair[0])):
        yield is_model, [token for _, token in turn]


def _unread_call(parser: Any, text: str) -> dict[str, Any]:
    """Return the field `tool_calls` of a message with a complete call that verl could not read.

    verl ends its loop at such a message. Tags inside thinking are no call. The field is missing for
    a message without the tags of the parser.
    """
    words = visible_words(text)
    for name in _TAGS:
        start, end = (getattr(parser, f"{name}_{side}_token", None) for side in ("start", "end"))
        if start and end:
            _, _, rest = words.partition(start)
            call, closing, _ = rest.partition(end)
            if closing:
                return {"tool_calls": [{"type": "function", "function": call}]}
    return {}


def _max_turns(multi_turn: Any) -> float:
    """Return the greatest number of messages of the model. 0 and null are no limit."""
    own, replies = multi_turn.max_assistant_turns, multi_turn.max_user_turns
    return min(own or math.inf, (replies or math.inf) + 1)


def _weight_version(fields: Mapping[str, Any]) -> str | int | None:
    """Return the training step of the weights, or the first and the last of several."""
    first, last = fields.get("min_global_steps"), fields.get("max_global_steps")
    if first is None or first == last:
        return None if last is None else int(last)
    return f"{first}-{last}"


# --- scores ------------------------------------------------------------------------------------


def extra_numbers(score: Score, scorer: Scorer) -> dict[str, float]:
    """Return the extra information of a rollout: its components, `acc` and `undecided`.

    `acc` is present if the recipe defines a correct answer, and `undecided` if it decides on
    answers. All rollouts have the same keys; a missing value is NaN.
    """
    values = dict(score.components)
    if defines_correct(scorer.reward):
        values["acc"] = score.correct
    if scorer.decides_answers:
        values["undecided"] = undecided_share(decisions_of([score]))
    return {name: math.nan if value is None else float(value) for name, value in values.items()}


def defines_correct(reward: Recipe | Curriculum) -> bool:
    """Return whether a recipe, or any stage of a curriculum, defines a correct answer."""
    return any(recipe.correct is not None for recipe in reward.recipes)
