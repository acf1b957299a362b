"""Runs that end before they record a shard."""

from rag_rewards.scoring.store import Journal


class Interruption(BaseException):
    pass


def interrupt(patch, record):
    """Interrupt a run before it adds the record of this number to its journal."""
    count, add = iter(range(1, record + 1)), Journal.add

    def interrupted(journal, part):
        if next(count) == record:
            raise Interruption
        add(journal, part)

    patch.setattr(Journal, "add", interrupted)
