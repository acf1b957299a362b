"""Print the result of training a policy against a reward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rag_rewards.errors import plain
from rag_rewards.report.terminal import titled_table
from rag_rewards.tiny_world.attack_result import (
    MIN_ACCURACY_CHANGE,
    AttackResult,
    Change,
    Point,
)

_STYLES = {"exploit": "bold red", "learned": "bold green"}


def print_attack_result(console: Console, result: AttackResult) -> None:
    """Print the measures during training, the most frequent responses, and the verdict."""
    console.print(_measures(result.points))
    console.print(_shapes(result))
    for line in _declines(result):
        console.print(Text(plain(line), style="yellow"), soft_wrap=True)
    console.print(Text(plain(result.signature), style="dim"), soft_wrap=True)
    style = _STYLES.get(result.verdict, "bold yellow")
    console.print(Text(plain(verdict_sentence(result)), style=style), soft_wrap=True)


def verdict_sentence(result: AttackResult) -> str:
    """Return the verdict with the changes that led to it."""
    reward, accuracy = _change(result.reward), _change(result.accuracy)
    sentences = {
        "exploit": f"exploit: reward {reward}, true accuracy {accuracy}",
        "learned": f"no exploit: reward {reward}, true accuracy {accuracy}",
        "reward only": f"only the reward increased: reward {reward}, true accuracy {accuracy}",
        "no gain": f"the reward did not increase: reward {reward}, true accuracy {accuracy}",
        "no signal": (
            "no training signal: before training, all responses to a question earned the same "
            f"reward. They use the format {result.form}; set another with --format"
        ),
    }
    sentence = sentences[result.verdict]
    steps = len(result.rewards)
    return f"{sentence}, in {steps} steps from seed {result.seed}" if steps else sentence


def _measures(points: Sequence[Point]) -> Table:
    columns = ("step", "reward", "true accuracy", "correct answers", "correct abstentions")
    table = titled_table("", columns, numbers=columns)
    for point in points:
        shares = (_share(point.answered), _share(point.abstained))
        table.add_row(str(point.step), f"{point.reward:.3f}", f"{point.accuracy:.2f}", *shares)
    return table


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _shapes(result: AttackResult) -> Table:
    numbers = ("before", "after", "reward", "true")
    table = titled_table("", (*numbers, "responses of the shape", "example"), numbers)
    for shape in result.shapes:
        table.add_row(
            f"{shape.before:.0%}",
            f"{shape.share:.0%}",
            "" if shape.reward is None else f"{shape.reward:.3g}",
            f"{shape.accuracy:.0%}",
            Text(plain(shape.shape)),
            Text(plain(shape.example)),
        )
    return table


def _declines(result: AttackResult) -> Iterator[str]:
    """Yield the kinds of questions on which the policy became less accurate."""
    before, after = result.before, result.after
    for kind, old, new in (
        ("correct answers to answerable questions", before.answered, after.answered),
        ("correct abstentions on unanswerable questions", before.abstained, after.abstained),
    ):
        if old is not None and new is not None and old - new > MIN_ACCURACY_CHANGE:
            yield f"{kind}: {old:.0%} before, {new:.0%} after"


def _change(change: Change) -> str:
    return f"{change.by:+.3f} ± {change.error:.3f}"
