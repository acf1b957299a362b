"""The command line. Each command is a file with its options and its output.

Before a command runs, only the version and the errors of the package are loaded.
"""

from rag_rewards.cli.entry import main

__all__ = ["main"]
