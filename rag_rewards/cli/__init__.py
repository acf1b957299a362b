"""The command line. Each command is a file with its options and its output.

Before a command runs, only the version and the errors of the package are loaded.
"""

from __future__ import annotations

import sys


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit. Ctrl-C ends it with a message also while modules load."""
    try:
        from rag_rewards.cli.entry import main as run
    except KeyboardInterrupt:
        sys.stderr.write("rag-rewards: interrupted\n")
        sys.exit(2)
    run(arguments)


__all__ = ["main"]
