"""Likelihoods of the gold answers before and after the turns of search agents (IGPO).

All contexts of a group form one request: the rollouts share the prompt, and the context before a
turn is the beginning of the context after it. A policy that reuses prefixes runs on about the
tokens of one forward pass of each rollout, whatever the number of turns.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rag_rewards.errors import DataError, GroupError, RolloutError, UsageError
from rag_rewards.evidence.answer_template import before_answer
from rag_rewards.evidence.needs import TurnLogProbsNeed
from rag_rewards.evidence.policy_evidence import PolicyEvidence
from rag_rewards.evidence.protocols import ScoreAnswer, ScoreRequest, TokenIds
from rag_rewards.evidence.turn_contexts import TurnContexts, turn_contexts
from rag_rewards.rollout import AliasLogProbs, TurnLogProbs
from rag_rewards.turns.trajectory import Reading, Trajectory

LEAST_RESULTS = 10
"""Minimum number of characters of results that replace others. Source: IG-Search, ig_reward.py."""


@dataclass
class _Plan:
    """What a rollout needs, as positions in the request of its group, None where it needs nothing.

    The fields are those of `TurnLogProbs`; `aliases` are the positions of the gold aliases.
    """

    prior: int
    after: list[int]
    aliases: list[int | None]
    empty: list[int | None] | None = None
    random: list[list[int] | None] | None = None

    def contexts(self) -> list[int]:
        """Return the positions of all contexts."""
        replaced = [i for i in self.empty or () if i is not None]
        drawn = [i for draws in self.random or () for i in draws or ()]
        return [self.prior, *self.after, *replaced, *drawn]

    def logprobs(self, answer: ScoreAnswer) -> TurnLogProbs:
        """Return the evidence of the rollout from the answer to the request."""

        def of(context: int) -> AliasLogProbs:
            return tuple(
                None if alias is None else tuple(answer.logprobs[context, alias])
                for alias in self.aliases
            )

        empty = [None if i is None else of(i) for i in self.empty or ()]
        drawn = [None if draws is None else tuple(map(of, draws)) for draws in self.random or ()]
        return TurnLogProbs(
            prior=of(self.prior),
            after=tuple(map(of, self.after)),
            empty=None if self.empty is None else tuple(empty),
            random=None if self.random is None else tuple(drawn),
        )


@dataclass
class _Group:
    """The contexts and the answers of the rollouts of a group, each once."""

    contexts: dict[TokenIds, int] = field(default_factory=dict)
    answers: dict[TokenIds, int] = field(default_factory=dict)
    plans: dict[int, _Plan] = field(default_factory=dict)

    def context(self, tokens: TokenIds) -> int:
        """Return the position of a context."""
        return self.contexts.setdefault(tokens, len(self.contexts))

    def answer(self, tokens: TokenIds) -> int:
        """Return the position of an answer."""
        return self.answers.setdefault(tokens, len(self.answers))

    def request(self) -> ScoreRequest:
        """Return the request for the pairs that the rollouts need."""
        pairs = {
            (context, alias): None
            for plan in self.plans.values()
            for context in plan.contexts()
            for alias in plan.aliases
            if alias is not None
        }
        return ScoreRequest(tuple(self.contexts), tuple(self.answers), tuple(pairs))


class TurnEvidence:
    """The evidence of turns from a policy, for one batch of rollouts.

    evidence  the policy, and the rollouts of the batch with their groups
    needs     the needs of the rollouts
    """

    def __init__(
        self, evidence: PolicyEvidence, needs: Mapping[int, Sequence[TurnLogProbsNeed]]
    ) -> None:
        self.evidence = evidence
        self.needs = needs
        self._contexts: dict[int, TurnContexts] = {}
        self._found: dict[tuple[Any, str], list[str]] | None = None

    async def gather(self) -> None:
        """Add the likelihoods to the rollouts, or their errors."""
        outcomes = self.evidence.outcomes
        groups: dict[Any, _Group] = {}
        for i, needs in self.needs.items():
            with outcomes.failing(i):
                group = groups.setdefault(self.evidence.places[i][0], _Group())
                group.plans[i] = self._plan(i, needs, group)
        planned = [group for group in groups.values() if group.plans]
        requests = [group.request() for group in planned]
        answers = await self.evidence.score(requests, [list(group.plans) for group in planned])
        for group, answer in zip(planned, answers, strict=True):
            if answer is not None:
                for i, plan in group.plans.items():
                    outcomes.evidence[i]["turn_logprobs"] = plan.logprobs(answer)

    # --- the contexts of a rollout -------------------------------------------------------------

    def _plan(self, i: int, needs: Sequence[TurnLogProbsNeed], group: _Group) -> _Plan:
        """Return the contexts that a rollout needs, and add them to its group."""
        need, baselines = needs[0], {each.baseline: each for each in needs}
        if len({each.template for each in needs}) > 1:
            raise UsageError("the recipes of one composition must have the same template")
        turns = self._turns(i, need.reading)
        aliases = self._aliases(i, needs)
        template = self.evidence.contexts.tokens(before_answer(need.template))
        room = len(template) + max(map(len, filter(None, aliases)))

        def context(tokens: TokenIds, turn: int) -> int:
            self._check_length(len(tokens), room, turn)
            return group.context(tokens + template)

        prior, *after = [context(tokens, t) for t, tokens in enumerate(turns.before)]
        plan = _Plan(
            prior, after, [None if alias is None else group.answer(alias) for alias in aliases]
        )
        results = self._results(i, need.reading)
        if "empty" in baselines:
            block = self._run(i, need.reading).dialect.empty_block
            plan.empty = [
                context(turns.after(t, block), t + 1) if has_results else None
                for t, has_results in enumerate(results)
            ]
        if "random" in baselines:
            count = baselines["random"].draws
            plan.random = [
                [context(turns.after(t, text), t + 1) for text in self._draw(i, t, count, need)]
                if has_results
                else None
                for t, has_results in enumerate(results)
            ]
        return plan

    def _run(self, i: int, reading: Reading) -> Trajectory:
        return self.evidence.rollouts[i].trajectory(reading)

    def _turns(self, i: int, reading: Reading) -> TurnContexts:
        if i not in self._contexts:
            rollout = self.evidence.rollouts[i]
            run = self._run(i, reading)
            self._contexts[i] = turn_contexts(self.evidence.contexts, rollout, run)
        return self._contexts[i]

    def _results(self, i: int, reading: Reading) -> list[bool]:
        """Return whether each turn but the last one has results."""
        return [turn.results is not None for turn in self._run(i, reading).turns[:-1]]

    def _aliases(self, i: int, needs: Sequence[TurnLogProbsNeed]) -> list[TokenIds | None]:
        """Return the tokens of each gold alias, None for one that is not needed."""
        is_first = all(need.aliases == "first" for need in needs)
        return [
            self.evidence.contexts.tokens(alias) if position == 0 or not is_first else None
            for aliases in self.evidence.rollouts[i].gold
            for position, alias in enumerate(aliases)
        ]

    def _check_length(self, context: int, room: int, turn: int) -> None:
        most = self.evidence.contexts.max_length
        if most is not None and context + room > most:
            where = f"after turn {turn}" if turn else "before the first turn"
            raise DataError(
                f"the context {where} has {context:,} tokens, the template and the answer {room:,},"
                f" more than the model's maximum of {most:,}",
                f"turns[{turn - 1}]" if turn else "prompt",
            )

    # --- results of other prompts --------------------------------------------------------------

    def _draw(self, i: int, turn: int, count: int, need: TurnLogProbsNeed) -> list[str]:
        """Return the results of turns of `count` other prompts, or of all that there are.

        The id of the row and the turn determine them, so that a run can be repeated. Raises
        GroupError if no other prompt of the batch has results.
        """
        rollout, place = self.evidence.rollouts[i], self.evidence.places[i]
        dialect = self._run(i, need.reading).dialect.name
        others = [
            results
            for (key, name), results in self._sources(need.reading).items()
            if key != place[0] and name == dialect
        ]
        if not others:
            raise GroupError(
                "no other prompt of the batch has results of a search: score several prompts "
                "together, or set gain.baseline to previous or empty",
                f"turns[{turn}]",
            )
        name = place if rollout.id is None else rollout.id
        rng = random.Random(f"{name}:{turn}")  # noqa: S311 (not for secrets)
        return [rng.choice(results) for results in rng.sample(others, min(count, len(others)))]

    def _sources(self, reading: Reading) -> Mapping[tuple[Any, str], list[str]]:
        """Return the results in the batch by group and dialect, without very short ones."""
        if self._found is None:
            self._found = {}
            for i, (key, _) in enumerate(self.evidence.places):
                for text in self._texts(i, reading):
                    dialect = self._run(i, reading).dialect
                    tags = sum(map(len, dialect.block or ()))
                    if len(text) - tags >= LEAST_RESULTS:
                        self._found.setdefault((key, dialect.name), []).append(text)
        return self._found

    def _texts(self, i: int, reading: Reading) -> list[str]:
        """Return the results of the turns of a rollout, none if its turns cannot be read."""
        try:
            turns = self._turns(i, reading)
            return [text for t in range(len(turns.before) - 1) if (text := turns.results(t))]
        except RolloutError:
            return []
