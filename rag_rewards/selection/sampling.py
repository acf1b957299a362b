"""Sample responses from a policy. A file stores them at once, so that a run can be continued."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import IO, ClassVar

import msgspec

from rag_rewards.errors import (
    BackendError,
    OptionError,
    RolloutError,
    UsageError,
    describe,
    shorten,
)
from rag_rewards.evidence.contexts import Contexts
from rag_rewards.evidence.exchange import call_model
from rag_rewards.evidence.protocols import GenerateAnswer, GenerateRequest, Policy, TokenIds
from rag_rewards.prompts import Prompt
from rag_rewards.rollout import Rollout
from rag_rewards.rows.columns import response_prefix_of
from rag_rewards.rows.decoding import NOT_JSON

MAX_FAILED_BATCHES = 3
"""Number of consecutive batches without a response before the run ends."""
_TAIL = 16
"""Number of last tokens of a prompt that may open a section for the response."""


@dataclass(frozen=True)
class SamplingOptions:
    """How a policy samples responses."""

    samples: int = 256
    """Number of responses per question."""
    temperature: float = 1.0
    """Sampling temperature."""
    top_p: float = 1.0
    """Sample from the most likely tokens whose total probability is at least this value."""
    max_tokens: int = 2048
    """Maximum number of tokens of a response."""
    stop: str | None = None
    """End a response before this text, such as '</extract>' to sample only evidence with lear."""
    seed: int = 0
    """Random seed of the sampling."""

    def __post_init__(self) -> None:
        for name in ("samples", "max_tokens"):
            if getattr(self, name) < 1:
                template = f"{{{name}}} must be at least 1, found {{value}}"
                raise OptionError(template, value=getattr(self, name))
        if self.temperature < 0:
            raise OptionError(
                "{temperature} must be at least 0, found {value:g}", value=self.temperature
            )
        if not 0 < self.top_p <= 1:
            raise OptionError(
                "{top_p} must be above 0 and at most 1, found {value:g}", value=self.top_p
            )
        if self.stop == "":
            raise OptionError("{stop} is empty: set it to the text that ends a response")
        if self.temperature == 0 and self.samples > 1:
            raise OptionError("with {temperature} 0 all samples are equal: set {samples} to 1")

    @property
    def settings(self) -> dict[str, str | float | int]:
        """The settings that affect the responses."""
        return {
            "temperature": float(self.temperature),
            "top_p": float(self.top_p),
            "max_tokens": self.max_tokens,
            "seed": self.seed,
            "stop": self.stop or "",
        }


class SampledResponse(msgspec.Struct, frozen=True):
    """A response with a digest of the prompt's tokens, and its number for this prompt."""

    prompt: str
    sample: int
    response: str
    finish_reason: str


class _Head(msgspec.Struct, frozen=True):
    sampled_with: dict[str, str | float | int]


class SampleFile:
    """A file of sampled responses, one per line. The first line contains the sampling settings.

    Memory holds a few bytes per response. An incomplete last line is removed.

    Raises UsageError for a file with other settings.
    """

    def __init__(self, path: str, settings: Mapping[str, str | float | int]) -> None:
        self.path = path
        self._places: dict[bytes, array[int]] = {}
        try:
            self._file: IO[bytes] = open(path, "a+b")  # noqa: SIM115 (lives as long as this)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from None
        try:
            self._index(dict(settings))
        except UsageError:
            self.close()
            raise

    def _index(self, settings: dict[str, str | float | int]) -> None:
        self._file.seek(0)
        head = self._file.readline()
        if not head.endswith(b"\n"):
            self._file.truncate(0)
            self._append(msgspec.json.encode(_Head(settings)) + b"\n")
            return
        self._compare(head, settings)
        at = self._file.tell()
        for line in iter(self._file.readline, b""):
            response = _decode_response(line)
            if response is None:
                break
            self._places.setdefault(bytes.fromhex(response.prompt), array("q")).append(at)
            at += len(line)
        self._file.truncate(at)

    def _compare(self, head: bytes, settings: Mapping[str, str | float | int]) -> None:
        try:
            before = msgspec.json.decode(head, type=_Head).sampled_with
        except NOT_JSON:
            raise OptionError(
                "{path} does not contain samples: remove it, or choose another {output}",
                path=self.path,
            ) from None
        before = {"top_p": 1.0, "stop": "", **before}  # files of version 0.2.0 do not contain them
        for name, value in settings.items():
            if before.get(name) != value:
                raise OptionError(
                    "{path} has samples with {name} {before}, not {value}: use the same setting, "
                    "remove the file, or choose another {output}",
                    path=self.path,
                    name=name,
                    before=before.get(name),
                    value=value,
                )

    def of(self, prompt: str) -> dict[int, SampledResponse]:
        """Return the responses to a prompt by their number."""
        responses: dict[int, SampledResponse] = {}
        for at in self._places.get(bytes.fromhex(prompt), ()):
            self._file.seek(at)
            response = _decode_response(self._file.readline())
            if response is not None:
                responses[response.sample] = response
        return responses

    def add(self, responses: Sequence[SampledResponse]) -> None:
        """Write responses and flush them, so that a killed process loses none of them."""
        for response in responses:
            self._file.seek(0, 2)
            self._places.setdefault(bytes.fromhex(response.prompt), array("q")).append(
                self._file.tell()
            )
            self._append(msgspec.json.encode(response) + b"\n")

    def _append(self, line: bytes) -> None:
        self._file.write(line)
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _decode_response(line: bytes) -> SampledResponse | None:
    """Return the response in a line, or None if the line is incomplete."""
    if not line.endswith(b"\n"):
        return None
    try:
        return msgspec.json.decode(line, type=SampledResponse)
    except NOT_JSON:
        return None


