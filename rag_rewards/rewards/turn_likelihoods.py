"""Likelihoods of the gold answer after the turns of a rollout, from its evidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from rag_rewards.errors import EvidenceError
from rag_rewards.evidence.needs import TurnLogProbsNeed, unmet
from rag_rewards.rewards.contrastive import checked_logprobs
from rag_rewards.rewards.information_gain import answer_likelihood
from rag_rewards.rollout import AliasLogProbs, Rollout, TurnLogProbs
from rag_rewards.settings import check_choices
from rag_rewards.turns.trajectory import Trajectory

Alias = Literal["first", "best"]


@dataclass(frozen=True)
class TurnLikelihoods:
    """V of the gold answer in each context: the mean log-probability of its tokens, in nats.

    With several required answers, V is their mean.

    previous  after the prompt, and after each turn but the last one
    other     with other results of each turn but the last one: one V for each draw, or one without
              hits; None for a turn without results; empty for the baseline `previous`
    """

    previous: list[float]
    other: list[list[float] | None]


@dataclass(frozen=True)
@check_choices
class LikelihoodReader:
    """Reads the likelihoods of a rollout from its evidence.

    alias         `first`: the first alias of each required answer counts; `best`: the most likely
                  one in the last context, for all contexts
    first_tokens  number of tokens at the beginning of an answer with the weight `first_weight`

    Raises DataError for missing evidence, and EvidenceError for evidence that contradicts the turns
    or the gold answers, or that contains values that are no log-probabilities.
    """

    alias: Alias = "first"
    first_tokens: int = 0
    first_weight: float = 1.0

    def __call__(
        self, rollout: Rollout, run: Trajectory, need: TurnLogProbsNeed
    ) -> TurnLikelihoods:
        """Return the likelihoods that a need describes."""
        evidence = rollout.turn_logprobs
        if evidence is None or not need.is_met(rollout):
            raise unmet(need)
        _check_count(len(evidence.after), run, "after")
        lengths = [None if values is None else len(values) for values in evidence.prior]
        lists: list[Named] = [("prior", evidence.prior)]
        lists += [(f"after[{t}]", values) for t, values in enumerate(evidence.after)]
        previous = [self._per_alias(rollout, lengths, *named) for named in lists]
        chosen = self._chosen(rollout, previous[-1])
        other = [
            None
            if draws is None
            else [self._per_alias(rollout, lengths, *named) for named in draws]
            for draws in _other(evidence, run, need)
        ]
        return TurnLikelihoods(
            [_mean(values, chosen) for values in previous],
            [
                None if draws is None else [_mean(values, chosen) for values in draws]
                for draws in other
            ],
        )

    def _per_alias(
        self,
        rollout: Rollout,
        lengths: Sequence[int | None],
        path: str,
        aliases: AliasLogProbs | None,
    ) -> list[float | None]:
        """Return V of each alias, None for one that is not required and that the evidence lacks."""
        path = f"turn_logprobs.{path}"
        count = sum(map(len, rollout.gold))
        if aliases is None:
            raise EvidenceError("missing: add one list per gold alias", path)
        if len(aliases) != count:
            raise EvidenceError(
                f"one list per gold alias: expected {count}, found {len(aliases)}", path
            )
        required = range(count) if self.alias == "best" else _first(rollout)
        likelihoods: list[float | None] = []
        for m, (values, length) in enumerate(zip(aliases, lengths, strict=True)):
            if values is None and m not in required:
                likelihoods.append(None)
                continue
            if not values:
                raise EvidenceError("missing: add one value per token", f"{path}[{m}]")
            if length is not None and len(values) != length:
                raise EvidenceError(
                    f"as many values as turn_logprobs.prior[{m}]: expected {length}, found "
                    f"{len(values)}",
                    f"{path}[{m}]",
                )
            checked = checked_logprobs(values, f"{path}[{m}]")
            likelihoods.append(answer_likelihood(checked, self.first_tokens, self.first_weight))
        return likelihoods

    def _chosen(self, rollout: Rollout, last: Sequence[float | None]) -> list[int]:
        """Return the position of the alias of each required answer that counts."""
        starts = _first(rollout)
        if self.alias == "first":
            return starts
        ends = [*starts[1:], len(last)]
        return [
            max(range(start, end), key=lambda m: -math.inf if (v := last[m]) is None else v)
            for start, end in zip(starts, ends, strict=True)
        ]


Named = tuple[str, AliasLogProbs | None]
"""Log-probabilities with their path in the evidence."""


def _other(
    evidence: TurnLogProbs, run: Trajectory, need: TurnLogProbsNeed
) -> list[list[Named] | None]:
    """Return the log-probabilities with other results of each turn, None without results."""
    draws: list[list[Named]]
    if need.baseline == "empty":
        draws = [[(f"empty[{t}]", values)] for t, values in enumerate(evidence.empty or ())]
    elif need.baseline == "random":
        draws = [
            [(f"random[{t}][{n}]", values) for n, values in enumerate(entry or ())]
            for t, entry in enumerate(evidence.random or ())
        ]
    else:
        return []
    _check_count(len(draws), run, need.baseline)
    for t, (turn, entry) in enumerate(zip(run.turns, draws, strict=False)):
        if turn.results is not None and not entry:
            raise EvidenceError("missing: add at least one draw", f"turn_logprobs.random[{t}]")
    pairs = zip(run.turns, draws, strict=False)
    return [None if turn.results is None else entry for turn, entry in pairs]


def _first(rollout: Rollout) -> list[int]:
    """Return the position of the first alias of each required answer."""
    return list(accumulate(map(len, rollout.gold[:-1]), initial=0))


def _mean(likelihoods: Sequence[float | None], chosen: Sequence[int]) -> float:
    values = [value for m in chosen if (value := likelihoods[m]) is not None]
    return math.fsum(values) / len(values)


def _check_count(count: int, run: Trajectory, name: str) -> None:
    expected = len(run.turns) - 1
    if count != expected:
        raise EvidenceError(
            f"one entry for each turn but the last one: expected {expected}, found {count}",
            f"turn_logprobs.{name}",
        )
