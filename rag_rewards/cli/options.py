"""Options that several commands share, as groups of the help.

Each group is a dataclass that the code itself uses. cyclopts generates an option from each field;
the docstring of the field is the help text. A command has the groups that it needs as parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Group, Parameter

from rag_rewards.cli.recipe_options import RecipeOptions
from rag_rewards.models.model_options import (
    EncoderOptions,
    JudgeOptions,
    ModelOptions,
    PolicyOptions,
)
from rag_rewards.scoring.ray_cluster import RayOptions

FILES = Group("Input and output", sort_key=1)
RECIPE = Group("Recipe", sort_key=3)
GROUPS = Group("Groups", sort_key=4)
MODELS = Group("Models", sort_key=5)
JUDGE = Group("Judge", sort_key=6)
DUMP = Group("Dump", sort_key=7)
RAY = Group("Ray", sort_key=8)


@dataclass(frozen=True, kw_only=True)
class GroupOptions:
    """How rows form groups. By default, adjacent rows with equal keys are a group."""

    group_size: int | None = None
    """Number of consecutive rows of a group. By default, rows with equal `group` form a group."""
    sort: bool = False
    """Put the rows of each group next to each other before scoring."""


@dataclass(frozen=True, kw_only=True)
class ModelGroups:
    """The models that provide evidence, as groups of options."""

    policy: Annotated[PolicyOptions, Parameter(name="*", group=MODELS)] = PolicyOptions()
    encoders: Annotated[EncoderOptions, Parameter(name="*", group=MODELS)] = EncoderOptions()
    judge: Annotated[JudgeOptions, Parameter(name="*", group=JUDGE)] = JudgeOptions()

    def options(self) -> ModelOptions:
        """Return the options of all groups. OptionError when they do not fit together."""
        options = vars(self.policy) | vars(self.encoders) | vars(self.judge)
        return ModelOptions(**with_line_breaks(options))


def with_line_breaks(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options in which the form of documents and the separator have line breaks.

    A shell passes a line break as the two characters `\\n`.
    """
    forms = ("document_form", "document_separator")
    return {
        name: value.replace("\\n", "\n") if name in forms and value is not None else value
        for name, value in options.items()
    }


Recipe = Annotated[RecipeOptions, Parameter(name="*", group=RECIPE)]
Grouping = Annotated[GroupOptions, Parameter(name="*", group=GROUPS)]
Models = Annotated[ModelGroups, Parameter(name="*")]

RECIPE_DEFAULTS = RecipeOptions()
GROUP_DEFAULTS = GroupOptions()
MODEL_DEFAULTS = ModelGroups()
RAY_DEFAULTS = RayOptions()

Input = Annotated[str, Parameter(name="IN", group=FILES)]
Columns = Annotated[
    str | None,
    Parameter(
        group=FILES,
        help="Read fields from columns of other names, as in "
        "`response=completion,documents=contexts`, or choose a preset: ragas, trl, verl, openrlhf, "
        "verifiers or search-r1.",
    ),
]
Output = Annotated[str, Parameter(alias="-o", group=FILES)]
OptionalOutput = Annotated[str | None, Parameter(alias="-o", group=FILES)]
Progress = Annotated[
    bool | None,
    Parameter(
        negative="--no-progress",
        show_default=False,
        help="Show a progress bar. By default, it is shown on a terminal.",
    ),
]
