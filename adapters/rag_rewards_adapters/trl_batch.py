"""One batch, as GRPOTrainer passes it to a reward function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rag_rewards.errors import RolloutError
from rag_rewards.rows.columns import GOLD_FIELDS, to_builtins


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
    def updates(self) -> int | None:
        return getattr(self.trainer_state, "global_step", None)


def gold_column(fields: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return the gold fields of each completion as JSON; empty if the data set has none.

    With this column, the files of `log_completions` can be scored again. The value of a completion
    is null if its gold fields are no JSON, so that it is unscored.

    >>> gold_column({"answers": [["Seine"]], "url": ["…"]})
    ['{"answers":["Seine"]}']
    """
    gold = {name: fields[name] for name in GOLD_FIELDS if name in fields}
    rows = zip(*gold.values(), strict=True)
    return [_json(dict(zip(gold, row, strict=True))) for row in rows]


def _json(fields: Mapping[str, Any]) -> str:
    try:
        return msgspec.json.encode(to_builtins(fields)).decode()
    except (RolloutError, TypeError, ValueError, OverflowError):
        return "null"
