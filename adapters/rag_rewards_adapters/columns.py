"""What trainers with a reward function and a table of columns have in common."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from rag_rewards.errors import UsageError
from rag_rewards.evidence import Model
from rag_rewards.grading import WAYS_OUT
from rag_rewards.labels import READ
from rag_rewards.settings import did_you_mean


def check_fields(columns: Mapping[str, str]) -> None:
    """UsageError where `columns` (our field → the data set's column) has a field that is none.

    >>> check_fields({"answers": "golden_answers"})
    """
    for ours in columns:
        if ours not in READ:
            raise UsageError(f"columns: no field {ours!r}{did_you_mean(ours, sorted(READ))}")


def column_names(columns: Mapping[str, str], present: Collection[str]) -> dict[str, str]:
    """The column of each field that a data set may bring: as `columns` has it, else its own name.

    UsageError where one that `columns` names is not among those that are `present`.

    >>> column_names({"answers": "golden_answers"}, ["golden_answers", "id"])["answers"]
    'golden_answers'
    """
    for column in columns.values():
        if column not in present:
            raise UsageError(
                f"the data set has no column {column!r}{did_you_mean(column, sorted(present))}"
            )
    return {field: columns.get(field, field) for field in READ}


def last_question(prompt: Any) -> str | None:
    """The last thing a user said in a chat; None where the prompt is text or holds no such text.

    >>> last_question([{"role": "user", "content": "Which river?"}])
    'Which river?'
    """
    if isinstance(prompt, str):
        return None
    said = [message.get("content") for message in prompt if message.get("role") == "user"]
    return said[-1] if said and isinstance(said[-1], str) else None


def no_model(name: str, kind: Model, way: str = "give") -> UsageError:
    """That a reward of this name asks a kind of model that nobody gave, and the way out.

    >>> str(no_model("ground-grpo", "entailment"))
    'ground-grpo has no model to ask (entailment): give nli="path/to/model"'
    """
    return UsageError(f"{name} has no model to ask ({kind}): {way} {WAYS_OUT[kind]}")
