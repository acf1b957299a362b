"""Evidence from a policy: log-probabilities, and answers from masked contexts.

Rollouts with the same prompt form one request, so that a policy can share work between them. All
contexts before and after the turns of a group of search agents also form one request: the context
before a turn is the beginning of the context after it, and a policy that reuses prefixes runs on
about the tokens of one forward pass of each rollout, whatever the number of turns.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from rag_rewards.errors import DataError, GroupError, RolloutError, UsageError
from rag_rewards.evidence.contexts import Contexts
from rag_rewards.evidence.exchange import EvidenceUsage, Job, Outcomes, exchange
from rag_rewards.evidence.needs import (
    GeneratedAnswerNeed,
    LogProbsNeed,
    MaskedAnswersNeed,
    MaskedLogProbsNeed,
    Need,
    NeedsByRollout,
    TurnLogProbsNeed,
    before_answer,
    needs_of_type,
)
from rag_rewards.evidence.protocols import (
    GenerateAnswer,
    GenerateRequest,
    Policy,
    ScoreAnswer,
    ScoreRequest,
    TokenIds,
)
from rag_rewards.evidence.turn_contexts import TurnContexts, leave_one_out_of_turns, turn_contexts
from rag_rewards.rollout import Rollout
from rag_rewards.turns.trajectory import Reading, Trajectory

LEAST_RESULTS = 10
"""Minimum number of characters of results that replace others. Source: IG-Search, ig_reward.py."""

Place = tuple[Any, int]
"""The group of a rollout, and its position among the members."""


class _Pair(NamedTuple):
    """The positions of a context and of a response in the request of a group."""

    context: int
    response: int


@dataclass
class _Group:
    """Contexts and responses that form one request, each once.

    plans   evidence of rollouts, with a pair in place of the log-probabilities of a response
    """

    contexts: dict[TokenIds, int] = field(default_factory=dict)
    responses: dict[TokenIds, int] = field(default_factory=dict)
    plans: list[tuple[int, Need, Any]] = field(default_factory=list)

    def context(self, tokens: TokenIds) -> int:
        """Return the position of a context."""
        return self.contexts.setdefault(tokens, len(self.contexts))

    def response(self, tokens: TokenIds) -> int:
        """Return the position of a response."""
        return self.responses.setdefault(tokens, len(self.responses))

    def job(self, outcomes: Outcomes) -> Job:
        """Return the request for the pairs of all plans, whose answer becomes evidence."""
        pairs = dict.fromkeys(pair for _, _, plan in self.plans for pair in _pairs(plan))
        request = ScoreRequest(tuple(self.contexts), tuple(self.responses), tuple(pairs))

        def store(answer: ScoreAnswer) -> None:
            for i, need, plan in self.plans:
                outcomes.store(i, need, _filled(plan, answer))

        return Job([request], [i for i, _, _ in self.plans], store)


def _pairs(plan: Any) -> Iterator[_Pair]:
    """Return the pairs of a plan."""
    if isinstance(plan, _Pair):
        yield plan
    elif isinstance(plan, (dict, list)):
        for part in plan.values() if isinstance(plan, dict) else plan:
            yield from _pairs(part)


def _filled(plan: Any, answer: ScoreAnswer) -> Any:
    """Return a plan with log-probabilities in place of its pairs, and tuples in place of lists."""
    if isinstance(plan, _Pair):
        return tuple(answer.logprobs[plan])
    if isinstance(plan, list):
        return tuple(_filled(part, answer) for part in plan)
    if isinstance(plan, dict):
        return {key: _filled(part, answer) for key, part in plan.items()}
    return plan


@dataclass
class PolicyEvidence:
    """The evidence from a policy for one batch of rollouts.

    policy    the language model
    contexts  the token ids of prompts
    rollouts  the rollouts of the batch
    places    the group and position of each rollout
    outcomes  receives the evidence and the errors
    usage     counter of tokens
    """

    policy: Policy
    contexts: Contexts
    rollouts: Sequence[Rollout]
    places: Sequence[Place]
    outcomes: Outcomes
    usage: EvidenceUsage

    async def log_probabilities(self, needs: NeedsByRollout) -> None:
        """Add all log-probabilities, in one call of the policy."""
        groups = [
            *self._responses(needs_of_type(needs, LogProbsNeed)),
            *self._masked(needs_of_type(needs, MaskedLogProbsNeed)),
            *_TurnPlans(self).groups(needs_of_type(needs, TurnLogProbsNeed)),
        ]
        jobs = [group.job(self.outcomes) for group in groups if group.plans]
        for answer in await exchange(self.policy.score, jobs, self.outcomes):
            if isinstance(answer, ScoreAnswer):
                self.usage.groups += 1
                self.usage.computed += answer.computed
                self.usage.reused += answer.reused
                self.usage.path = answer.path

    def _responses(self, needs: Mapping[int, Sequence[LogProbsNeed]]) -> Iterable[_Group]:
        """Return the groups for responses, with and without documents."""
        longest: dict[Any, int] = {}
        responses: dict[int, TokenIds] = {}
        for i in needs:
            with self.outcomes.failing(i):
                responses[i] = self.contexts.response(self.rollouts[i])
                key = self.places[i][0]
                longest[key] = max(longest.get(key, 0), len(responses[i]))
        groups: dict[TokenIds, _Group] = {}
        for i, response in responses.items():
            rollout, room = self.rollouts[i], longest[self.places[i][0]]
            labels = tuple(dict.fromkeys(label for need in needs[i] for label in need.without))
            with self.outcomes.failing(i):
                if rollout.has_turns:
                    full, without = leave_one_out_of_turns(self.contexts, rollout, labels, room)
                else:
                    full, without = self.contexts.leave_one_out(rollout, labels, room)
                span = self.contexts.answer_span(rollout)
                group = groups.setdefault(full, _Group())
                at = group.response(response)
                plan = {
                    "full": _Pair(group.context(full), at),
                    "without": {k: _Pair(group.context(v), at) for k, v in without.items()},
                    "answer_span": span,
                }
                group.plans.append((i, needs[i][0], plan))
        return groups.values()

    def _masked(self, needs: Mapping[int, Sequence[MaskedLogProbsNeed]]) -> Iterable[_Group]:
        """Return one group for each of LEAR's masked contexts, with all gold aliases."""
        groups: list[_Group] = []
        for i, own in needs.items():
            with self.outcomes.failing(i):
                aliases = [alias for aliases in self.rollouts[i].gold for alias in aliases]
                responses = list(map(self.contexts.tokens, aliases))
                contexts = [self._masked_context(i, need, max(map(len, responses))) for need in own]
                for need, tokens in zip(own, contexts, strict=True):
                    group = _Group()
                    at = group.context(tokens)
                    plan = [_Pair(at, group.response(response)) for response in responses]
                    group.plans.append((i, need, plan))
                    groups.append(group)
        return groups

    async def masked_answers(self, needs: NeedsByRollout) -> None:
        """Add the answers that the policy generates from LEAR's masked contexts."""
        jobs: list[Job] = []
        for i, own in needs_of_type(needs, MaskedAnswersNeed).items():
            with self.outcomes.failing(i):
                jobs += [
                    self._generation(i, need, self._masked_context(i, need, need.max_tokens))
                    for need in own
                ]
        await self._generate(jobs)

    async def generated_answers(self, needs: NeedsByRollout) -> None:
        """Add the answers that the policy, as a generator, writes to chats."""
        jobs: list[Job] = []
        for i, own in needs_of_type(needs, GeneratedAnswerNeed).items():
            with self.outcomes.failing(i):
                jobs += [self._generation(i, need, self._chat(need)) for need in own]
        await self._generate(jobs)

    async def _generate(self, jobs: Sequence[Job]) -> None:
        for answer in await exchange(self.policy.generate, jobs, self.outcomes):
            if isinstance(answer, GenerateAnswer):
                self.usage.generated += len(answer.token_ids)

    def _chat(self, need: GeneratedAnswerNeed) -> TokenIds:
        """Return the tokens of a chat. Raises DataError if it is too long for the generator."""
        messages = [{"role": role, "content": content} for role, content in need.messages]
        tokens = self.contexts.encode(*self.contexts.chat(messages), Rollout(response=""))
        most = self.contexts.max_length
        if most is not None and len(tokens) + need.max_tokens > most:
            raise DataError(
                f"the prompt of the generator has {len(tokens):,} tokens and its answer up to "
                f"{need.max_tokens:,}, more than the model's maximum of {most:,}: set a generator "
                "with a longer context, or return fewer documents",
                need.path,
            )
        return tokens

    def _generation(
        self, i: int, need: MaskedAnswersNeed | GeneratedAnswerNeed, context: TokenIds
    ) -> Job:
        # The seed makes samples of equal contexts different, and equal in the next call.
        seed = self.places[i][1] if need.temperature > 0 else None
        request = GenerateRequest(context, need.max_tokens, need.temperature, ("</answer>",), seed)
        return Job(
            [request],
            [i],
            lambda answer: self.outcomes.store(i, need, answer.text),
            need.path,
        )

    def _masked_context(
        self, i: int, need: MaskedAnswersNeed | MaskedLogProbsNeed, room: int
    ) -> TokenIds:
        tags = {} if need.tags is None else {"tags": need.tags}
        return self.contexts.masked(self.rollouts[i], need.part, room=room, **tags)


