"""The credit method of a recipe: its settings, and the function with its options."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec

from rag_rewards.errors import UsageError
from rag_rewards.groups import Groups
from rag_rewards.rollout import ScoreOrError
from rag_rewards.settings import about, did_you_mean
from rag_rewards.training.credit.entries import Advantages, check_number
from rag_rewards.training.credit.gigpo import Anchors
from rag_rewards.training.credit.groups import METHODS, credit_of_groups

GROUP = "group"
"""The method that gives all turns the advantage of the reward in its group, by the trainer."""


CreditMethod = Literal["group", "return", "igpo", "mt_grpo"]


@dataclass(frozen=True)
class CreditSettings:
    """Settings of the credit of a recipe, which the adapters of trainers read."""

    method: Annotated[
        CreditMethod,
        about(
            "advantages of the turns; group: all turns share the advantage of the reward",
            "ours: group, as without turns",
        ),
    ] = "group"
    norm: Annotated[
        Literal["joint", "separate"],
        about(
            "with method=igpo, whether process rewards and outcomes are one pool or two",
            "IGPO, authors' code: joint; its train.sh: separate",
        ),
    ] = "joint"
    gamma: Annotated[
        float,
        about("discount of the rewards of later turns", "IGPO, authors' code", ge=0, le=1),
    ] = 1.0
    std_floor: Annotated[
        float,
        about(
            "with method=igpo, minimum of the standard deviation of a pool, so that rewards that "
            "are almost equal do not get full advantages",
            "ours: 0, as published",
            ge=0,
        ),
    ] = 0.0


@dataclass(frozen=True)
class Credit:
    """A credit method with its options.

    method   name of a method in `METHODS`
    options  keyword arguments of its function

    Raises UsageError for an unknown method or option, and for an invalid value.

    >>> from rag_rewards.rollout import Score
    >>> scores = [Score(1.3, turns=(0.3, 1.0)), Score(0.0, turns=(0.0, 0.0))]
    >>> Credit("return", {"scale": "none"})(scores, [[0, 1]])
    [[0.65, 0.5], [-0.65, -0.5]]
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise UsageError(
                f"no credit method {self.method!r}{did_you_mean(self.method, METHODS)}"
            )
        known = _options(self.method)
        hints = typing.get_type_hints(inspect.unwrap(METHODS[self.method]))
        for name, value in self.options.items():
            if name not in known:
                raise UsageError(
                    f"the credit method {self.method} has no option {name!r}"
                    f"{did_you_mean(name, known)}"
                )
            try:
                msgspec.convert(value, hints[name])
            except msgspec.ValidationError as error:
                raise UsageError(
                    f"option {name}={value!r} of the credit method {self.method}: {error}"
                ) from None
            _check_numbers(self.method, name, value)
            if name == "gamma" and not 0 <= value <= 1:
                raise UsageError(
                    f"option gamma={value} of the credit method {self.method}: set a discount "
                    "from 0 to 1"
                )

    def __call__(
        self,
        scores: Sequence[ScoreOrError | None],
        groups: Groups,
        anchors: Anchors | None = None,
    ) -> Advantages:
        """Return the advantages of the turns of each score, None for an unscored rollout.

        `anchors` is the state before each turn of each score, which only `gigpo` reads.
        """
        options = dict(self.options)
        if self.method == "gigpo":
            options["anchors"] = anchors
        return credit_of_groups(scores, groups, self.method, **options)

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any] | None) -> Credit | None:
        """Return the credit of the settings of a recipe, None if all turns share one advantage.

        settings  values by dotted key

        >>> Credit.of_settings({"credit.method": "return", "credit.gamma": 0.9})
        Credit(method='return', options={'gamma': 0.9})
        """
        method = (settings or {}).get("credit.method", GROUP)
        if settings is None or method == GROUP:
            return None
        names = [name for name in _options(method) if f"credit.{name}" in settings]
        return cls(method, {name: settings[f"credit.{name}"] for name in names})


def _check_numbers(method: str, name: str, value: Any) -> None:
    """Raise UsageError for a number that is not finite, and for a negative floor."""
    numbers = {name: value}
    if isinstance(value, Mapping):
        numbers = {f"{name}.{key}": each for key, each in value.items()}
    for key, each in numbers.items():
        if isinstance(each, (int, float)):
            try:
                check_number(key, each)
            except UsageError as error:
                raise UsageError(f"credit method {method}: {error}") from None


def _options(method: str) -> list[str]:
    """Return the names of the options of a method."""
    parameters = inspect.signature(METHODS[method]).parameters
    return [
        name
        for name, parameter in parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
