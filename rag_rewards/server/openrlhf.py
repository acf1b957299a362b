"""OpenRLHF's remote reward protocol: one sample or a batch, as text, its gold row in the label.

Request   {"query": [str], "prompts": [str], "labels": [str]}
Answer    {"rewards", "scores", "extra_logs": {name: number}}: scalars for one query, else lists

`query` is the prompt and the response with special tokens. The prompt may have lost its beginning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from rag_rewards.definition import Recipe
from rag_rewards.errors import DataError, RolloutError
from rag_rewards.rollout import Rollout, Score, ScoreOrError
from rag_rewards.rows.columns import label_fields, response_prefix_of, rollout_from_columns
from rag_rewards.training.curriculum import Curriculum

ENOUGH = 8
"""Characters of a prompt that must stand before the response, where it lost its beginning."""
ERROR_LOG = "rag_rewards_error"


class Request(msgspec.Struct):
    """What the trainer sends."""

    query: list[str]
    prompts: list[str]
    labels: list[str | None]


class Answer(msgspec.Struct):
    """What it reads: numbers, the same names always."""

    rewards: float | list[float]
    scores: float | list[float]
    extra_logs: dict[str, float | list[float]]


def refusal(reward: Recipe | Curriculum) -> str:
    """Why a recipe cannot be asked for single samples; "" where it can."""
    if reward.scope == "group":
        return (
            f"{reward.name} compares the rollouts of a group, and OpenRLHF sends them one by one: "
            "use the agent executor (--train.agent_func_path)"
        )
    if isinstance(reward, Curriculum):
        return "stages go by the training step, which OpenRLHF does not send"
    return ""


def rollouts_of(request: Request) -> list[Rollout | RolloutError]:
    """A rollout for each query, or the error of reading it. DataError for unequal lengths."""
    n = len(request.query)
    if not n or len(request.prompts) != n or len(request.labels) != n:
        lengths = f"{n}, {len(request.prompts)} and {len(request.labels)}"
        raise DataError(f"as many of query, prompts and labels, found {lengths}", "query")
    samples = zip(request.query, request.prompts, request.labels, strict=True)
    return [_rollout(i, *sample) for i, sample in enumerate(samples)]


def _rollout(i: int, query: str, prompt: str, label: str | None) -> Rollout | RolloutError:
    try:
        at = response_start(query, prompt)
        gold = label_fields(label)
    except RolloutError as error:
        error.row = str(i)
        return error
    return rollout_from_columns(
        gold, response=query[at:], prompt=query[:at], response_prefix=response_prefix_of(prompt)
    )


def response_start(query: str, prompt: str) -> int:
    """Where the response begins: behind the prompt, or behind what is left of it.

    >>> response_start("Q? A: Seine", "Q? A:"), response_start("paris? A: Seine", "in paris? A:")
    (5, 9)
    """
    if query.startswith(prompt):
        return len(prompt)
    overlap = _overlap(prompt, query[: len(prompt)])
    if overlap >= min(ENOUGH, len(prompt)):
        return overlap
    tail = prompt[-4 * ENOUGH :]
    # An earlier part may read otherwise after the tokenizer had it. Turns and examples in the
    # prompt end alike: as often as the end stands in the prompt, it stands in the query before
    # the response.
    at = -1
    for _ in range(prompt.count(tail)):
        at = query.find(tail, at + 1)
    if at >= 0 and len(tail) >= ENOUGH:
        return at + len(tail)
    raise DataError(
        "the query does not continue its prompt: is the data set's template applied by the trainer "
        "(--data.apply_chat_template, --data.input_template)?",
        "query",
    )


def _overlap(prompt: str, query: str) -> int:
    """The longest beginning of the query that is an end of the prompt. Linear (Knuth, Morris and
    Pratt's prefix function)."""
    prefix = [0] * len(query)
    for i in range(1, len(query)):
        k = prefix[i - 1]
        while k and query[i] != query[k]:
            k = prefix[k - 1]
        prefix[i] = k + (query[i] == query[k])
    matched = 0
    for character in prompt:
        while matched and (matched == len(query) or character != query[matched]):
            matched = prefix[matched - 1]
        if matched < len(query) and character == query[matched]:
            matched += 1
    return matched


def answer_of(
    results: Sequence[ScoreOrError], components: Sequence[str], error_value: float | None
) -> Answer:
    """The answer; `error_value` stands for what has no score, and is marked in the logs.

    Raises the first RolloutError where no value stands for it.
    """
    rewards, scores, logs = [], [], []
    for result in map(_reward, results):
        if isinstance(result, RolloutError) and error_value is None:
            raise result
        score = Score(error_value) if isinstance(result, RolloutError) else result
        value = float(score.value or 0.0)
        rewards.append(value)
        scores.append(value if score.correct is None else score.correct)
        parts = {name: _or_nan(score.components.get(name)) for name in components}
        failed = float(isinstance(result, RolloutError))
        logs.append({**parts, "acc": _or_nan(score.correct), ERROR_LOG: failed})
    if len(results) == 1:
        return Answer(rewards[0], scores[0], dict(logs[0]))
    return Answer(rewards, scores, {name: [log[name] for log in logs] for name in logs[0]})


def _reward(result: ScoreOrError) -> ScoreOrError:
    """The result; an error where a recipe gives a rollout no reward."""
    if isinstance(result, Score) and result.value is None:
        return DataError("the recipe gives this rollout no reward")
    return result


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
