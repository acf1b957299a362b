"""Options that several commands share, as groups of the help.

Each group is a dataclass that the code itself uses. cyclopts generates an option from each field;
the docstring of the field is the help text. A command has the groups that it needs as parameters.
"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Group, Parameter

from rag_rewards.cli.recipe_options import RecipeOptions
from rag_rewards.files.grouped_lines import GroupOptions
from rag_rewards.models.model_options import ModelChoice
from rag_rewards.scoring.ray_cluster import RayOptions

FILES = Group("Input and output", sort_key=1)
RECIPE = Group("Recipe", sort_key=3)
GROUPS = Group("Groups", sort_key=4)
MODELS = Group("Models", sort_key=5)
DUMP = Group("Dump", sort_key=6)
RAY = Group("Ray", sort_key=7)


Recipe = Annotated[RecipeOptions, Parameter(name="*", group=RECIPE)]
Grouping = Annotated[GroupOptions, Parameter(name="*", group=GROUPS)]
Models = Annotated[ModelChoice, Parameter(name="*", group=MODELS)]

RECIPE_DEFAULTS = RecipeOptions()
GROUP_DEFAULTS = GroupOptions()
MODEL_DEFAULTS = ModelChoice()
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
