"""The application: all commands with summaries and examples. A command is imported when it runs."""

from __future__ import annotations

from contextlib import suppress
from itertools import chain
from os.path import isfile
from pathlib import Path
from typing import Literal, NamedTuple, get_origin

from cyclopts import (
    App,
    ArgumentCollection,
    CoercionError,
    Group,
    Parameter,
    UnknownOptionError,
)
from cyclopts.utils import is_option_like

from rag_rewards import __version__
from rag_rewards.errors import UsageError


class Command(NamedTuple):
    """A command as the help shows it.

    `options` are the options of its short help, "" for all of them. --help-all shows the others.
    """

    summary: str
    example: str = ""
    usage: str | None = None
    options: str = ""


_RECIPE = "--recipe --set --config --hardened"
_MODELS = "--model --backend --nli --judge --judge-model"
COMMANDS = {
    "score": Command(
        "Score rollouts with a recipe.",
        "score examples/arena.jsonl -o scored.jsonl --recipe arena",
        options=f"--output --columns {_RECIPE} --keep-evidence --workers --resume --estimate "
        f"{_MODELS}",
    ),
    "preflight": Command(
        "Check sampled rollouts before a training.",
        "preflight examples/arena.jsonl --recipe arena",
        options=f"--columns --json --limit --group-size {_RECIPE} {_MODELS}",
    ),
    "recipes": Command(
        "List the recipes, or describe one of them.", "recipes arena", "recipes [OPTIONS] [NAME]"
    ),
    "replay": Command(
        "Score rows again with other settings and compare the rewards.",
        "replay examples/ctrl-rag.jsonl -r ctrl-rag --set threshold=null",
    ),
    "audit": Command(
        "Test a recipe or a reward against known attacks.",
        "audit --recipe arena --hardened",
        "audit [OPTIONS] [IN]",
        f"--attack --train --json {_RECIPE} {_MODELS}",
    ),
    "evaluate": Command(
        "Compute metrics of rows, with confidence intervals.",
        "evaluate examples/arena.jsonl --metrics em,f1,relevance",
        "evaluate --metrics STR... [OPTIONS] IN...",
        f"--metrics --by --config --questions --output --columns {_MODELS}",
    ),
    "calibrate": Command(
        "Compare scores with human labels, and choose thresholds.",
        "calibrate examples/calibration.jsonl --label human --metrics f1,lenient",
        "calibrate --label STR [OPTIONS] IN...",
        "--label --column --metrics --by --output --max-false-positive-rate --threshold-file "
        "--recipe --set --config --model --nli --judge --judge-model",
    ),
    "explain": Command(
        "Explain the score of one row.",
        "explain examples/ctrl-rag.jsonl --id kinshasa-right -r ctrl-rag",
        options=f"--id --output --json --columns {_RECIPE} {_MODELS}",
    ),
    "report": Command(
        "Write an HTML page about scored rows, which also compares files.",
        "report scored.jsonl -o report.html",
    ),
    "serve": Command(
        "Serve a recipe over HTTP.",
        "serve --recipe arena --port 8000",
        options=f"--host --port --token-file {_RECIPE} {_MODELS} --similarity --dump --engine",
    ),
    "init": Command(
        "Write a start script for a trainer.",
        "init verl --recipe arena --policy path/to/model",
        options=f"--policy --data --columns --validation --output --tiny {_RECIPE} {_MODELS}",
    ),
    "doctor": Command("Check the installed trainers, plugins and extras."),
    "prepare": Command(
        "Convert a public data set to a trainer's data file.",
        "prepare hotpotqa hotpot_train_v1.1.json -o train.parquet "
        "-r arena --trainer verl --preset arena-train",
        options="--output --trainer --split --recipe --hardened --prompt --prompt-template "
        "--preset --sample --seed --top --order --noise",
    ),
    "probe": Command(
        "Label questions that the policy cannot answer.",
        "probe questions.jsonl -o labelled.jsonl -r truthrl "
        "--set verifier=exact --model path/to/model",
        options=f"--output --keep-rollouts --samples --temperature --max-tokens {_RECIPE} "
        f"{_MODELS}",
    ),
    "select": Command(
        "Select questions for training.",
        "select scored.jsonl -o train.jsonl --pass 0.1:0.875=0.9 --pass 1:1=0.1 --sample 10000",
        options="--output --pass --min-std --unique --exclude --sample --seed --make --style "
        "--recipe --set --hardened --model --judge --judge-model",
    ),
}
"""The commands in the order of the help. Command NAME is the function NAME of module NAME."""
HELP_ALL = "--help-all"


def _shown_default(value: object) -> object:
    """Return the default that the help shows, or None for options that are off by default."""
    return None if value is None or value is False or value == () else value


