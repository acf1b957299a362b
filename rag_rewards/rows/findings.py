"""What is wrong with rows for a training, as far as the totals of their scores show it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from rag_rewards.rows.chunks import Totals
from rag_rewards.rows.decisions import undecided_parts
from rag_rewards.signature import CODE_KEY, Signature, StageSignature

Level = Literal["problem", "warning"]

MOST = 0.5
"""The share of rows, or of groups, above which a fault is a problem, or a warning for groups."""
MANY = 0.2
"""The share of rows above which a fault is a warning."""
LEAST_ROWS = 5
"""The number of rows, or of groups, from which a share below `MOST` counts."""


class Finding(msgspec.Struct, frozen=True):
    """A fault of rows for a training.

    code     short name of the fault, such as `form`
    level    `problem` if a training with these rows fails or learns nothing, else `warning`
    message  what is wrong, with its number of rows
    fix      the command, field, setting or prompt to change
    """

    code: str
    level: Level
    message: str
    fix: str

    def __str__(self) -> str:
        return f"{self.message}: {self.fix}"


def level_of(count: int, total: int) -> Level | None:
    """Return the level of a fault of `count` of `total` rows; None if it concerns few of them.

    >>> level_of(6, 10), level_of(5, 10), level_of(1, 3)
    ('problem', 'warning', None)
    """
    if count > MOST * total:
        return "problem"
    return "warning" if count > MANY * total and count >= LEAST_ROWS else None


def findings_of(totals: Totals, signature: str = "") -> list[Finding]:
    """Return the faults that follow from the totals of rows which the recipe of a signature scored.

    They are responses in another form, rows without a reward, equal rewards in all rows or in most
    groups, undecided answers, and responses that are truncated at the length limit.
    """
    stage = Signature.parse(signature).parts[-1] if signature else StageSignature("")
    form = list(_form(totals, stage))
    findings = [*form, *_rewards(totals, stage, has_form=not form)]
    if parts := undecided_parts(totals.decisions):
        findings.append(Finding("undecided", "warning", *parts))
    if level := level_of(totals.truncated, totals.rows):
        text = (
            f"{totals.truncated:,} of {totals.rows:,} responses are truncated at the length limit"
        )
        fix = "increase the number of tokens of a response in the trainer and in the sampling"
        findings.append(Finding("truncated", level, text, fix))
    return findings


def prepare_command(stage: StageSignature, arguments: str = "") -> str:
    """Return the command that writes the prompts of a recipe; "" for a recipe of a user.

    >>> prepare_command(StageSignature("arena", hardened=True))
    '`rag-rewards prepare -r arena --hardened`'
    """
    if not stage.recipe or CODE_KEY in stage.settings:
        return ""
    return f"`rag-rewards prepare {arguments}-r {stage.recipe}{' --hardened' * stage.hardened}`"


def _form(totals: Totals, stage: StageSignature) -> Iterator[Finding]:
    count, rows, command = sum(totals.without_form.values()), totals.rows, prepare_command(stage)
    if (level := level_of(count, rows)) is None:
        return
    if len(totals.without_form) == 1:
        text = f"{count:,} of {rows:,} responses have no {next(iter(totals.without_form))}"
    else:
        parts = (f"{number:,} have no {part}" for part, number in totals.without_form.items())
        text = f"{count:,} of {rows:,} responses lack a part of the form: {'; '.join(parts)}"
    fix = "request it in the prompt" + (f" ({command} does)" if command else "")
    other, matches = max(totals.other_forms.items(), key=lambda each: each[1], default=("", 0))
    if level == "problem" and 2 * matches > count:
        text += f"; {matches:,} have the form of {other}"
        fix = f"use -r {other}, or " + (
            f"the prompt of {stage.recipe} ({command})" if command else fix
        )
    yield Finding("form", level, text, fix)


def _rewards(totals: Totals, stage: StageSignature, *, has_form: bool) -> Iterator[Finding]:
    scored = totals.rows - totals.not_scored
    if level := level_of(totals.not_scored, totals.rows):
        text = f"{totals.not_scored:,} of {totals.rows:,} rows have no reward, but no error"
        fix = "see `rag-rewards explain IN --id ID` for one of them"
        if CODE_KEY in stage.settings:
            fix = "return a number, not None, from the function of the reward"
        yield Finding("unscored", level, text, fix)
    is_constant = totals.lowest is not None and totals.lowest == totals.highest
    if is_constant and totals.groups and scored >= LEAST_ROWS:
        yield Finding(
            "constant",
            "problem",
            f"every reward is {totals.lowest:g}, so that a policy learns nothing",
            ("" if has_form else "correct the form of the responses first; then ")
            + "sample with a higher temperature, or use other questions",
        )
    elif totals.flat and totals.flat >= MOST * totals.groups and totals.groups >= LEAST_ROWS:
        yield Finding(
            "no-signal",
            "problem" if totals.flat == totals.groups else "warning",
            f"the rewards of {totals.flat:,} of {totals.groups:,} groups are all equal, so that "
            "GRPO learns nothing from them",
            "keep the other questions (`rag-rewards select SCORED -o OUT --min-spread 0`), or "
            "sample more responses, with a higher temperature",
        )
