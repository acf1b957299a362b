"""`rag-rewards init`: write a start script for a trainer."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from os.path import isfile
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from rag_rewards.cli.options import (
    DUMP,
    FILES,
    MODEL_DEFAULTS,
    RECIPE,
    RECIPE_DEFAULTS,
    Columns,
    Models,
    Recipe,
)
from rag_rewards.cli.output import print_messages
from rag_rewards.errors import OptionError, UsageError
from rag_rewards.scoring.rollout_dump import DumpOptions
from rag_rewards.scripts import (
    PUBLISHED,
    SCRIPTS,
    check_code,
    check_name,
    package_of,
    rows_folder,
    write_files,
)
from rag_rewards.scripts.packages import installed_version, run_isolated
from rag_rewards.scripts.start import Start, start_of, weights_of
from rag_rewards.trainers import TRAINERS
from rag_rewards.training.settings import Stated

MODEL = "path/to/model"
"""The model in a script without `--policy`."""

DUMP_DEFAULTS = DumpOptions()
TRAINER = (
    f"Write the script for this trainer: {', '.join(SCRIPTS)}. sft and dpo write a script of TRL "
    "for the baselines: supervised fine-tuning and DPO."
)


COLUMNS = (
    "Prepare the rows of --data, and read their fields from columns of other names, as in "
    "`question=user_input,answers=reference,documents=contexts`."
)
_NAMES = {"data": "train", "validation": "validation"}
"""The names of the files with rows in the folder of a script, without their suffix."""


def init(
    trainer: Annotated[str, Parameter(name="TRAINER", help=TRAINER)],
    /,
    *,
    trained: Annotated[str, Parameter(name="--policy")] = MODEL,
    data: Annotated[str | None, Parameter(group=FILES)] = None,
    validation: Annotated[str | None, Parameter(group=FILES)] = None,
    columns: Annotated[Columns, Parameter(help=COLUMNS)] = None,
    folder: Annotated[Path, Parameter(name=["--output", "-o"], group=FILES)] = Path("training"),
    components: Annotated[str | None, Parameter(group=RECIPE)] = None,
    tiny: Annotated[bool, Parameter(negative="")] = False,
    recipe: Recipe = RECIPE_DEFAULTS,
    models: Models = MODEL_DEFAULTS,
    dump: Annotated[DumpOptions, Parameter(name="*", group=DUMP)] = DUMP_DEFAULTS,
) -> int:
    """Write a start script for a trainer.

    The script contains the published hyperparameters of the recipe, each with its source.
    `--policy` sets the model to train. `--model` and the options below it configure the models that
    provide evidence for the reward.

    Parameters
    ----------
    trained
        Train this model: a folder, or its name on a model hub.
    data
        Train on this file, which `rag-rewards prepare` wrote (sft and dpo: `rag-rewards select`).
        Rows of your own without prompts are prepared in the folder of the script. verifiers,
        openenv and nemo-gym get a copy of the file there. The default is train.parquet for verl and
        train.jsonl for the other trainers.
    validation
        Validate on this file.
    folder
        Write the files to this folder.
    components
        Let the trainer normalize these components one by one and add them up (GDPO), with their
        weights: `outcome,format=0.2`. For trl, verl and ms-swift.
    tiny
        Also write a tiny model and rows for it, and train them with settings of their own: a trial
        of the trainer without a download. For arena, truthrl, ground-grpo, rag-total and rubric.
    """
    changes = None
    if tiny:
        if trained != MODEL or data is not None or columns is not None:
            raise OptionError(
                "{tiny} writes the model and the data: leave out {policy}, {data} and {columns}"
            )
        trained, data, changes = _write_trial(trainer, recipe.spec().recipe, folder)
    rows = data or f"train.{TRAINERS[trainer].suffix if trainer in TRAINERS else 'jsonl'}"
    weights = weights_of(components) if components is not None else None
    options = models.options(recipe.models)
    start = start_of(recipe.spec(), options, trained, rows, validation, dump, weights, changes)
    files = {name: path for name, path in (("data", data), ("validation", validation)) if path}
    start = _with_prompts(trainer, start, files, columns, folder)
    print(*write(trainer, start, folder), sep="\n")
    print_messages(_other_prompts(trainer, start, files.values()))
    if fault := check(trainer, folder):
        print(f"the installed {trainer} does not accept: {fault}", file=sys.stderr)
        return 1
    return 0


def _with_prompts(
    trainer: str,
    start: Start,
    files: Mapping[str, str],
    columns: str | None,
    folder: Path,
) -> Start:
    """Prepare the files of rows without prompts, or of rows with `columns`, for the script.

    Where a recipe needs supporting documents and a row names none, they are the documents that
    contain an answer.
    """
    check_name(trainer, tuple(SCRIPTS))
    if columns is not None and not files:
        raise OptionError("{columns} is for the rows of {data}: set {data}")
    raw = {
        name: path
        for name, path in files.items()
        if columns is not None or _prompt(trainer, path) == ""
    }
    if not raw:
        return start
    if trainer not in TRAINERS or start.spec.stages:
        command = "prepare rows" if trainer in TRAINERS else "select"
        paths = " and ".join(raw.values())
        raise UsageError(f"no prompts in {paths}: write them with `rag-rewards {command}`")
    from rag_rewards.cli.prepare import summary  # takes time to import
    from rag_rewards.datasets.records import Records
    from rag_rewards.preparation.options import PrepareOptions
    from rag_rewards.preparation.prepare import prepare

    _new_files(trainer, start, folder)
    own = start.for_trainer(TRAINERS[trainer])
    facts = own.reward.recipes[-1].facts
    outputs = {name: _row_file(trainer, start, folder, name) for name in raw}
    for name, output in outputs.items():
        with Records(raw[name]):
            pass  # raises UsageError before a folder is made
        if output.exists():
            raise UsageError(f"{output} already exists: choose another folder with -o")
    for name, output in outputs.items():
        output.parent.mkdir(parents=True, exist_ok=True)
        options = PrepareOptions(
            "rows",
            raw[name],
            str(output),
            start.spec.recipe,
            trainer,
            columns=columns,
            hardened=start.spec.hardened,
            prompt=own.dialect if own.searches and own.dialect in facts.prompts else None,
            find_answers="supporting" in facts.fields,
            reports=f"{folder.resolve()}-{output.name}" if trainer in PUBLISHED else None,
        )
        print_messages(summary(options, prepare(options)))
    if "supporting" in facts.fields:
        print_messages(["without `supporting`, the documents with an answer support a row"])
    prepared: dict[str, Any] = {name: str(path.resolve()) for name, path in outputs.items()}
    return replace(start, **prepared)


def _row_file(trainer: str, start: Start, folder: Path, name: str) -> Path:
    """Return the file in the folder of the script with the rows of the option `name`."""
    suffix = TRAINERS[trainer].suffix if trainer in TRAINERS else "jsonl"
    return folder / rows_folder(trainer, start) / f"{_NAMES[name]}.{suffix}"


def _with_rows(trainer: str, start: Start, folder: Path) -> tuple[Start, dict[Path, Path]]:
    """Return the start with paths of rows inside a published folder, and the files to copy there.

    The files to copy are by the path of the copy. Raises UsageError if a copy already exists, and
    for a file that is not JSON lines.
    """
    names: dict[str, Any] = {}
    copies: dict[Path, Path] = {}
    for name in _NAMES if trainer in PUBLISHED else ():
        path = getattr(start, name)
        if path is None or not isfile(path):
            continue
        copy, source = _row_file(trainer, start, folder, name), Path(path).resolve()
        if source.is_relative_to(copy.parent.resolve()):
            names[name] = source.relative_to(copy.parent.resolve()).as_posix()
            continue
        if source.suffix != ".jsonl":
            raise UsageError(f"{path} is not a .jsonl file, which {trainer} reads: convert it")
        if copy.exists():
            raise UsageError(f"{copy} already exists: choose another folder with -o")
        names[name], copies[copy] = copy.name, source
    return replace(start, **names), copies


def _write_trial(
    trainer: str, recipe: str, folder: Path
) -> tuple[str, str, Mapping[str, Stated[Any]]]:
    """Write the tiny model and its rows. Return the model, the data file and the settings."""
    from rag_rewards.tiny_world.trial import SETTINGS, write_trial

    check_name(trainer, tuple(name for name in SCRIPTS if name in TRAINERS))
    model, data = write_trial(trainer, recipe, folder)
    print(model, data, sep="\n")
    return str(model), str(data), SETTINGS


def write(trainer: str, start: Start, folder: Path) -> list[Path]:
    """Write the files of a start, and copy its rows into a published folder. Return their paths.

    Only their owner can read the files if they contain the password of a URL. Raises UsageError for
    an unknown trainer, and if a file already exists.
    """
    start, copies = _with_rows(trainer, start, folder)
    files = _new_files(trainer, start, folder)
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(0o600 if start.has_credentials else 0o666)
        path.write_text(text, "utf-8")
        if path.suffix == ".sh":
            path.chmod(0o700 if start.has_credentials else 0o755)
    for copy, source in copies.items():
        shutil.copyfile(source, copy)
    return [*files, *copies]


def _new_files(trainer: str, start: Start, folder: Path) -> dict[Path, str]:
    files = {folder / name: text for name, text in write_files(trainer, start).items()}
    if existing := [path for path in files if path.exists()]:
        raise UsageError(f"{existing[0]} already exists: choose another folder with -o")
    return files


_PROMPTS = {"ms-swift": "messages", "openrlhf": "input", "nemo-gym": "responses_create_params"}
"""The field with the prompt, by the form of the rows of a trainer, where it is not `prompt`."""


def _prompt(trainer: str, path: str) -> str | None:
    """Return the prompt of the first row of a file, "" if it has none, None without a row.

    A text in a column such as `prompt` is a question: `rag-rewards prepare` writes messages. Rows
    for sft and dpo may have prompts of any type.
    """
    from rag_rewards.datasets.records import Records  # takes time to import

    if not isfile(path):
        return None
    with Records(path) as records:
        _, row = next(iter(records), (0, None))
    if not isinstance(row, Mapping):
        return None
    if trainer not in TRAINERS:
        return str(row.get("prompt") or row.get("messages") or "")
    prompt = row.get(_PROMPTS.get(TRAINERS[trainer].rows, "prompt"))
    if isinstance(prompt, Mapping):
        prompt = prompt.get("input")  # of the Responses API
    is_chat = isinstance(prompt, list) and all(isinstance(each, Mapping) for each in prompt)
    return str(prompt) if prompt and is_chat else ""


def _other_prompts(trainer: str, start: Start, paths: Iterable[str]) -> Iterator[str]:
    """Describe the files whose prompts do not request the answer as the hardened profile reads it.

    Only the first prompt of a file is read.
    """
    form = start.reward.recipes[-1].output_form
    part = form.answer_part("the hardened profile")
    for path in paths if start.spec.hardened else ():
        if (prompt := _prompt(trainer, path)) and form.answer_mark not in prompt:
            yield (
                f"the prompts of {path} do not request the {part}: write them with "
                "`rag-rewards prepare --hardened`"
            )


def check(trainer: str, folder: Path) -> str:
    """Return the settings that the installed trainer does not accept, or its error.

    The text is empty if the trainer accepts all of them, and if it is not installed.
    """
    code = check_code(trainer)
    if not code or installed_version(package_of(trainer)) is None:
        return ""
    result, error = run_isolated(f"folder = {str(folder.resolve())!r}\n{code}")
    if result is None:
        return error
    return ", ".join(result["unknown"])