def make_app() -> App:
    """Return the application with all commands."""
    app = App(
        name="rag-rewards",
        help="Reward functions for reinforcement learning of retrieval-augmented generators.",
        version=f"rag-rewards {__version__}",
        help_flags=["--help", "-h", HELP_ALL],
        version_flags=["--version"],
        default_parameter=Parameter(
            negative=(),
            show_default=_shown_default,
            allow_leading_hyphen=True,
            allow_repeating=True,
        ),
        group_parameters=Group("Options", sort_key=2),
        result_action="return_value",
        suppress_keyboard_interrupt=False,
        help_format="plaintext",
    )
    app["--help"].help = f"Show this message and exit. {HELP_ALL} shows all options of a command."
    app["--version"].help = "Show the version and exit."
    for position, (name, command) in enumerate(COMMANDS.items()):
        app.command(
            f"rag_rewards.cli.{name}:{name}",
            name=name,
            sort_key=position,
            help=command.summary,
            usage=command.usage and f"Usage: rag-rewards {command.usage}",
            help_epilogue=command.example and f"Example: rag-rewards {command.example}",
        )
    return app


def refuse_unknown_options(
    app: App, commands: tuple[str, ...], arguments: ArgumentCollection
) -> None:
    """Raise an error for an unknown option that was read as the name of an input file.

    File arguments accept a leading hyphen, because `-` is standard input. cyclopts calls this
    function with the arguments of a command before it converts them.
    """
    for argument in arguments:
        for token in argument.tokens:
            if token.keyword is None and token.value != "-" and is_option_like(token.value):
                raise UnknownOptionError(token=token, argument_collection=arguments)


def refuse_decimal_numbers(
    app: App, commands: tuple[str, ...], arguments: ArgumentCollection
) -> None:
    """Raise CoercionError for `1.6` as the value of a whole number, which cyclopts would round."""
    for argument in arguments:
        if argument.hint in (int, int | None):
            for token in argument.tokens:
                if "." in token.value:
                    raise CoercionError(token=token, argument=argument, target_type=int)


OUTPUTS = (
    *("--output", "--svg", "--threshold-file", "--keep-rollouts"),
    *("--judge-cache", "--dump"),
)
"""The options that name a file to write."""
SOURCES = ("IN", "--questions", "--exclude", "--noise-from")
"""The arguments that name files to read, folders, patterns or URLs."""
NAMES = (
    *("--recipe", "--columns", "--metrics", "--by", "--label", "--title", "--id"),
    *("--backend", "--device", "--judge-model"),
)
"""The options whose values are names of other things than files, or any text."""
MODEL_FILES = (
    *("model", "adapter", "tokenizer", "nli", "nli_tokenizer", "similarity"),
    "prompt_template",
)
"""The settings of models that name a file or folder to read."""


def refuse_overwritten_inputs(
    app: App, commands: tuple[str, ...], arguments: ArgumentCollection
) -> None:
    """Raise OptionError when a command would overwrite a file that it reads.

    Every argument that names an existing file counts as an input, unless it is one of `OUTPUTS` or
    `NAMES`, or has a closed set of values.
    """
    values = {
        argument.name: [token.value for token in argument.tokens if token.value]
        for argument in arguments
    }
    recipes, models = _recipes_and_models(values.get("--config", []), values.get("--set", []))
    outputs: dict[str, str | None] = {"standard_output": "-"}
    outputs["judge_cache"] = models.get("judge_cache")
    inputs = [path for key in MODEL_FILES if (path := models.get(key)) and isfile(path)]
    for argument in arguments:
        texts = values[argument.name]
        if argument.name in OUTPUTS and texts:
            outputs[argument.name.removeprefix("--").replace("-", "_")] = texts[-1]
        elif argument.name in SOURCES:
            inputs += texts
        else:
            if argument.name == "--set":
                pairs = (text.partition("=") for text in texts)
                texts = [value for key, _, value in pairs if not key.strip().startswith("models.")]
            elif argument.name == "--config":
                texts = [*texts, *recipes]
            files = chain.from_iterable(map(_files_of_object, texts))
            is_name = argument.name in NAMES or get_origin(argument.hint) is Literal
            inputs += filter(isfile, files if is_name else chain(texts, files))
    if commands[:1] == ("init",):  # it writes new files to a folder, which can contain its inputs
        outputs = {}
    if inputs and outputs:
        from rag_rewards.files.output_check import refuse_overwriting  # takes time to import

        refuse_overwriting(outputs, inputs)


def _recipes_and_models(
    configs: list[str], pairs: list[str]
) -> tuple[list[str], dict[str, str | None]]:
    """Return the recipes that a configuration names, and the settings of models of a command.

    An invalid file has its error later. It must be regular, because a pipe can be read only once.
    """
    config = next((Path(each) for each in reversed(configs) if isfile(each)), None)
    if config is None and not pairs:
        return [], {}
    from rag_rewards.cli.recipe_options import RecipeOptions  # takes time to import

    options = RecipeOptions(config=config, set=pairs)
    with suppress(UsageError):
        recipes = options.spec(required=False).recipes
        return list(map(str, recipes)), options.models
    return [], {}


def _files_of_object(reference: str) -> tuple[str, str]:
    """Return the possible files of an object as `path/file.py:name` or `module:name`."""
    place = reference.rpartition(":")[0]
    return place, f"{place.replace('.', '/')}.py"
