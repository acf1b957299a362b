"""rag-rewards doctor"""

from __future__ import annotations

import typer

from rag_rewards.cli import option
from rag_rewards.cli.output import console, print_json


def doctor(json: option.Json = False) -> None:
    """Trainers, plugins, extras and GPU: what is here, and what to do about each gap.

    Exit code 1 when something that is installed does not work.
    """
    from rag_rewards.commands.doctor import examine, print_findings

    findings = examine()
    if json:
        print_json(findings)
    else:
        print_findings(console(120), findings)
    raise typer.Exit(any(finding.state == "problem" for finding in findings))
