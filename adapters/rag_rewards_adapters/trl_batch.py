"""One batch, as GRPOTrainer passes it to a reward function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Batch:
    """The arguments of a reward function: lists with one value per completion."""

    prompts: Sequence[Any]
    completions: Sequence[Any]
    completion_ids: Sequence[Sequence[int]] | None = None
    trainer_state: Any = None
    log_extra: Any = None
    log_metric: Any = None
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, *, environments: Any = None, **arguments: Any) -> Batch:
        named = {
            name: arguments.pop(name) for name in cls.__dataclass_fields__ if name in arguments
        }
        return cls(**named, columns=arguments)

    @property
    def positions(self) -> range:
        return range(len(self.prompts))

    @property
    def step(self) -> int | None:
        return getattr(self.trainer_state, "global_step", None)
