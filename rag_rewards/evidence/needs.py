"""Needs: the model outputs that a reward requires for a rollout.

`needs(rollout)` of a reward returns them. Evidence of the rollout meets a need; otherwise a model
of the kind `model_kind` provides it. A need determines the field of the evidence that it concerns,
the error of a row without it, and the form in which the output of a model is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

from rag_rewards.errors import BackendError, DataError, SettingError, shorten
from rag_rewards.evidence.protocols import TextPair
from rag_rewards.rollout import Entailment, LogProbs, Rollout, Similarity, TurnLogProbs
from rag_rewards.text.sections import Tags
from rag_rewards.turns.trajectory import READING, Reading

ModelKind = Literal["policy", "generator", "entailment", "similarity", "judge"]
"""The kinds of models. Without a generator, the policy is the generator."""
Baseline = Literal["previous", "empty", "random"]
"""What the likelihood of an answer after a turn is compared with."""


class Need:
    """A request for one piece of evidence.

    model_kind  the kind of model that provides it
    field_name  the field of the evidence that contains it
    method      the method of a model of texts that provides it
    no_method   the error of a model without this method

    The field `component` or `part` of a subclass, if it is a text, names the part of `field_name`
    that contains the evidence.
    """

    model_kind: ClassVar[ModelKind]
    field_name: ClassVar[str]
    method: ClassVar[str] = ""
    no_method: ClassVar[str] = ""

    @property
    def part_name(self) -> str:
        """The part of the field with the evidence, which the need names; "" for all parts."""
        name = getattr(self, "component", getattr(self, "part", ""))
        return name if isinstance(name, str) else ""

    @property
    def path(self) -> str:
        """The path of the evidence in a row."""
        return f"{self.field_name}.{self.part_name}" if self.part_name else self.field_name

    @property
    def fault(self) -> str:
        """What a row without the evidence lacks, and how to add it."""
        raise NotImplementedError

    def unmet(self) -> DataError:
        """Return the error of a row without the evidence."""
        return DataError(self.fault, self.path)

    def value(self, rollout: Rollout) -> Any:
        """Return the evidence, or None for a rollout without it."""
        value = getattr(rollout, self.field_name)
        if isinstance(value, dict):
            return value.get(self.part_name)
        return getattr(value, self.part_name, None)

    def is_met(self, rollout: Rollout) -> bool:
        """Return whether the rollout contains the evidence."""
        return self.value(rollout) is not None

    def read(self, rollout: Rollout) -> Any:
        """Return the evidence. Raises DataError for a rollout without it."""
        value = self.value(rollout)
        if value is None:
            raise self.unmet()
        return value

    @property
    def requests(self) -> tuple[Any, ...]:
        """The requests to a model of texts. Those to a policy contain a whole group."""
        return ()

    @classmethod
    async def call(cls, model: Any, requests: Sequence[Any]) -> Sequence[Any]:
        """Return the results of a model of texts for requests of this type."""
        if (method := getattr(model, cls.method, None)) is None:
            raise BackendError(cls.no_method)
        results: Sequence[Any] = await method(requests)
        return results

    def combine(self, results: Sequence[Any]) -> Any:
        """Return one result, or an error, from the results of all requests."""
        return results[0]

    def parts(self, result: Any) -> Mapping[Any, Any]:
        """Return the parts of the field that contain a result, by key."""
        return {self.part_name: result} if self.part_name else {**result}


NeedsByRollout = Mapping[int, Sequence[Need]]
"""Position of a rollout → its needs."""
N = TypeVar("N", bound=Need)


def needs_of_type(needs: NeedsByRollout, kind: type[N]) -> dict[int, list[N]]:
    """Return the needs of one type, without rollouts that have none."""
    of_type: dict[int, list[N]] = {}
    for i, own in needs.items():
        for need in own:
            if isinstance(need, kind):
                of_type.setdefault(i, []).append(need)
    return of_type


# --- a policy ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class LogProbsNeed(Need):
    """Token log-probabilities of the response, with all documents and without each of these."""

    model_kind = "policy"
    field_name = "logprobs"
    without: tuple[str, ...]

    @property
    def fault(self) -> str:
        parts = "`full`" + "".join(f", `without.{label}`" for label in self.without)
        return f"missing; add {parts}, with one value per response token, or set the option model"

    def value(self, rollout: Rollout) -> LogProbs | None:
        has_all = all(values_without(rollout, label) is not None for label in self.without)
        return rollout.logprobs if has_all else None


def values_without(rollout: Rollout, label: str) -> tuple[float, ...] | None:
    """Return the log-probabilities without one document, None if the evidence has none.

    The evidence can refer to the document by its id or by its label.
    """
    without = rollout.logprobs.without if rollout.logprobs else {}
    if (values := without.get(label)) is not None:
        return values
    for reference, values in without.items():
        if values is not None and rollout.label_of(reference) == label:
            return values
    return None


@dataclass(frozen=True)
class MaskedAnswersNeed(Need):
    """LEAR's answer from a context in which everything except one part is masked."""

    model_kind = "policy"
    field_name = "masked_answers"
    fault = "missing; add the answer from the masked context, or set the option model"
    part: str  # "rationale" or "evidence"
    temperature: float = 0.0
    max_tokens: int = 64
    tags: Tags | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class GeneratedAnswerNeed(Need):
    """The answer of a generator to a chat, for example to a question with some documents.

    component  name of the answer in the field
    messages   role and content of each message
    """

    model_kind = "generator"
    field_name = "generated_answers"
    fault = (
        "missing; add the answer of the generator, set the option generator, or set the option "
        "model"
    )
    component: str
    messages: tuple[tuple[str, str], ...]
    temperature: float = 0.0
    max_tokens: int = 64


