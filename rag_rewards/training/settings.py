"""Training settings that a paper states, each with its source.

The values of a published system are in its recipe's definition. A value whose source is
`NOT_STATED` is the default of this package: a training script needs a group size even where the
paper states none.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Generic, Literal, TypeVar

T = TypeVar("T")
NOT_STATED = "not stated"

KL = Literal["none", "k2", "k3"]
Schedule = Literal["constant", "cosine", "linear"]
Aggregation = Literal["response", "token"]
"""How a loss averages over tokens: within each response and then over the responses, or over all
tokens of the batch."""


@dataclass(frozen=True)
class Stated(Generic[T]):
    """A value and its source."""

    value: T
    source: str = NOT_STATED

    @property
    def is_stated(self) -> bool:
        """Whether a paper states the value."""
        return self.source != NOT_STATED


@dataclass(frozen=True)
class FineTuning:
    """The settings of a fine-tuning before GRPO or in its place (SFT, RFT, R-Tuning, DPO).

    batch            rows per step of the optimizer      epochs     over the data
    learning_rate    of AdamW                            warmup     share of the steps
    max_grad_norm    of the gradient                     beta       of the DPO loss
    max_tokens       of a prompt with its response; None is the sum of the limits of GRPO
    lora_rank        of the adapter that is trained; None trains all weights
    """

    batch: Stated[int] = Stated(16)
    learning_rate: Stated[float] = Stated(5e-6)
    schedule: Stated[Schedule] = Stated("cosine")
    warmup: Stated[float] = Stated(0.03)
    epochs: Stated[int] = Stated(1)
    max_grad_norm: Stated[float] = Stated(1.0)
    beta: Stated[float] = Stated(0.1)
    max_tokens: Stated[int | None] = Stated(None)
    lora_rank: Stated[int | None] = Stated(None)

    def items(self) -> list[tuple[str, Stated[Any]]]:
        """Return the settings by name, in order."""
        return [(field.name, getattr(self, field.name)) for field in fields(self)]


@dataclass(frozen=True)
class Training:
    """The training settings of a recipe.

    prompts          prompts per step of the policy      group      rollouts per prompt
    learning_rate    of AdamW                            warmup     share of the steps
    kl, kl_weight    estimator and weight of the penalty clip       of the ratio, both sides
    iterations       optimizer passes over each batch    epochs     over the data
    loss_aggregation of the losses of tokens             entropy_weight  of the entropy bonus
    temperature, top_p  of sampling                      std_floor  of the group advantage
    prompt_tokens, response_tokens  length limits
    tensor_parallel  GPUs of a rollout engine            memory_share  of each for the engine
    sft, dpo         the fine-tuning of the baselines
    notes            facts of the paper that no setting of a training script holds
    """

    prompts: Stated[int] = Stated(64)
    group: Stated[int] = Stated(8)
    learning_rate: Stated[float] = Stated(1e-6)
    schedule: Stated[Schedule] = Stated("constant")
    warmup: Stated[float] = Stated(0.0)
    epochs: Stated[int] = Stated(1)
    kl: Stated[KL] = Stated("k3")
    kl_weight: Stated[float] = Stated(0.001)
    iterations: Stated[int] = Stated(1)
    clip: Stated[float] = Stated(0.2)
    loss_aggregation: Stated[Aggregation] = Stated("response")
    entropy_weight: Stated[float] = Stated(0.0)
    temperature: Stated[float] = Stated(1.0)
    top_p: Stated[float] = Stated(1.0)
    prompt_tokens: Stated[int] = Stated(4096)
    response_tokens: Stated[int] = Stated(1024)
    std_floor: Stated[float | None] = Stated(None)
    tensor_parallel: Stated[int | None] = Stated(None)
    memory_share: Stated[float | None] = Stated(None)
    sft: FineTuning = FineTuning()
    dpo: FineTuning = FineTuning(batch=Stated(32), learning_rate=Stated(3e-6))
    notes: tuple[str, ...] = ()

    def items(self) -> list[tuple[str, Stated[Any]]]:
        """Return the settings of GRPO by name, in order."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return [(name, value) for name, value in values if isinstance(value, Stated)]

    def baselines(self) -> dict[str, FineTuning]:
        """Return the fine-tunings of which the paper states a value, by their title."""
        return {
            title: settings
            for title, settings in (("SFT", self.sft), ("DPO", self.dpo))
            if any(stated.is_stated for _, stated in settings.items())
        }

    def summary(self) -> list[str]:
        """Return the stated settings in one line per source, and then the notes.

        >>> Training(group=Stated(7, "the paper"), epochs=Stated(1, "the paper")).summary()
        ['group 7, epochs 1 (the paper)']
        """
        lines = _by_source(self.items())
        for title, settings in self.baselines().items():
            lines += [f"{title}: {line}" for line in _by_source(settings.items())]
        return [*lines, *self.notes]


def _by_source(items: list[tuple[str, Stated[Any]]]) -> list[str]:
    lines: dict[str, list[str]] = {}
    for name, stated in items:
        if stated.is_stated:
            lines.setdefault(stated.source, []).append(f"{name} {stated.value}")
    return [f"{', '.join(values)} ({source})" for source, values in lines.items()]
