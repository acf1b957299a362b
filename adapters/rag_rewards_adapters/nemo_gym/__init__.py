"""NeMo Gym: the row of a verify request, its group, and its reward. It imports nothing of NeMo Gym.

`RagRewardsServer` in server.py is the resources server. `rag-rewards init nemo-gym` writes its
folder and its configuration, and `rag-rewards prepare -t nemo-gym` the data. The request is that of
NVIDIA-NeMo/Gym 0.4.0: `nemo_gym/base_resources_server.py` (BaseVerifyRequest),
`responses_api_agents/simple_agent/app.py` (run) and `nemo_gym/rollout_collection.py` (the indices
of a rollout, and `_ng_failure_class`). The fields of NeMo RL are those of 7ea279a:
`nemo_rl/experience/rollouts.py` (`_rowidx` and `mask_sample`).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakSet

import msgspec

from rag_rewards.errors import (
    BackendError,
    DataError,
    GroupError,
    RolloutError,
    RowError,
    ScoringError,
    UsageError,
    plain,
)
from rag_rewards.rollout import EVIDENCE_FIELDS, Rollout, Score
from rag_rewards.rows import NOT_JSON
from rag_rewards.scorer import Scorer
from rag_rewards.training.advantages import advantages_of_groups
from rag_rewards.training.turn_sums import TurnSums
from rag_rewards_adapters.reading import read_rollout, with_errors
from rag_rewards_adapters.scoring import (
    FIRST_ROLLOUTS,
    SearchCheck,
    check_scope,
    component_metrics,
    with_value,
)
from rag_rewards_adapters.session_groups import SessionGroup, SessionGroups

log = logging.getLogger("rag_rewards")

ROW = "verifier_metadata"
"""Field of a request with the fields of the question."""
RETRIEVER_ERROR = "rag_rewards_error"
"""Key of the JSON object that the tool `search` returns if the retriever fails."""
FAILURE_CLASS = "_ng_failure_class"
"""Key of the failure class in the result of a failed rollout, which NeMo Gym reads."""
EVIDENCE = "rag_rewards_evidence"
"""Key of the evidence in the metadata of a response that can be verified again without models."""
ROW_ERRORS = (DataError, RowError, ScoringError)
"""Errors of the row itself. Others are failures of a model, of the retriever, or of the group."""
DEADLINE = 3600.0
"""Seconds for which the first rollout of a prompt waits for the others."""
PATIENCE = 1000
"""Number of consecutive failures from which the failure of a rollout is an error."""
WAITING = 65_536
"""Number of rollouts that may wait for their groups, and of results for repeated requests."""
REPEAT = 5.0
"""Seconds in which a repeated request gets the failure of the first one. Later, it is verified."""


class RetrieverError(BackendError):
    """The retriever failed while the policy searched."""


@dataclass(frozen=True)
class Result:
    """The score of a rollout, its reward or its advantage, and the evidence to keep."""

    score: Score
    reward: float
    evidence: Mapping[str, Any] | None = None


class Verifier:
    """A recipe that scores verify requests.

    options         the recipe, its settings and its models, with the names of the command line
    group_size      number of rollouts of a prompt that are scored together; None scores single ones
    group_deadline  seconds for which the first rollout of a prompt waits for the others
    std_floor       return (R − mean)/max(std, floor) within the group, the advantage of LEAR
    patience        number of consecutive failures from which a failure is an error. A group that
                    fails counts once
    keep_evidence   write the outputs of models into the metadata of the response, so that it can be
                    verified again without the models

    Raises UsageError for a recipe that compares the rollouts of a group and for `std_floor` without
    `group_size`, and for a curriculum, because a request contains no training step.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        group_size: int | None = None,
        group_deadline: float = DEADLINE,
        std_floor: float | None = None,
        patience: int = PATIENCE,
        keep_evidence: bool = False,
    ) -> None:
        self.scorer = Scorer.load(options)
        way = "set group_size to the number of rollouts of a prompt"
        check_scope(
            self.scorer.reward,
            "NeMo Gym",
            for_groups="" if group_size else way,
            for_stages="configure a server for each stage",
        )
        if std_floor is not None and not group_size:
            raise UsageError(f"std_floor compares the rollouts of a prompt: {way}")
        self.group_size, self.group_deadline = group_size, group_deadline
        self.std_floor, self.patience = std_floor, patience
        self.keep_evidence = keep_evidence
        self.groups: SessionGroups[Rollout | RolloutError, Result] = SessionGroups(WAITING)
        self._requests: dict[Any, asyncio.Task[Result]] = {}
        self._finished: OrderedDict[Any, tuple[float, asyncio.Task[Result]]] = OrderedDict()
        self._sums, self._searches = TurnSums(), SearchCheck()
        self._failures, self._has_scored = 0, False
        self._counted: WeakSet[RolloutError] = WeakSet()

    async def verify(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a verify response: those of a score, or those of a failure.

        Raises the error of a row. Raises any RolloutError after `patience` consecutive failures, or
        after FIRST_ROLLOUTS of them before the first score.
        """
        try:
            result = await self.result(request)
        except ROW_ERRORS:
            raise
        except RolloutError as error:
            return self._failure(request, error)
        self._failures, self._has_scored = 0, True
        fields = self.fields(result.score, result.reward)
        return fields | self._with_evidence(request, result)

    async def score(self, request: Mapping[str, Any]) -> Score:
        """Return the score of a request. Raises RolloutError for an unscored rollout."""
        return (await self.result(request)).score

    def fields(self, score: Score, reward: float | None = None) -> dict[str, Any]:
        """Return the fields of a verify response. `reward` replaces the value of the score.

        `reward_components` contains the components that have a value if their sum is the reward,
        which NeMo RL requires, and is empty otherwise. The metrics of NeMo Gym do not read it, so
        each component is also a field `recipe/component`.
        """
        name, value = self.scorer.reward.name, float(score.value or 0.0)
        reward = value if reward is None else reward
        present = {key: value for key, value in score.components.items() if value is not None}
        is_sum = self.std_floor is None and math.isclose(
            sum(present.values()), reward, rel_tol=1e-5, abs_tol=1e-6
        )
        fields: dict[str, Any] = {**component_metrics(name, score)}
        if score.correct is not None:
            fields[f"{name}/correct"] = float(score.correct)
        if self.std_floor is not None:
            fields[f"{name}/reward"] = value
        return {"reward": reward, "reward_components": present if is_sum else {}, **fields}

    # --- groups --------------------------------------------------------------------------------

    async def result(self, request: Mapping[str, Any]) -> Result:
        """Return the result of a request, which waits for the other rollouts of its prompt.

        A request that is sent again gets the result of the first one: for `group_deadline` seconds
        after its end, and for REPEAT seconds after a failure. The end of a request does not end its
        group. Raises RolloutError for an unscored rollout.
        """
        rollout = rollout_of(request)
        if self.group_size is None:
            [result] = await self._score([rollout])
            if isinstance(result, RolloutError):
                raise result
            return result
        prompt, place = place_of(request, self.group_size)
        identity = object() if place is None else (prompt, place, _digest(request["response"]))
        task = self._requests.get(identity) or self._finished_task(identity)
        if task is None:
            task = self._requests[identity] = asyncio.create_task(
                self._result_in_group(prompt, place, rollout)
            )
            task.add_done_callback(partial(self._finish, identity))
        return await asyncio.shield(task)

    async def _result_in_group(
        self, prompt: str, place: int | None, rollout: Rollout | RolloutError
    ) -> Result:
        async def generated() -> Rollout | RolloutError:
            return rollout

        sizes = (self.group_size or 1,)
        return await self.groups.run(
            prompt,
            place,
            generated,
            lambda: SessionGroup(self._score, sizes, self.group_deadline),
        )

    def _finished_task(self, identity: Any) -> asyncio.Task[Result] | None:
        end, task = self._finished.get(identity, (0.0, None))
        return task if asyncio.get_running_loop().time() < end else None

    def _finish(self, identity: Any, task: asyncio.Task[Result]) -> None:
        """Keep the last WAITING results of the rollouts that have a place."""
        del self._requests[identity]
        if task.cancelled():
            return
        seconds = REPEAT if task.exception() else self.group_deadline
        now = asyncio.get_running_loop().time()
        if isinstance(identity, tuple):
            self._finished[identity] = (now + seconds, task)
            self._finished.move_to_end(identity)
        while self._finished and (len(self._finished) > WAITING or self._first_end() <= now):
            self._finished.popitem(last=False)

    def _first_end(self) -> float:
        return next(iter(self._finished.values()))[0]

    async def _score(
        self, rollouts: Sequence[Rollout | RolloutError]
    ) -> list[Result | RolloutError]:
        """Return the results of a group. If a model failed, all of them fail in the same way."""
        self._searches.check(self.scorer.recipes, rollouts)
        group, rows = [range(len(rollouts))], rollouts
        if self.keep_evidence:
            rows = await self.scorer.gather_async(rollouts, group)
        if self.keep_evidence or not self.scorer.has_models:
            scored = await asyncio.to_thread(self.scorer.score_each, rows, group)
        else:
            scored = await self.scorer.score_each_async(rows, group)
        results = [with_value(result) for result in scored]
        scores = [result if isinstance(result, Score) else None for result in results]
        self._sums.check(scores)
        values = [score.value if score else None for score in scores]
        if self.std_floor is not None:
            values = advantages_of_groups(values, group, std_floor=self.std_floor)
        cause = next((type(each) for each in results if isinstance(each, BackendError)), GroupError)
        members = [
            Result(result, float(value or 0.0), self._evidence(row))
            if isinstance(result, Score)
            else _as_cause(result, cause)
            for result, value, row in zip(results, values, rows, strict=True)
        ]
        self._count(*(each for each in members if isinstance(each, RolloutError)))
        return members

    # --- failures and evidence -----------------------------------------------------------------

    def _failure(self, request: Mapping[str, Any], error: RolloutError) -> dict[str, Any]:
        """Return the fields of a failed rollout, or raise the error after too many failures.

        The rollouts of a group have one failure. NeMo Gym writes a rollout with a failure class to
        a file of its own, and NeMo RL gives a rollout with `mask_sample` no loss.
        """
        self._count(error)
        if self._failures >= (self.patience if self._has_scored else FIRST_ROLLOUTS):
            unit = "groups" if self.group_size else "rollouts"
            message = f"{error.message} ({self._failures} consecutive {unit} have failed)"
            last = type(error)(message, error.path)
            last.row = error.row
            raise last from error
        log.warning("a rollout is unscored: %s", plain(str(error)))
        masked = {**(request.get("instance_config") or {}), "mask_sample": True}
        return {
            "reward": 0.0,
            "reward_components": {},
            FAILURE_CLASS: failure_class(error),
            RETRIEVER_ERROR: str(error),
            "instance_config": masked,
        }

    def _count(self, *errors: RolloutError) -> None:
        """Count the errors of a rollout or of a group as one failure, unless they are counted."""
        failures = [error for error in errors if not isinstance(error, ROW_ERRORS)]
        if not self._counted.issuperset(failures):
            self._failures += 1
            self._counted.update(failures)

    def _evidence(self, row: Rollout | RolloutError) -> Mapping[str, Any] | None:
        if not self.keep_evidence or isinstance(row, RolloutError):
            return None
        values = {name: getattr(row, name) for name in EVIDENCE_FIELDS}
        return {name: value for name, value in values.items() if value is not None}

    def _with_evidence(self, request: Mapping[str, Any], result: Result) -> dict[str, Any]:
        """Return the response with the evidence in its metadata, if there is any to keep."""
        if not result.evidence:
            return {}
        response = request["response"]
        text = msgspec.json.encode(result.evidence).decode()
        metadata = {**(response.get("metadata") or {}), EVIDENCE: text}
        return {"response": {**response, "metadata": metadata}}


def failure_class(error: RolloutError) -> str:
    """Return the failure class of an unscored rollout.

    judge_failed      a model gave no evidence. `gym eval reverify --judge-failed-only` repeats it
    retriever_failed  a search failed, so that the rollout must be generated again
    group_incomplete  the rollouts of the prompt did not all arrive
    """
    if isinstance(error, RetrieverError):
        return "retriever_failed"
    return "group_incomplete" if isinstance(error, GroupError) else "judge_failed"


def _as_cause(error: RolloutError, cause: type[RolloutError]) -> RolloutError:
    """Return the error of a member of a failed group with the class of its cause."""
    if not isinstance(error, GroupError) or cause is GroupError:
        return error
    changed = cause(error.message, error.path)
    changed.row = error.row
    return changed


def place_of(request: Mapping[str, Any], size: int) -> tuple[str, int | None]:
    """Return a key of the group of a request, and the place of its rollout in it.

    The key contains the task index of NeMo Gym, the prompt and the row, because NeMo RL sends the
    task index only in asynchronous training. `gym eval run` numbers the rollouts of a task, and
    NeMo RL the rows of a batch, in which the rollouts of a prompt are neighbours. The place is
    None without a number.

    >>> row = {"responses_create_params": {"input": "Which river?"}, "_rowidx": 9}
    >>> place_of(row, 4)[1], place_of(row | {"_rowidx": 5}, 4)[1], place_of(row, 8)[1]
    (1, 1, 1)
    """
    index = request.get("_ng_rollout_index")
    index = request.get("_rowidx") if index is None else index
    number, place = divmod(index, size) if type(index) is int and index >= 0 else (0, None)
    task = request.get("_ng_task_index")
    prompt = request["responses_create_params"].get("input")
    return f"{task} {number} {_digest([prompt, request.get(ROW), request.get('agent_ref')])}", place


def _digest(value: Any) -> str:
    encoded = msgspec.json.encode(value, order="deterministic")
    return hashlib.blake2b(encoded, digest_size=16).hexdigest()


# --- requests ------------------------------------------------------------------------------------


@with_errors
def rollout_of(request: Mapping[str, Any]) -> Rollout | RolloutError:
    """Return the rollout of a verify request, or its error."""
    row = request.get(ROW)
    if not isinstance(row, Mapping):
        return DataError("missing: write the data with `rag-rewards prepare -t nemo-gym`", ROW)
    prompt = _prompt(request["responses_create_params"].get("input"))
    response = request["response"]
    messages = messages_of(response.get("output") or [])
    if error := _retriever_error(messages):
        failure = RetrieverError(f"the retriever failed: {error}")
        failure.row = str(row["id"]) if "id" in row else None
        return failure
    return read_rollout(
        row,
        prompt,
        response=_text_or_messages(messages),
        finish_reason=_finish_reason(response, messages),
        **_kept_evidence(response),
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


def _kept_evidence(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return the evidence that an earlier verification wrote into a response."""
    text = (response.get("metadata") or {}).get(EVIDENCE)
    try:
        values = {} if text is None else msgspec.json.decode(text, type=dict[str, Any])
    except NOT_JSON as error:
        raise RowError(f"not evidence of this package: {error}", f"response.{EVIDENCE}") from None
    return {name: values[name] for name in EVIDENCE_FIELDS if name in values}


def _retriever_error(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the error that the tool `search` returned, if it failed."""
    for message in messages:
        if message["role"] != "tool" or RETRIEVER_ERROR not in message["content"]:
            continue
        try:
            value = msgspec.json.decode(message["content"])
        except NOT_JSON:
            continue
        if isinstance(value, dict) and RETRIEVER_ERROR in value:
            return str(value[RETRIEVER_ERROR])
    return None
