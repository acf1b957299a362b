"""Settings and input files that determine an output."""

from __future__ import annotations

import msgspec

from rag_rewards.errors import OptionError, cannot_resume
from rag_rewards.scoring.files import InputFile
from rag_rewards.scoring.score_options import ScoreOptions

OPTIONS = frozenset({"columns", "group_size", "sort", "keep_evidence", "on_error"})
"""The settings of a run that are options of the command."""
_DESCRIPTIONS = {"reading": "the way of reading the input"}
"""Other settings whose names are not in the words of a user."""


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings and input files that determine the bytes of an output.

    A run can only continue an earlier run with equal settings and files.

    options      options of the command by name, and the signature
    files        input files; empty for a stream
    """

    options: dict[str, str]
    files: list[InputFile]

    def check(self, earlier: RunSettings, name: str) -> None:
        """Raise UsageError if an earlier run had other options or another input."""
        self.check_options(earlier, name)
        self.check_files(earlier, name)

    def check_options(self, earlier: RunSettings, name: str) -> None:
        """Raise UsageError if an earlier run had other options."""
        for option in dict.fromkeys([*earlier.options, *self.options]):
            before, now = earlier.options.get(option, "-"), self.options.get(option, "-")
            if before != now:
                label = f"{{{option}}}" if option in OPTIONS else _DESCRIPTIONS.get(option, option)
                raise OptionError(
                    f"cannot resume {{name}}: {label} was {{before!r}} and is {{now!r}}: use the "
                    "settings of the earlier run, or start again without {resume}",
                    name=name,
                    before=before,
                    now=now,
                )

    def check_files(self, earlier: RunSettings, name: str) -> None:
        """Raise UsageError if an earlier run had another input."""
        if len(self.files) != len(earlier.files):
            raise cannot_resume(
                name,
                f"the input had {len(earlier.files)} files and has {len(self.files)}",
            )
        for before_file, file in zip(earlier.files, self.files, strict=True):
            if before_file != file:
                difference = _difference(before_file, file)
                raise cannot_resume(name, f"the input {file.path} has changed ({difference})")


def settings_of(signature: str, code: str, options: ScoreOptions, reading: str) -> dict[str, str]:
    """Return the settings that determine the output, by the names of the options.

    `code` identifies the code of recipes of the user. `reading` is how the run reads its input and
    divides its output.
    """
    return {
        "signature": signature,
        **({"code of the recipe": code} if code else {}),
        "source": options.source,
        "columns": str(options.columns),
        "group_size": str(options.group_size),
        "sort": str(options.sort),
        "keep_evidence": str(options.keep_evidence),
        "on_error": options.on_error,
        "reading": reading,
    }


def _difference(before: InputFile, now: InputFile) -> str:
    if before.path != now.path:
        return f"it was {before.path}"
    if before.size != now.size:
        return f"it had {before.size:,} bytes and has {now.size:,}"
    return "it was written after the run began"