@dataclass
class Sampler:
    """Request the missing responses to questions from a policy.

    `prompt` is for questions without a prompt of their own. Equal prompts share their responses.
    Each response has its own seed, so that equal runs give equal responses.
    """

    policy: Policy
    options: SamplingOptions
    samples: SampleFile
    prompt: Prompt
    truncate: bool = False
    batch: ClassVar[int] = 64
    """Number of responses to request at a time. An interrupted run loses at most one batch."""
    new_responses: int = 0
    stored_responses: int = 0
    _failed_batches: int = field(default=0, repr=False)
    """Number of consecutive batches without a response."""

    def rollouts(self, questions: Sequence[Rollout]) -> list[list[Rollout] | RolloutError]:
        """Return the rollouts of each question, or its error when a response is missing.

        Raises BackendError after several consecutive batches without a response.
        """
        plans = [self._plan(question) for question in questions]
        missing = {
            (plan.key, number): plan
            for plan in plans
            if isinstance(plan, _Plan)
            for number in plan.missing(self.options.samples)
        }
        queue = [(number, plan) for (_, number), plan in missing.items()]
        errors: dict[str, RolloutError] = {}
        for start in range(0, len(queue), self.batch):
            batch = queue[start : start + self.batch]
            self._sample([each for each in batch if each[1].key not in errors], errors)
        return [self._rollouts(plan, errors) for plan in plans]

    def _plan(self, question: Rollout) -> _Plan | RolloutError:
        contexts = Contexts(
            self.policy.tokenizer, self.prompt, self.policy.max_length, self.truncate
        )
        try:
            ids, _ = contexts.leave_one_out(question, (), self.options.max_tokens)
        except RolloutError as error:
            return error
        key = blake2b(repr(ids).encode(), digest_size=8).hexdigest()
        responses = self.samples.of(key)
        prefix = question.response_prefix or response_prefix_of(
            self.policy.tokenizer.decode(ids[-_TAIL:])
        )
        plan = _Plan(question, ids, key, prefix, responses)
        self.stored_responses += self.options.samples - len(plan.missing(self.options.samples))
        return plan

    def _sample(self, batch: Sequence[tuple[int, _Plan]], errors: dict[str, RolloutError]) -> None:
        """Store the responses to a batch of requests, and add the errors by prompt."""
        if not batch:
            return
        requests = [self._request(number, plan) for number, plan in batch]
        answers = asyncio.run(call_model(lambda: self.policy.generate(requests), len(requests)))
        responses: list[SampledResponse] = []
        for (number, plan), answer in zip(batch, answers, strict=True):
            if isinstance(answer, GenerateAnswer):
                response = SampledResponse(plan.key, number, answer.text, answer.finish_reason)
                responses.append(response)
            else:
                errors.setdefault(plan.key, _as_backend_error(answer))
        self.samples.add(responses)
        self.new_responses += len(responses)
        self._failed_batches = 0 if responses else self._failed_batches + 1
        if self._failed_batches == MAX_FAILED_BATCHES:
            error = next(iter(errors.values()))
            raise BackendError(
                f"{error.message}; the sampled responses are in {self.samples.path}: run the "
                "command again to continue"
            )

    def _request(self, number: int, plan: _Plan) -> GenerateRequest:
        options = self.options
        text = f"{options.seed}:{plan.key}:{number}"
        seed = int.from_bytes(blake2b(text.encode(), digest_size=4).digest(), "big") >> 1
        stop = (options.stop,) if options.stop else ()
        return GenerateRequest(
            plan.ids, options.max_tokens, options.temperature, stop, seed, options.top_p
        )

    def _rollouts(
        self, plan: _Plan | RolloutError, errors: Mapping[str, RolloutError]
    ) -> list[Rollout] | RolloutError:
        if isinstance(plan, RolloutError):
            return plan
        if plan.key in errors:
            return errors[plan.key]
        responses = self.samples.of(plan.key)
        return [plan.rollout(responses[number]) for number in range(self.options.samples)]


@dataclass(frozen=True)
class _Plan:
    """A question with the tokens of its prompt and the responses of earlier runs."""

    question: Rollout
    ids: TokenIds
    key: str
    prefix: str | None
    responses: Mapping[int, SampledResponse]

    def missing(self, samples: int) -> list[int]:
        """Return the numbers of the missing responses."""
        return [number for number in range(samples) if number not in self.responses]

    def rollout(self, response: SampledResponse) -> Rollout:
        """Return the question with a response."""
        return msgspec.structs.replace(
            self.question,
            response=response.response,
            response_prefix=self.prefix,
            finish_reason=response.finish_reason,
        )


def _as_backend_error(error: BaseException) -> RolloutError:
    if isinstance(error, RolloutError):
        return BackendError(error.message)
    return BackendError(shorten(describe(error), 300))
