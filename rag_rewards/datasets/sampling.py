"""Responses sampled from a policy, kept in a file as they come: an interrupted run goes on."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import IO

import msgspec

from rag_rewards.errors import BackendError, OptionError, RolloutError, UsageError
from rag_rewards.evidence.contexts import Contexts
from rag_rewards.evidence.protocols import GenerateAnswer, GenerateRequest, Policy, TokenIds
from rag_rewards.prompts import Prompt
from rag_rewards.rollout import Rollout
from rag_rewards.rows.columns import response_prefix_of

BARREN = 3
"""Batches in a row, each of other prompts, without an answer: no further one is asked for."""
_TAIL = 16
"""Last tokens of a prompt, in which it may open a section for the model."""


@dataclass(frozen=True)
class Drawing:
    """How a policy samples responses."""

    samples: int = 256
    """Number of responses to each question."""
    temperature: float = 1.0
    """Sampling temperature."""
    max_tokens: int = 2048
    """Maximum number of tokens of a response."""
    seed: int = 0
    """Seed of the sampling."""
    batch: int = 64
    """Number of responses to request at a time. An interrupted run loses at most one batch."""

    def __post_init__(self) -> None:
        for name in ("samples", "max_tokens", "batch"):
            if getattr(self, name) < 1:
                template = f"{{{name}}} must be at least 1, found {{value}}"
                raise OptionError(template, value=getattr(self, name))
        if self.temperature < 0:
            raise OptionError(
                "{temperature} must be at least 0, found {value:g}", value=self.temperature
            )
        if self.temperature == 0 and self.samples > 1:
            raise OptionError("with {temperature} 0 all samples are equal: set {samples} to 1")

    @property
    def settings(self) -> dict[str, str | float | int]:
        """What makes another response of the same prompt and number."""
        return {
            "temperature": float(self.temperature),
            "max_tokens": self.max_tokens,
            "seed": self.seed,
        }


class Said(msgspec.Struct, frozen=True):
    """A response, the prompt (a digest of its tokens) and its number among that prompt's."""

    prompt: str
    sample: int
    response: str
    finish_reason: str


class _Head(msgspec.Struct, frozen=True):
    sampled_with: dict[str, str | float | int]


class Samples:
    """The responses so far, a line each, under a first line that says how they were drawn.

    Held of each are a few bytes. A line that was cut off when a run was killed is dropped.
    UsageError for a file of other settings.
    """

    def __init__(self, path: str, made_with: Mapping[str, str | float | int]) -> None:
        self.path = path
        self._places: dict[bytes, array[int]] = {}
        try:
            self._file: IO[bytes] = open(path, "a+b")  # noqa: SIM115 (lives as long as this)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from None
        try:
            self._index(dict(made_with))
        except UsageError:
            self.close()
            raise

    def _index(self, made_with: dict[str, str | float | int]) -> None:
        self._file.seek(0)
        head = self._file.readline()
        if not head.endswith(b"\n"):
            self._file.truncate(0)
            self._append(msgspec.json.encode(_Head(made_with)) + b"\n")
            return
        self._compare(head, made_with)
        at = self._file.tell()
        for line in iter(self._file.readline, b""):
            said = _said(line)
            if said is None:
                break
            self._places.setdefault(bytes.fromhex(said.prompt), array("q")).append(at)
            at += len(line)
        self._file.truncate(at)

    def _compare(self, head: bytes, made_with: Mapping[str, str | float | int]) -> None:
        try:
            before = msgspec.json.decode(head, type=_Head).sampled_with
        except (msgspec.MsgspecError, UnicodeError):
            raise UsageError(
                f"{self.path} holds no samples: remove it, or give another -o"
            ) from None
        for name, value in made_with.items():
            if before.get(name) != value:
                raise UsageError(
                    f"{self.path} has samples of {name} {before.get(name)}, not {value}: give "
                    "the same, remove it, or give another -o"
                )

    def of(self, prompt: str) -> dict[int, Said]:
        """What was said to a prompt, by its number."""
        found: dict[int, Said] = {}
        for at in self._places.get(bytes.fromhex(prompt), ()):
            self._file.seek(at)
            said = _said(self._file.readline())
            if said is not None:
                found[said.sample] = said
        return found

    def add(self, said: Sequence[Said]) -> None:
        """Write them, as far as the operating system: a killed process loses none of them."""
        for each in said:
            self._file.seek(0, 2)
            self._places.setdefault(bytes.fromhex(each.prompt), array("q")).append(
                self._file.tell()
            )
            self._append(msgspec.json.encode(each) + b"\n")

    def _append(self, line: bytes) -> None:
        self._file.write(line)
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _said(line: bytes) -> Said | None:
    """A line of the file; None where it was cut off."""
    if not line.endswith(b"\n"):
        return None
    try:
        return msgspec.json.decode(line, type=Said)
    except (msgspec.MsgspecError, UnicodeError):
        return None


