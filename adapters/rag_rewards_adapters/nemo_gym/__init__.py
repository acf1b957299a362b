"""NeMo Gym: the row of a verify request, and its reward. It imports nothing of NeMo Gym.

`RagRewardsServer` in server.py is the resources server. `rag-rewards init nemo-gym` writes its
folder and its configuration, and `rag-rewards prepare -t nemo-gym` the data. The request is that of
NVIDIA-NeMo/Gym 0.4.0: `nemo_gym/base_resources_server.py` (BaseVerifyRequest) and
`responses_api_agents/simple_agent/app.py` (run).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rag_rewards.errors import BackendError, DataError, RolloutError
from rag_rewards.rollout import Rollout, Score
from rag_rewards.scorer import Scorer
from rag_rewards_adapters.reading import read_rollout
from rag_rewards_adapters.scoring import SingleRecipe, component_metrics

ROW = "verifier_metadata"
"""Field of a request with the fields of the question."""
RETRIEVER_ERROR = "rag_rewards_error"
"""Key of the JSON object that the tool `search` returns if the retriever fails."""


class Verifier:
    """A recipe that scores verify requests.

    options  the recipe, its settings and its models, with the names of the command line

    Raises UsageError for a recipe that compares the rollouts of a group and for a curriculum,
    because a request contains one rollout and no training step.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.scorer = Scorer.load(options)
        self._recipe = SingleRecipe(
            self.scorer,
            "NeMo Gym",
            for_groups="choose another recipe, or a trainer that passes complete groups",
            for_stages="configure a server for each stage",
        )

    async def score(self, request: Mapping[str, Any]) -> Score:
        """Return the score of a request. Raises RolloutError for an unscored rollout."""
        return await self._recipe.score(rollout_of(request))

    def fields(self, score: Score) -> dict[str, Any]:
        """Return the fields of a verify response that `score` determines.

        `reward_components` contains the components that have a value. The metrics of NeMo Gym do
        not read it, so each component is also a field `recipe/component`.
        """
        name = self.scorer.reward.name
        present = {key: value for key, value in score.components.items() if value is not None}
        fields: dict[str, Any] = {**component_metrics(name, score)}
        if score.correct is not None:
            fields[f"{name}/correct"] = float(score.correct)
        return {"reward": float(score.value or 0.0), "reward_components": present, **fields}


def rollout_of(request: Mapping[str, Any]) -> Rollout | RolloutError:
    """Return the rollout of a verify request, or its error."""
    row = request.get(ROW)
    if not isinstance(row, Mapping):
        return DataError("missing: write the data with `rag-rewards prepare -t nemo-gym`", ROW)
    prompt = _prompt(request["responses_create_params"].get("input"))
    response = request["response"]
    messages = messages_of(response.get("output") or [])
    if error := _retriever_error(messages):
        failure = BackendError(f"the retriever failed: {error}")
        failure.row = str(row["id"]) if "id" in row else None
        return failure
    return read_rollout(
        row,
        prompt,
        response=_text_or_messages(messages),
        finish_reason=_finish_reason(response, messages),
    )


def messages_of(output: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the items of a response of the Responses API as chat messages.

    A reasoning item becomes a thinking section of the message that follows it. Consecutive items of
    the model are one message. Items of other types are ignored.

    >>> messages_of([{"type": "function_call", "call_id": "1", "name": "search",
    ...               "arguments": "{}"},
    ...              {"type": "function_call_output", "call_id": "1", "output": "[]"}])[1]
    {'role': 'tool', 'tool_call_id': '1', 'content': '[]'}
    """
    messages: list[dict[str, Any]] = []
    for item in output:
        match item.get("type"):
            case "reasoning":
                _own(messages)["content"] += f"<think>{_parts(item.get('summary'))}</think>"
            case "message" if item.get("role") == "assistant":
                _own(messages)["content"] += _parts(item.get("content"))
            case "message":
                messages.append({"role": item.get("role"), "content": _parts(item.get("content"))})
            case "function_call":
                _own(messages).setdefault("tool_calls", []).append(_call(item))
            case "function_call_output":
                text = item.get("output")
                messages.append(
                    {
                        "role": "tool",
                        "tool_call_id": item.get("call_id"),
                        "content": text if isinstance(text, str) else _parts(text),
                    }
                )
    return messages


def _own(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the message of the model at the end, or add an empty one."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    return messages[-1]


def _call(item: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": item.get("name"), "arguments": item.get("arguments")}
    return {"id": item.get("call_id"), "type": "function", "function": function}


def _parts(content: Any) -> str:
    """Return the text of a content: text, or parts of type output_text, summary_text and others."""
    if isinstance(content, str):
        return content
    parts = (part.get("text") or part.get("refusal") for part in content or [])
    return "".join(part for part in parts if isinstance(part, str))


def _prompt(messages: Any) -> list[dict[str, str]]:
    """Return the input of a request as a chat."""
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    return [
        {"role": item["role"], "content": _parts(item.get("content"))}
        for item in messages or []
        if item.get("role")
    ]


def _text_or_messages(messages: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Return the text of one message without calls, else the messages.

    A model that wrote nothing has an empty response.
    """
    if not any(message["role"] == "assistant" for message in messages):
        return ""
    if len(messages) == 1 and "tool_calls" not in messages[0]:
        return str(messages[0]["content"])
    return messages


def _finish_reason(response: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> str:
    if response.get("incomplete_details"):
        return "length"
    return "max_turns" if messages and messages[-1]["role"] == "tool" else "stop"


def _retriever_error(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the error that the tool `search` returned, if it failed."""
    for message in messages:
        if message["role"] != "tool" or RETRIEVER_ERROR not in message["content"]:
            continue
        try:
            value = msgspec.json.decode(message["content"])
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            continue
        if isinstance(value, dict) and RETRIEVER_ERROR in value:
            return str(value[RETRIEVER_ERROR])
    return None
