"""rag-rewards report"""

from __future__ import annotations

from typing import Annotated

import typer

from rag_rewards.cli import option
from rag_rewards.cli.output import tell


def report(
    source: Annotated[str, typer.Argument(metavar="IN", help="Scored rows; - is stdin.")],
    output: Annotated[str, typer.Option("--output", "-o", help="The page, one .html file.")],
    recipe: option.Recipe = None,
    changes: option.Set = None,
    config: option.Config = None,
    hardened: option.Hardened = False,
    title: Annotated[str | None, typer.Option("--title")] = None,
) -> None:
    """Look at scored rows: one page with charts, groups, drift over training, and every rollout.

    Rows without a score are scored first, with --recipe. Exit code 3 when some cannot be shown.
    """
    from rag_rewards.commands.plans import plan_if_asked
    from rag_rewards.commands.report import report as write_report

    plan = plan_if_asked(recipe, changes or (), config, hardened=hardened)
    done = write_report(source, output, plan, title)
    tell(done.told)
    raise typer.Exit(3 if done.faults else 0)