@dataclass(frozen=True)
class MaskedLogProbsNeed(Need):
    """Log-probabilities of each gold alias after one of LEAR's contexts."""

    model_kind = "policy"
    field_name = "masked_logprobs"
    fault = "missing; add one list per gold alias, or set the option model"
    part: str  # "rationale", "evidence" or "full"
    tags: Tags | None = field(default=None, compare=False, repr=False)


ANSWER_TEMPLATES = {
    "igpo": "<think>\nNow there's enough information to answer\n</think>\n<answer>\n{answer}\n"
    "</answer>",
    "plain": "\n<answer> {answer} </answer>",
}
"""Texts between a turn of a search agent and the answer whose likelihood is measured, by name.
Sources: IGPO, released code at 745078b, scrl/llm_agent/generation.py; IG-Search, released code at
da299c4 (plain)."""


def before_answer(template: str) -> str:
    """Return the text before the answer, of a template by its name or of a text with {answer}.

    Raises SettingError for a text that does not contain {answer} exactly once.

    >>> before_answer("plain")
    '\\n<answer> '
    """
    text = ANSWER_TEMPLATES.get(template, template)
    if (count := text.count("{answer}")) != 1:
        names = ", ".join(ANSWER_TEMPLATES)
        raise SettingError(
            f"template: must be {names} or a text that contains {{answer}} once, found it {count} "
            "times"
        )
    return text[: text.index("{answer}")]


@dataclass(frozen=True)
class TurnLogProbsNeed(Need):
    """Log-probabilities of the gold aliases before and after the turns of a search agent.

    turns     number of turns
    baseline  `previous`: after the prompt and after each turn but the last one; `empty`: also as if
              the search of a turn had no hits; `random`: also with results of other prompts
    draws     with baseline=random, number of prompts whose results replace those of a turn
    template  text between a turn and the answer, see `before_answer`
    aliases   `first`: only the first alias of each required answer
    reading   how the turns are read
    """

    model_kind = "policy"
    field_name = "turn_logprobs"
    turns: int
    baseline: Baseline = "previous"
    draws: int = 0
    template: str = "igpo"
    aliases: Literal["first", "all"] = "all"
    reading: Reading = field(default=READING, compare=False, repr=False)

    @property
    def fault(self) -> str:
        parts = "`prior` and `after`, with one list per gold alias"
        if self.baseline != "previous":
            parts = f"`{self.baseline}`, with an entry for each turn but the last one"
        return f"missing; add {parts}, or set the option model"

    def value(self, rollout: Rollout) -> TurnLogProbs | None:
        evidence = rollout.turn_logprobs
        if evidence is None or self.baseline == "previous":
            return evidence
        return None if getattr(evidence, self.baseline) is None else evidence


# --- entailment and similarity -----------------------------------------------------------------


@dataclass(frozen=True)
class _EntailmentModelNeed(Need):
    """A need of an entailment model, about a premise and a hypothesis."""

    model_kind = "entailment"
    field_name = "nli"
    premise: str
    hypothesis: str

    @property
    def requests(self) -> tuple[TextPair, ...]:
        return ((self.premise, self.hypothesis),)


@dataclass(frozen=True)
class EntailmentNeed(_EntailmentModelNeed):
    """The probability that the premise entails the hypothesis."""

    method = "entail"

    @property
    def fault(self) -> str:
        return (
            f"no entry for premise {shorten(self.premise, 60)!r} and hypothesis "
            f"{shorten(self.hypothesis, 60)!r}; add it, set the option nli to an entailment "
            "model, or set citation.judge_by=gold if the recipe has this setting"
        )

    def value(self, rollout: Rollout) -> float | None:
        return rollout.entailment(self.premise, self.hypothesis)

    def parts(self, result: float) -> dict[TextPair, Entailment]:
        entry = Entailment(premise=self.premise, hypothesis=self.hypothesis, entailment=result)
        return {(self.premise, self.hypothesis): entry}


@dataclass(frozen=True)
class ContradictionNeed(_EntailmentModelNeed):
    """The probability that the premise contradicts the hypothesis."""

    method = "entail_and_contradict"
    no_method = (
        "the entailment model has no label for contradiction: set nli to a model with three labels"
    )

    @property
    def fault(self) -> str:
        return (
            f"no entry with `contradiction` for premise {shorten(self.premise, 60)!r} and "
            f"hypothesis {shorten(self.hypothesis, 60)!r}; add it, or set the option nli to a "
            "model with the label contradiction"
        )

    def value(self, rollout: Rollout) -> float | None:
        return rollout.contradiction(self.premise, self.hypothesis)

    def parts(self, result: tuple[float, float]) -> dict[TextPair, Entailment]:
        entailment, contradiction = result
        entry = Entailment(
            premise=self.premise,
            hypothesis=self.hypothesis,
            entailment=entailment,
            contradiction=contradiction,
        )
        return {(self.premise, self.hypothesis): entry}


@dataclass(frozen=True)
class SimilarityNeed(Need):
    """The similarity of a text to a reference."""

    model_kind = "similarity"
    field_name = "similarity"
    method = "similarity"
    text: str
    reference: str

    @property
    def fault(self) -> str:
        text = shorten(self.text, 60)
        return f"no entry for text {text!r}; add it, or set the option similarity"

    def value(self, rollout: Rollout) -> float | None:
        return rollout.similarity_to(self.text, self.reference)

    @property
    def requests(self) -> tuple[TextPair, ...]:
        return ((self.text, self.reference),)

    def parts(self, result: float) -> dict[TextPair, Similarity]:
        entry = Similarity(text=self.text, reference=self.reference, similarity=result)
        return {(self.text, self.reference): entry}
