"""Runs that end before they record a part."""

from rag_rewards.scoring.run_folder import RunFolder


class Interruption(BaseException):
    pass


def interrupt(patch, part):
    """Interrupt a run before it records its part of this number."""
    count, add = iter(range(1, part + 1)), RunFolder.add

    def interrupted(folder, record):
        if next(count) == part:
            raise Interruption
        add(folder, record)

    patch.setattr(RunFolder, "add", interrupted)
