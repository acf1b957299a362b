"""Every reward and metric refuses a value that is not among the choices of an argument."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

import rag_rewards as rr
from rag_rewards import compose, metrics, reward, rewards
from rag_rewards.calibration import options as calibration_options
from rag_rewards.errors import SettingError
from rag_rewards.preparation import options as preparation_options
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.scoring import options as score_options
from rag_rewards.selection import rules, training_sets
from rag_rewards.training import advantages, credit, kl

REQUIRED: dict[str, Any] = {
    "reward": AnswerMatch(),
    "inner": AnswerMatch(),
    "part": "full",
    "kind": "rft",
    "mode": "likelihood",
    "scope": "rollout",
    "k": 1,
}
"""Values of the arguments without a default that constructors check as well."""


def modules() -> Iterator[ModuleType]:
    yield from (compose, reward, rules, training_sets)
    yield from (calibration_options, preparation_options, score_options)
    for package in (rewards, metrics):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(module.name)


def constructors() -> Iterator[type]:
    """Yield the public dataclasses. Private ones are their bases, and are not constructed."""
    for module in modules():
        for kind in vars(module).values():
            if isinstance(kind, type) and kind.__name__.startswith("_"):
                continue
            is_own = isinstance(kind, type) and kind.__module__ == module.__name__
            if is_own and dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen:
                yield kind


def choices() -> Iterator[tuple[type, str]]:
    """Yield the arguments of constructors whose values are a closed set."""
    for kind in constructors():
        hints = get_type_hints(kind)
        for field in dataclasses.fields(kind):
            hint = hints[field.name]
            if any(get_origin(part) is Literal for part in (hint, *get_args(hint))):
                yield kind, field.name


CHOICES = list(choices())


def test_many_arguments_are_closed_sets() -> None:
    assert len({kind for kind, _ in CHOICES}) > 40
    assert (AnswerMatch, "reads") in CHOICES


@pytest.mark.parametrize(
    ("kind", "name"), [pytest.param(*each, id=f"{each[0].__name__}-{each[1]}") for each in CHOICES]
)
def test_another_value_is_refused(kind: Any, name: str) -> None:
    required = {
        field.name: REQUIRED.get(field.name)
        for field in dataclasses.fields(kind)
        if field.init and field.default is field.default_factory is dataclasses.MISSING
    }
    fields = required | {name: "nope"}
    message = f"{kind.__name__}: {name}: expected one of .*, found 'nope'"
    with pytest.raises(rr.SettingError, match=message) as raised:
        kind(**fields)
    assert isinstance(raised.value, ValueError)


# --- plain functions ---------------------------------------------------------------------------


def functions() -> Iterator[tuple[Callable[..., Any], str, tuple[Any, ...]]]:
    """Yield the arguments of public functions whose values are a closed set, with the values."""
    for module in (rewards, credit, advantages, kl, compose, metrics):
        for name in getattr(module, "__all__", None) or vars(module):
            function = getattr(module, name)
            if inspect.isfunction(function) and not name.startswith("_"):
                for argument, hint in get_type_hints(function).items():
                    if get_origin(hint) is Literal and argument != "return":
                        yield function, argument, get_args(hint)


FUNCTIONS = list(functions())


def test_many_functions_have_closed_sets() -> None:
    assert len(FUNCTIONS) > 20
    assert (credit.igpo, "norm", ("joint", "separate")) in FUNCTIONS


@pytest.mark.parametrize(
    ("function", "argument", "values"),
    [pytest.param(*each, id=f"{each[0].__name__}-{each[1]}") for each in FUNCTIONS],
)
def test_a_function_refuses_another_value(
    function: Callable[..., Any], argument: str, values: tuple[Any, ...]
) -> None:
    required = {
        name: None
        for name, each in inspect.signature(function).parameters.items()
        if each.default is inspect.Parameter.empty
    }
    others = {name: own[0] for each, name, own in FUNCTIONS if each is function}
    arguments = required | others | {argument: "another"}
    with pytest.raises(SettingError, match=f"^{argument}: expected one of .*, found 'another'$"):
        function(**arguments)


def test_the_error_names_the_choices() -> None:
    with pytest.raises(SettingError, match="norm: expected one of joint, separate, found 'both'"):
        credit.igpo([[1.0]], norm="both")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="scheme: expected one of ternary, binary"):
        rewards.outcome_reward("correct", "geometric")
