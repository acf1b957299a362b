"""Start scripts: the training settings of a recipe as files of a trainer, from a template.

Each value has a comment with its source. Where the paper states no value, the comment says so.
"""

from __future__ import annotations

from rag_rewards.errors import UsageError
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.scripts.render import check_of, render
from rag_rewards.scripts.start import Start
from rag_rewards.settings import did_you_mean
from rag_rewards.trainers import TRAINERS

WITHOUT_SCRIPT = ("tinker",)
"""Trainers whose loop is a program of the user."""
BASELINES = {"sft": "SFT", "dpo": "DPO"}
"""The methods for the baselines of a recipe, whose script is one of TRL."""
SCRIPTS = (*(name for name in TRAINERS if name not in WITHOUT_SCRIPT), *BASELINES)
"""The trainers and methods for which there is a script."""
PUBLISHED = ("verifiers", "openenv", "nemo-gym")
"""The trainers whose scripts are a folder to publish: it contains its rows."""


def rows_folder(name: str, start: Start) -> str:
    """Return the folder of the rows inside the folder of a script, "" for the folder itself."""
    return start.module if name == "verifiers" else ""


def write_files(name: str, start: Start) -> dict[str, str]:
    """Return the files of a trainer or a method by name, with their text.

    Raises UsageError for an unknown name, and for what the trainer or its script cannot do.
    """
    check_name(name)
    if start.components and (name in BASELINES or not TRAINERS[name].has_components):
        able = ", ".join(name for name, trainer in TRAINERS.items() if trainer.has_components)
        raise UsageError(
            f"{name} does not normalize components one by one: remove --components, or train "
            f"with {able}"
        )
    if name not in BASELINES:
        start = start.for_trainer(TRAINERS[name])
        has_tools = TRAINERS[name].search == "tools"
        dialect = "tools" if has_tools else start.tag_dialect
        return render(name, start, {"search_dialect": dialect})
    if start.models != ModelOptions():
        raise UsageError(f"{name} has no reward: omit the options of models")
    settings = getattr(start.training, name)
    values = {
        "method": BASELINES[name],
        "is_dpo": name == "dpo",
        "output_name": f"{start.name}-{name}",
    }
    return render("fine-tuning", start, values | dict(settings.items()))


def check_name(name: str, names: tuple[str, ...] = SCRIPTS) -> None:
    """Raise UsageError for a trainer that is not one of `names`."""
    if name not in names:
        raise UsageError(f"no trainer {name!r}{did_you_mean(name, names)}")


def check_code(name: str) -> str:
    """Return code that examines the files in `folder` with the installed trainer."""
    return check_of("fine-tuning" if name in BASELINES else name)


def package_of(name: str) -> str:
    """Return the package that must be installed for `check_code`."""
    return TRAINERS["trl" if name in BASELINES else name].package
