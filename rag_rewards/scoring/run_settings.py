"""Settings and input files that determine an output."""

from __future__ import annotations

import msgspec

from rag_rewards.errors import OptionError, cannot_resume
from rag_rewards.files.version import sha256
from rag_rewards.loading import RecipeSpec
from rag_rewards.scoring.input_files import InputFile
from rag_rewards.scoring.options import ScoreOptions

OPTIONS = frozenset({"columns", "group_size", "sort", "keep_evidence", "on_error"})
"""The settings of a run that are options of the command."""


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings and input files that determine the bytes of an output.

    A run can only continue an earlier run with equal settings and files.

    options      options of the command by name, and the signature
    files        input files; empty for standard input
    """

    options: dict[str, str]
    files: list[InputFile]

    def check(self, earlier: RunSettings, name: str) -> None:
        """Raise UsageError if an earlier run had other options or another input.

        `name` is the output, for messages.
        """
        for option in dict.fromkeys([*earlier.options, *self.options]):
            before, now = earlier.options.get(option, "-"), self.options.get(option, "-")
            if before != now:
                label = f"{{{option}}}" if option in OPTIONS else option
                raise OptionError(
                    f"cannot resume {{name}}: {label} was {{before!r}} and is {{now!r}}: use the "
                    "settings of the earlier run, or start again without {resume}",
                    name=name,
                    before=before,
                    now=now,
                )
        if len(self.files) != len(earlier.files):
            raise cannot_resume(
                name,
                f"the input had {len(earlier.files)} files and has {len(self.files)}",
            )
        for before_file, file in zip(earlier.files, self.files, strict=True):
            if before_file != file:
                difference = _difference(before_file, file)
                raise cannot_resume(name, f"the input {file.path} has changed ({difference})")


def settings_of(
    signature: str, spec: RecipeSpec | None, options: ScoreOptions, files: list[InputFile]
) -> RunSettings:
    """Return the settings that determine an output. `spec` is the recipe as plain data."""
    code = _recipe_code(spec)
    values = {
        "signature": signature,
        **({"code of the recipe": code} if code else {}),
        "source": options.source,
        "columns": str(options.columns),
        "group_size": str(options.group_size),
        "sort": str(options.sort),
        "keep_evidence": str(options.keep_evidence),
        "on_error": options.on_error,
    }
    return RunSettings(options=values, files=files)


def _recipe_code(spec: RecipeSpec | None) -> str:
    """Return the digests of the files of a user's recipes, in the order of the stages.

    The result is empty for recipes by name and for objects. Files that such a file imports are not
    included.
    """
    references = [] if spec is None else [each for each in spec.recipes if ":" in each]
    if not references:
        return ""
    from rag_rewards.loading import import_module_of  # only for your own recipes

    files = [module.__file__ for module in map(import_module_of, references)]
    return " ".join(sha256(file)[:16] for file in files if file is not None)


def _difference(before: InputFile, now: InputFile) -> str:
    if before.path != now.path:
        return f"it was {before.path}"
    if before.size != now.size:
        return f"it had {before.size:,} bytes and has {now.size:,}"
    return "it was written after the run began"
