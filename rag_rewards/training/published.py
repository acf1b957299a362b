"""How the papers trained: what stands in them, and what does not.

A value without a source is ours, and says so wherever it is written: a paper that is silent on a
group size still needs one in a script.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Generic, Literal, TypeVar

T = TypeVar("T")
NOT_STATED = "not stated"

KL = Literal["none", "k2", "k3"]
Schedule = Literal["constant", "cosine"]


@dataclass(frozen=True)
class Stated(Generic[T]):
    """A value and where it stands."""

    value: T
    source: str = NOT_STATED


@dataclass(frozen=True)
class Training:
    """The training side of a recipe.

    prompts          prompts per step of the policy      group      rollouts of each
    learning_rate    of AdamW                            warmup     share of the steps
    kl, kl_weight    estimator and weight of the penalty clip       of the ratio, both sides
    temperature, top_p of sampling                       epochs     over the data
    prompt_tokens, response_tokens  room for each        std_floor  of the group advantage
    """

    prompts: Stated[int] = Stated(64)
    group: Stated[int] = Stated(8)
    learning_rate: Stated[float] = Stated(1e-6)
    schedule: Stated[Schedule] = Stated("constant")
    warmup: Stated[float] = Stated(0.0)
    epochs: Stated[int] = Stated(1)
    kl: Stated[KL] = Stated("k3")
    kl_weight: Stated[float] = Stated(0.001)
    clip: Stated[float] = Stated(0.2)
    temperature: Stated[float] = Stated(1.0)
    top_p: Stated[float] = Stated(1.0)
    prompt_tokens: Stated[int] = Stated(4096)
    response_tokens: Stated[int] = Stated(1024)
    std_floor: Stated[float | None] = Stated(None)

    def items(self) -> list[tuple[str, Stated[Any]]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self)]


_ARENA, _CODE = "ARENA, implementation details", "ARENA, authors' code"
ARENA = Training(
    prompts=Stated(256, _ARENA),
    group=Stated(7, _ARENA),
    learning_rate=Stated(3e-6, _ARENA),
    schedule=Stated("cosine", _ARENA),
    warmup=Stated(0.1, _ARENA),
    epochs=Stated(1, _ARENA),
    kl=Stated("k2", "ARENA, stable KL; the symbols are lost in the text, the code shows k2"),
    kl_weight=Stated(0.04, "not set in the authors' code: its trainer's default"),
    clip=Stated(0.2, _CODE),
    temperature=Stated(0.9, _ARENA),
    response_tokens=Stated(256, _CODE),
)
_GROUND = "Ground-GRPO, implementation details"
GROUND = Training(
    prompts=Stated(48, f"{_GROUND}: batch 384, read as rollouts of 8 a prompt"),
    group=Stated(8, _GROUND),
    learning_rate=Stated(1e-5, _GROUND),
    schedule=Stated("cosine", _GROUND),
    warmup=Stated(0.1, _GROUND),
    epochs=Stated(4, _GROUND),
)
_LEAR = "LEAR, section 4.1"
LEAR = Training(
    learning_rate=Stated(1e-6, _LEAR),
    epochs=Stated(1, _LEAR),
    kl=Stated("k3", "LEAR, section 4.1 has the weight; the estimator is not stated"),
    kl_weight=Stated(0.01, _LEAR),
    clip=Stated(0.2, _LEAR),
    std_floor=Stated(0.1, "LEAR, section 3.3"),
)
_TRUTH = "TruthRL, training details, and the authors' code"
TRUTH = Training(
    prompts=Stated(64, _TRUTH),
    group=Stated(8, _TRUTH),
    learning_rate=Stated(1e-6, _TRUTH),
    schedule=Stated("constant", _TRUTH),
    epochs=Stated(1, _TRUTH),
    kl=Stated("k3", _TRUTH),
    kl_weight=Stated(0.001, _TRUTH),
    clip=Stated(0.2, _TRUTH),
    temperature=Stated(1.0, _TRUTH),
    top_p=Stated(1.0, _TRUTH),
    prompt_tokens=Stated(16_384, _TRUTH),
    response_tokens=Stated(2_048, _TRUTH),
)
_CTRL = "CTRL-RAG, implementation details"
CTRL = Training(
    prompts=Stated(128, f"{_CTRL}: batch 1,024, read as rollouts of 8 a prompt"),
    group=Stated(8, _CTRL),
    learning_rate=Stated(1e-6, _CTRL),
    kl=Stated("none", f"{_CTRL}: a penalty of 0.01 to 0.05 collapsed within 20 steps"),
    kl_weight=Stated(0.0, _CTRL),
)

PUBLISHED: dict[str, Training] = {
    "arena": ARENA,
    "naive-grpo": ARENA,
    "ground-grpo-stage1": GROUND,
    "ground-grpo": GROUND,
    "lear": LEAR,
    "truthrl": TRUTH,
    "ctrl-rag": CTRL,
    "ctrl-rag-clr": CTRL,
    "rag-total": CTRL,
}
"""By recipe."""


def training_of(recipe: str) -> Training:
    """The training side of a recipe; of one's own, values that no paper states."""
    return PUBLISHED.get(recipe, Training())
