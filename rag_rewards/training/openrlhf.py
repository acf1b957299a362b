"""The remote reward protocol of OpenRLHF.

Request   {"query": [str], "prompts": [str], "labels": [str]}
Response  {"rewards", "scores", "extra_logs": {name: number}}: numbers for one query, else lists

`query` is the prompt followed by the response, with special tokens. The trainer may have cut the
beginning of the prompt. `labels` are rows with the gold fields, as JSON.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
from rapidfuzz.distance import Prefix

from rag_rewards.errors import BackendError, DataError, RolloutError
from rag_rewards.recipe_object import Recipe
from rag_rewards.rollout import Rollout, Score, ScoreOrError
from rag_rewards.rows.columns import label_fields, response_prefix_of, rollout_from_columns
from rag_rewards.rows.decisions import decisions_of, undecided_share
from rag_rewards.training.curriculum import Curriculum, refusal

MIN_OVERLAP = 8
"""Characters of a cut prompt that must precede the response."""
ERROR_LOG = "rag_rewards_error"


class SampleRequest(msgspec.Struct):
    """A request of the trainer. The three lists have equal lengths."""

    query: list[str]
    prompts: list[str]
    labels: list[str | None]


class SampleResponse(msgspec.Struct):
    """The response to the trainer. `extra_logs` always has the same names."""

    rewards: float | list[float]
    scores: float | list[float]
    extra_logs: dict[str, float | list[float]]


def unsupported_reason(reward: Recipe | Curriculum) -> str:
    """Return why a recipe cannot score single samples; "" if it can."""
    return refusal(
        reward,
        "OpenRLHF",
        for_groups="use the agent executor, --train.agent_func_path",
        for_stages="start a run for each stage",
    )


def rollouts_of(request: SampleRequest) -> list[Rollout | RolloutError]:
    """Return a rollout or an error for each query. DataError for lists of unequal lengths."""
    n = len(request.query)
    if not n or len(request.prompts) != n or len(request.labels) != n:
        lengths = f"{n}, {len(request.prompts)} and {len(request.labels)}"
        raise DataError(
            f"query, prompts and labels must have equal lengths above 0, found {lengths}", "query"
        )
    samples = zip(request.query, request.prompts, request.labels, strict=True)
    return [_rollout(i, *sample) for i, sample in enumerate(samples)]


def _rollout(i: int, query: str, prompt: str, label: str | None) -> Rollout | RolloutError:
    try:
        start = response_start(query, prompt)
        gold = label_fields(label)
    except RolloutError as error:
        error.row = str(i)
        return error
    return rollout_from_columns(
        gold,
        response=query[start:],
        prompt=query[:start],
        response_prefix=response_prefix_of(prompt),
    )


def response_start(query: str, prompt: str) -> int:
    """Return the position of the response: after the prompt, or after its remaining part.

    >>> response_start("Q? A: Seine", "Q? A:"), response_start("paris? A: Seine", "in paris? A:")
    (5, 9)
    """
    if query.startswith(prompt):
        return len(prompt)
    overlap = _overlap(prompt, query[: len(prompt)])
    if overlap >= min(MIN_OVERLAP, len(prompt)):
        return overlap
    tail = prompt[-4 * MIN_OVERLAP :]
    # Tokenization may have changed an earlier part of the prompt. The end of the prompt can occur
    # in it several times, for example after each turn. It occurs as often in the query before the
    # response.
    end = 0
    for _ in range(prompt.count(tail) if len(tail) >= MIN_OVERLAP else 0):
        start = query.find(tail, end)
        if start < 0:
            break
        end = start + len(tail)
    else:
        if end:
            return end
    raise DataError(
        "the query does not begin with its prompt: let the trainer apply the chat template "
        "(--data.apply_chat_template, --data.input_template)",
        "query",
    )


def _overlap(prompt: str, query: str) -> int:
    """Return the length of the longest prefix of the query that is a suffix of the prompt.

    Returns 0 below `MIN_OVERLAP`. The time is linear, and no loop reads single characters.
    """
    size = MIN_OVERLAP
    while 2 * size <= min(len(prompt), len(query)):
        size *= 2
    while size >= MIN_OVERLAP:
        if overlap := _overlap_from(prompt[-2 * size + 1 :], query, size):
            return overlap
        size //= 2
    return 0


def _overlap_from(text: str, query: str, size: int) -> int:
    """Return the same for a text of less than twice `size` characters, 0 below `size`."""
    head = query[:size]
    first = text.find(head) if len(head) == size else -1
    second = text.find(head, first + 1) if first >= 0 else -1
    start = first
    if second >= 0:
        # All occurrences overlap, so that they have equal distances: the period of the head. Text
        # and query must leave it at the same character, unless the text ends before.
        period = second - first
        periodic = period + Prefix.similarity(text[first:], text[second:])
        limit = period + Prefix.similarity(query, query[period:])
        start = first + max(periodic - limit, 0)
        if first + periodic == len(text):
            start = first + -(-max(periodic - limit, 0) // period) * period
    is_overlap = 0 <= start <= len(text) - size and query.startswith(text[start:])
    return len(text) - start if is_overlap else 0


def raise_failure(results: Sequence[ScoreOrError]) -> None:
    """Raise the first failure of a model, which no value may replace.

    The value would be the reward of only those rollouts of a prompt that need the model, and a
    request does not contain the others: the policy would learn to avoid the model.
    """
    for result in results:
        if isinstance(result, BackendError):
            raise result


def response_of(
    results: Sequence[ScoreOrError],
    components: Sequence[str],
    error_value: float | None,
    decides: bool = False,
) -> SampleResponse:
    """Return the response. A rollout in error gets `error_value` and is marked in the logs.

    If the recipe `decides` on answers, the log `undecided` states whether an answer is undecided.
    Raises the first RolloutError if `error_value` is None.
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
        if decides:
            parts["undecided"] = _or_nan(undecided_share(decisions_of([score])))
        logs.append({**parts, "acc": _or_nan(score.correct), ERROR_LOG: failed})
    if len(results) == 1:
        return SampleResponse(rewards[0], scores[0], dict(logs[0]))
    return SampleResponse(rewards, scores, {name: [log[name] for log in logs] for name in logs[0]})


def _reward(result: ScoreOrError) -> ScoreOrError:
    """Return the result, or an error if the recipe returned no reward."""
    if isinstance(result, Score) and result.value is None:
        return DataError("the recipe gives this rollout no reward")
    return result


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
