"""What is wrong with rows for a training, as far as the totals of their scores show it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from rag_rewards.rows.chunks import Totals
from rag_rewards.rows.decisions import undecided_parts

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


def findings_of(totals: Totals, recipe: str = "") -> list[Finding]:
    """Return the faults that follow from the totals of scored rows. `recipe` is its name.

    They are responses in another form, rows without a reward, equal rewards in all rows or in most
    groups, undecided answers, and responses cut at the length limit.
    """
    findings = [*_form(totals, recipe), *_rewards(totals)]
    if parts := undecided_parts(totals.decisions):
        findings.append(Finding("undecided", "warning", *parts))
    if level := level_of(totals.truncated, totals.rows):
        text = f"{totals.truncated:,} of {totals.rows:,} responses are cut at the length limit"
        fix = "increase the number of tokens of a response in the trainer and in the sampling"
        findings.append(Finding("cut", level, text, fix))
    return findings


def _form(totals: Totals, recipe: str) -> Iterator[Finding]:
    name = recipe or "this recipe"
    for part, count in totals.without_form.items():
        if (level := level_of(count, totals.rows)) is None:
            continue
        text = f"{count:,} of {totals.rows:,} responses have no {part}"
        fix = f"request it in the prompt (`rag-rewards prepare -r {recipe or 'NAME'}` does)"
        other, matches = max(totals.other_forms.items(), key=lambda each: each[1], default=("", 0))
        if level == "problem" and 2 * matches > count:
            text += f"; {matches:,} have the form of {other}"
            fix = f"use -r {other}, or the prompt of {name} (`rag-rewards prepare -r {recipe}`)"
        yield Finding("form", level, text, fix)


def _rewards(totals: Totals) -> Iterator[Finding]:
    scored = totals.rows - totals.not_scored
    if level := level_of(totals.not_scored, totals.rows):
        text = f"{totals.not_scored:,} of {totals.rows:,} rows have no reward, but no error"
        yield Finding(
            "unscored", level, text, "return a number, not None, from the function of the reward"
        )
    is_constant = totals.lowest is not None and totals.lowest == totals.highest
    if is_constant and scored >= LEAST_ROWS:
        yield Finding(
            "constant",
            "problem",
            f"every reward is {totals.lowest:g}, so that a policy learns nothing",
            "correct the other findings first; then sample with a higher temperature, or use other "
            "questions",
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