class _TurnPlans:
    """The likelihoods of the gold answers before and after the turns of search agents (IGPO).

    evidence  the policy, and the rollouts of the batch with their groups
    """

    def __init__(self, evidence: PolicyEvidence) -> None:
        self.evidence = evidence
        self._contexts: dict[int, TurnContexts] = {}
        self._results_of_batch: dict[tuple[Any, str], list[str]] | None = None

    def groups(self, needs: Mapping[int, Sequence[TurnLogProbsNeed]]) -> Iterable[_Group]:
        """Return the groups of the rollouts with their contexts and gold answers."""
        groups: dict[Any, _Group] = {}
        for i, own in needs.items():
            with self.evidence.outcomes.failing(i):
                group = groups.setdefault(self.evidence.places[i][0], _Group())
                group.plans.append((i, own[0], self._plan(i, own, group)))
        return groups.values()

    # --- the contexts of a rollout -------------------------------------------------------------

    def _plan(self, i: int, needs: Sequence[TurnLogProbsNeed], group: _Group) -> dict[str, Any]:
        """Return the evidence that a rollout needs, and add its contexts to its group."""
        need, baselines = needs[0], {each.baseline: each for each in needs}
        if len({each.template for each in needs}) > 1:
            raise UsageError("the recipes of one composition must have the same template")
        turns = self._turns(i, need.reading)
        aliases = self._aliases(i, needs)
        template = self.evidence.contexts.tokens(before_answer(need.template))
        room = len(template) + max(map(len, filter(None, aliases)))
        answers = [None if alias is None else group.response(alias) for alias in aliases]

        def after(tokens: TokenIds, turn: int) -> list[_Pair | None]:
            self._check_length(len(tokens), room, turn)
            at = group.context(tokens + template)
            return [None if answer is None else _Pair(at, answer) for answer in answers]

        def replaced(turn: int, results: str) -> list[_Pair | None]:
            return after(turns.after(turn, results), turn + 1)

        prior, *later = [after(tokens, t) for t, tokens in enumerate(turns.before)]
        # Earlier evidence of the rollout, which another model may have given, is replaced.
        plan: dict[str, Any] = {"prior": prior, "after": later, "empty": None, "random": None}
        run = self._run(i, need.reading)
        has_results = [turn.results is not None for turn in run.turns[:-1]]
        if "empty" in baselines:
            block = run.dialect.empty_block
            plan["empty"] = [
                replaced(t, block) if has else None for t, has in enumerate(has_results)
            ]
        if "random" in baselines:
            draw = partial(self._draw, i, count=baselines["random"].draws, need=need)
            plan["random"] = [
                [replaced(t, results) for results in draw(t)] if has else None
                for t, has in enumerate(has_results)
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
            for (key, name), results in self._results(need.reading).items()
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

    def _results(self, reading: Reading) -> Mapping[tuple[Any, str], list[str]]:
        """Return the results in the batch by group and dialect, without very short ones."""
        if self._results_of_batch is None:
            self._results_of_batch = {}
            for i, (key, _) in enumerate(self.evidence.places):
                for text in self._texts(i, reading):
                    dialect = self._run(i, reading).dialect
                    tags = sum(map(len, dialect.block or ()))
                    if len(text) - tags >= LEAST_RESULTS:
                        self._results_of_batch.setdefault((key, dialect.name), []).append(text)
        return self._results_of_batch

    def _texts(self, i: int, reading: Reading) -> list[str]:
        """Return the results of the turns of a rollout, none if its turns cannot be read."""
        try:
            turns = self._turns(i, reading)
            return [text for t in range(len(turns.before) - 1) if (text := turns.results(t))]
        except RolloutError:
            return []
