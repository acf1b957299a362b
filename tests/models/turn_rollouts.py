"""Rollouts of search agents as token ids, and the likelihoods of igpo, written out plainly."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from rag_rewards import Rollout, decode_row, recipe
from rag_rewards.evidence.gather import Gatherer
from rag_rewards.evidence.needs import before_answer
from rag_rewards.evidence.protocols import Models, Policy

ANSWERS = ["river", "Paris"]
OWN = "<think>a</think><search>the river</search>"
Naive = Callable[[tuple[int, ...], tuple[int, ...]], Sequence[float]]
"""Log-probabilities of an answer after a context, from one pass over both."""


def token_ids(count: int, seed: int, vocabulary: int) -> list[int]:
    """Return pseudo-random token ids."""
    draw = random.Random(seed)
    return [draw.randrange(3, vocabulary) for _ in range(count)]


def fields(position: int, turns: int, prompt: list[int], vocabulary: int) -> dict[str, Any]:
    """Return a row with searches of 7 own tokens and replies of 9 to 12."""
    ids: list[int] = []
    rows: list[dict[str, Any]] = []
    for t in range(turns):
        start = len(ids)
        ids += token_ids(7, 100 * position + t, vocabulary)
        turn: dict[str, Any] = {"text": OWN, "results": [{"text": "x"}]}
        if t == turns - 1:
            turn = {"text": "<answer>Paris</answer>"}
        rows.append(turn | {"token_span": [start, len(ids)]})
        if t < turns - 1:
            ids += token_ids(9 + position, 100 * position + 50 + t, vocabulary)
    ids_of = {"prompt_token_ids": prompt, "response_token_ids": ids}
    return ids_of | {"turns": rows, "id": position, "group": "g", "answers": ANSWERS}


def rows_of_group(vocabulary: int, seed: int = 1) -> list[dict[str, Any]]:
    """Return the rows of a group with 3, 4 and 1 turns. `seed` determines the prompt."""
    prompt = token_ids(20, seed, vocabulary)
    return [fields(i, turns, prompt, vocabulary) for i, turns in enumerate((3, 4, 1))]


def group(vocabulary: int, seed: int = 1) -> list[Rollout]:
    """Return the rollouts of `rows_of_group`."""
    return [decode_row(row) for row in rows_of_group(vocabulary, seed)]


def with_turn_logprobs(policy: Policy, rows: Sequence[Rollout], **settings: Any) -> list[Rollout]:
    """Return the rollouts with the evidence of igpo."""
    reward = recipe("igpo", {"gain.alias": "best", **settings})
    gatherer = Gatherer(Models(policy=policy), prompt=reward.prompt, selfcheck=False)
    results = gatherer.gather_sync(reward, rows)
    errors = [each for each in results if not isinstance(each, Rollout)]
    assert not errors, errors
    return results  # type: ignore[return-value]


def naive_turn_logprobs(row: Rollout, encode: Callable[[str], list[int]], naive: Naive) -> Any:
    """Return the log-probabilities after each prefix of a rollout, each from a pass of its own."""
    template = tuple(encode(before_answer("igpo")))
    prompt, response = tuple(row.prompt_token_ids or ()), tuple(row.response_token_ids or ())
    aliases = [tuple(encode(alias)) for alias in ANSWERS]
    return [
        [naive((*prompt, *response[: turn.token_span[0]], *template), alias) for alias in aliases]
        for turn in row.turns or ()
        if turn.token_span is not None
    ]


def turn_logprobs_of(row: Rollout) -> Any:
    """Return the evidence in the order of `naive_turn_logprobs`."""
    assert row.turn_logprobs is not None
    return [row.turn_logprobs.prior, *row.turn_logprobs.after]


def largest_difference(one: Any, other: Any) -> float:
    """Return the largest difference of two values, in nats. The shapes must be equal."""
    return max(
        abs(a - b)
        for x, y in zip(one, other, strict=True)
        for per_alias in zip(x, y, strict=True)
        for a, b in zip(*per_alias, strict=True)
    )
