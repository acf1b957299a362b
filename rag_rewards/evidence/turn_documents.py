"""The context of the last turn of a search agent, with and without single retrieved documents."""

from __future__ import annotations

from collections.abc import Sequence

from rag_rewards.errors import DataError
from rag_rewards.evidence.contexts import Contexts
from rag_rewards.evidence.protocols import TokenIds
from rag_rewards.evidence.turn_contexts import token_contexts
from rag_rewards.rollout import Rollout


def leave_one_out_of_turns(
    contexts: Contexts, rollout: Rollout, labels: Sequence[str], response: int = 0
) -> tuple[TokenIds, dict[str, TokenIds]]:
    """Return the context before the last turn, and the same without each of these documents.

    A document is removed from each reply of the environment that contains it. The words of the
    policy and the numbers of the other documents do not change. `response` is the number of tokens
    of the longest last turn of the group. Raises DataError for an unknown label, for a document
    that no reply contains, and for a context that is too long.
    """
    turns = token_contexts(contexts, rollout, rollout.trajectory())
    full, most = turns.before[-1], contexts.max_length
    if most is not None and len(full) + response > most:
        raise DataError(
            f"the context of the last turn has {len(full):,} tokens and the turn {response:,}, "
            f"more than the model's maximum of {most:,}",
            f"turns[{len(turns.before) - 1}]",
        )
    by_label = dict(zip(rollout.labels, rollout.documents or (), strict=True))
    without: dict[str, TokenIds] = {}
    for label in labels:
        if label not in by_label:
            raise DataError(
                f"document {label} cannot be left out: the row has no such document", "documents"
            )
        without[label] = turns.without(by_label[label], label)
    return full, without