@dataclass
class Sampler:
    """Asks a policy for what is missing of each question's responses.

    `prompt` asks a question that has no prompt of its own. Equal prompts share
    their responses; each response has a seed of its own, so that the same run gives the same.
    """

    policy: Policy
    drawing: Drawing
    samples: Samples
    prompt: Prompt
    truncate: bool = False
    new_responses: int = 0
    stored_responses: int = 0
    _barren: int = field(default=0, repr=False)

    def rollouts(self, questions: Sequence[Rollout]) -> list[list[Rollout] | RolloutError]:
        """The responses to each question, or why it has not got all of them.

        Raises BackendError where nothing is answered any more; what was, is kept.
        """
        plans = [self._plan(question) for question in questions]
        missing = {
            (plan.key, number): plan
            for plan in plans
            if isinstance(plan, _Plan)
            for number in plan.missing(self.drawing.samples)
        }
        wanted = [(number, plan) for (_, number), plan in missing.items()]
        failed: dict[str, RolloutError] = {}
        for start in range(0, len(wanted), self.drawing.batch):
            batch = wanted[start : start + self.drawing.batch]
            self._draw([each for each in batch if each[1].key not in failed], failed)
        return [self._made(plan, failed) for plan in plans]

    def _plan(self, question: Rollout) -> _Plan | RolloutError:
        contexts = Contexts(
            self.policy.tokenizer, self.prompt, self.policy.max_length, self.truncate
        )
        try:
            ids, _ = contexts.leave_one_out(question, (), self.drawing.max_tokens)
        except RolloutError as error:
            return error
        key = blake2b(repr(ids).encode(), digest_size=8).hexdigest()
        known = self.samples.of(key)
        prefix = question.response_prefix or response_prefix_of(
            self.policy.tokenizer.decode(ids[-_TAIL:])
        )
        plan = _Plan(question, ids, key, prefix, known)
        self.stored_responses += self.drawing.samples - len(plan.missing(self.drawing.samples))
        return plan

    def _draw(self, wanted: Sequence[tuple[int, _Plan]], failed: dict[str, RolloutError]) -> None:
        if not wanted:
            return
        requests = [self._request(number, plan) for number, plan in wanted]
        answers = self._answers(requests)
        said: list[Said] = []
        for (number, plan), answer in zip(wanted, answers, strict=True):
            if isinstance(answer, GenerateAnswer):
                said.append(Said(plan.key, number, answer.text, answer.finish_reason))
            else:
                failed.setdefault(plan.key, _as_backend_error(answer))
        self.samples.add(said)
        self.new_responses += len(said)
        self._barren = 0 if said else self._barren + 1
        if self._barren == BARREN:
            error = next(iter(failed.values()))
            raise BackendError(
                f"{error.message}; the sampled responses are in {self.samples.path}: run the "
                "command again to continue"
            )

    def _request(self, number: int, plan: _Plan) -> GenerateRequest:
        drawn = self.drawing
        text = f"{drawn.seed}:{plan.key}:{number}"
        seed = int.from_bytes(blake2b(text.encode(), digest_size=4).digest(), "big") >> 1
        return GenerateRequest(plan.ids, drawn.max_tokens, drawn.temperature, (), seed)

    def _answers(
        self, requests: Sequence[GenerateRequest]
    ) -> Sequence[GenerateAnswer | BaseException]:
        try:
            answers = asyncio.run(self.policy.generate(requests))
        except RolloutError as error:
            return [error] * len(requests)
        if len(answers) != len(requests):
            fault = BackendError(f"{len(answers)} answers to {len(requests)} requests")
            return [fault] * len(requests)
        return answers

    def _made(
        self, plan: _Plan | RolloutError, failed: Mapping[str, RolloutError]
    ) -> list[Rollout] | RolloutError:
        if isinstance(plan, RolloutError):
            return plan
        if plan.key in failed:
            return failed[plan.key]
        known = self.samples.of(plan.key)
        return [plan.rollout(known[number]) for number in range(self.drawing.samples)]


@dataclass(frozen=True)
class _Plan:
    """A question's prompt as tokens, and what was said to it before."""

    question: Rollout
    ids: TokenIds
    key: str
    prefix: str | None
    known: Mapping[int, Said]

    def missing(self, samples: int) -> list[int]:
        return [number for number in range(samples) if number not in self.known]

    def rollout(self, said: Said) -> Rollout:
        return msgspec.structs.replace(
            self.question,
            response=said.response,
            response_prefix=self.prefix,
            finish_reason=said.finish_reason,
        )


def _as_backend_error(error: BaseException) -> RolloutError:
    if isinstance(error, RolloutError):
        return BackendError(error.message)
    return BackendError(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
