"""Evidence from a policy: log-probabilities, answers from masked contexts, and their likelihoods.

Rollouts with the same prompt form one request, and equal requests are sent once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rag_rewards.evidence.contexts import Contexts
from rag_rewards.evidence.needs import LogProbsNeed, MaskedAnswersNeed, MaskedLogProbsNeed
from rag_rewards.evidence.outcomes import Outcomes, call_model
from rag_rewards.evidence.protocols import (
    GenerateAnswer,
    GenerateRequest,
    Policy,
    ScoreAnswer,
    ScoreRequest,
    TokenIds,
)
from rag_rewards.evidence.turn_documents import leave_one_out_of_turns
from rag_rewards.evidence.usage import EvidenceUsage
from rag_rewards.groups import Groups, group_by_key
from rag_rewards.rollout import LogProbs, MaskedAnswers, MaskedLogProbs, Rollout

Place = tuple[Any, int]
"""The group of a rollout, and its position among the members."""


@dataclass
class _PromptGroup:
    """Rollouts with the same prompt, and the contexts and responses that they need.

    contexts   contexts by the label of the document that is left out, None for the full context
    responses  distinct responses, with their positions in the request
    members    position, labels to leave out, and response of each rollout
    """

    contexts: dict[str | None, TokenIds] = field(default_factory=dict)
    responses: dict[TokenIds, int] = field(default_factory=dict)
    members: list[tuple[int, tuple[str, ...], TokenIds]] = field(default_factory=list)

    def request(self) -> ScoreRequest:
        """Return the request for the pairs that the members need."""
        order = {label: position for position, label in enumerate(self.contexts)}
        pairs = {
            (order[label], self.responses[response]): None
            for _, labels, response in self.members
            for label in (None, *labels)
        }
        return ScoreRequest(tuple(self.contexts.values()), tuple(self.responses), tuple(pairs))


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

    async def logprobs(self, needs: Mapping[int, Sequence[LogProbsNeed]]) -> None:
        """Add the log-probabilities of responses, with and without documents."""
        longest: dict[Any, int] = {}
        responses: dict[int, TokenIds] = {}
        for i in needs:
            with self.outcomes.failing(i):
                responses[i] = self.contexts.response(self.rollouts[i])
                key = self.places[i][0]
                longest[key] = max(longest.get(key, 0), len(responses[i]))
        groups: dict[TokenIds, _PromptGroup] = {}
        spans: dict[int, tuple[int, int] | None] = {}
        for i, response in responses.items():
            rollout = self.rollouts[i]
            labels = tuple(dict.fromkeys(label for need in needs[i] for label in need.without))
            with self.outcomes.failing(i):
                room = longest[self.places[i][0]]
                if rollout.has_turns:
                    full, without = leave_one_out_of_turns(self.contexts, rollout, labels, room)
                else:
                    full, without = self.contexts.leave_one_out(rollout, labels, room)
                spans[i] = self.contexts.answer_span(rollout)
                group = groups.setdefault(full, _PromptGroup())
                group.contexts[None] = full
                group.contexts.update(without)
                group.responses.setdefault(response, len(group.responses))
                group.members.append((i, labels, response))
        requests = [group.request() for group in groups.values()]
        members = [[i for i, _, _ in group.members] for group in groups.values()]
        answers = await self.score(requests, members)
        for group, answer in zip(groups.values(), answers, strict=True):
            if answer is not None:
                self._add_logprobs(group, answer, spans)

    def _add_logprobs(
        self,
        group: _PromptGroup,
        answer: ScoreAnswer,
        spans: Mapping[int, tuple[int, int] | None],
    ) -> None:
        order = {label: position for position, label in enumerate(group.contexts)}
        for i, labels, response in group.members:
            r = group.responses[response]
            self.outcomes.evidence[i]["logprobs"] = LogProbs(
                full=tuple(answer.logprobs[0, r]),
                without={label: tuple(answer.logprobs[order[label], r]) for label in labels},
                answer_span=spans[i],
            )

    async def masked_logprobs(self, needs: Mapping[int, Sequence[MaskedLogProbsNeed]]) -> None:
        """Add the log-probabilities of all gold aliases after LEAR's masked contexts."""
        requests: list[ScoreRequest] = []
        parts: list[tuple[int, str]] = []
        for i, own in needs.items():
            with self.outcomes.failing(i):
                aliases = [alias for aliases in self.rollouts[i].gold for alias in aliases]
                responses = tuple(map(self.contexts.tokens, aliases))
                room = max(map(len, responses))
                contexts = [self._masked_context(i, need, room) for need in own]
                requests.extend(ScoreRequest((context,), responses) for context in contexts)
                parts.extend((i, need.part) for need in own)
        answers = await self.score(requests, [[i] for i, _ in parts])
        fields: dict[int, dict[str, Any]] = {}
        for (i, part), request, answer in zip(parts, requests, answers, strict=True):
            if answer is not None:
                count = len(request.responses)
                per_alias = tuple(tuple(answer.logprobs[0, r]) for r in range(count))
                own_fields = fields.setdefault(i, _fields(self.rollouts[i].masked_logprobs))
                own_fields[part] = per_alias
        for i, values in fields.items():
            self.outcomes.evidence[i]["masked_logprobs"] = MaskedLogProbs(**values)

    async def masked_answers(self, needs: Mapping[int, Sequence[MaskedAnswersNeed]]) -> None:
        """Add the answers that the policy generates from LEAR's masked contexts."""
        parts: list[tuple[int, str, GenerateRequest]] = []
        for i, own in needs.items():
            with self.outcomes.failing(i):
                parts += [(i, need.part, self._generate_request(i, need)) for need in own]
        requests = list(dict.fromkeys(request for _, _, request in parts))
        answers = await call_model(lambda: self.policy.generate(requests), len(requests))
        answer_of = dict(zip(requests, answers, strict=True))
        fields: dict[int, dict[str, Any]] = {}
        for i, part, request in parts:
            answer = answer_of[request]
            if isinstance(answer, GenerateAnswer):
                own_fields = fields.setdefault(i, _fields(self.rollouts[i].masked_answers))
                own_fields[part] = answer.text
            else:
                self.outcomes.fail(i, answer, f"masked_answers.{part}")
        self.usage.generated += sum(
            len(answer.token_ids) for answer in answers if isinstance(answer, GenerateAnswer)
        )
        for i, values in fields.items():
            self.outcomes.evidence[i]["masked_answers"] = MaskedAnswers(**values)

    def _generate_request(self, i: int, need: MaskedAnswersNeed) -> GenerateRequest:
        # The seed makes samples of equal contexts different, and equal in the next call.
        seed = self.places[i][1] if need.temperature > 0 else None
        context = self._masked_context(i, need, need.max_tokens)
        return GenerateRequest(context, need.max_tokens, need.temperature, ("</answer>",), seed)

    def _masked_context(
        self, i: int, need: MaskedAnswersNeed | MaskedLogProbsNeed, room: int
    ) -> TokenIds:
        tags = {} if need.tags is None else {"tags": need.tags}
        return self.contexts.masked(self.rollouts[i], need.part, room=room, **tags)

    async def score(
        self, requests: Sequence[ScoreRequest], members: Sequence[Sequence[int]]
    ) -> list[ScoreAnswer | None]:
        """Return the answers; the rollouts of a request without an answer get its error."""
        results = await call_model(lambda: self.policy.score(requests), len(requests))
        answers: list[ScoreAnswer | None] = []
        for result, rollouts in zip(results, members, strict=True):
            if isinstance(result, ScoreAnswer):
                self.usage.groups += 1
                self.usage.computed += result.computed
                self.usage.reused += result.reused
                self.usage.path = result.path
                answers.append(result)
                continue
            for i in rollouts:
                self.outcomes.fail(i, result)
            answers.append(None)
        return answers


def places_of(rollouts: Sequence[Rollout], groups: Groups | None) -> list[Place]:
    """Return the place of each rollout; without `groups`, the rollouts' own keys form groups."""
    if groups is None:
        groups = group_by_key(rollouts)
    places: dict[int, Place] = {}
    for number, group in enumerate(groups):
        places.update({i: (number, position) for position, i in enumerate(group)})
    return [places.get(i, (("alone", i), 0)) for i in range(len(rollouts))]


def _fields(evidence: Any) -> dict[str, Any]:
    """Return the fields of evidence that a rollout already has."""
    if not evidence:
        return {}
    return {name: getattr(evidence, name) for name in evidence.__struct_fields__}
