"""The command line: a file a command with its options; what it does stands in `commands/`.

Nothing of the package but its version and its errors is loaded before a command runs.
"""

from rag_rewards.cli.entry import main

__all__ = ["main"]
