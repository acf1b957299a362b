"""Rollouts of a training as scored rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import takewhile
from typing import Any

import msgspec

from rag_rewards.errors import RolloutError
from rag_rewards.rollout import Rollout, ScoreOrError
from rag_rewards.rows.columns import to_builtins
from rag_rewards.rows.scored import MISSING, error_fields, score_fields
from rag_rewards.turns.turn import Result


@dataclass(frozen=True)
class ScoredBatch:
    """The rollouts of one call of a scorer with their results.

    rollouts   with their evidence; None where a row could not be decoded
    groups     positions of the members of each complete group; None if rollouts are scored one by
               one, so that the members of a group can be in different batches
    names      names of the components
    """

    rollouts: Sequence[Rollout | None]
    results: Sequence[ScoreOrError]
    groups: Sequence[Sequence[int]] | None
    signature: str
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.rollouts)


def dumped_rows(batch: ScoredBatch, run_id: str, process: str, first: int) -> list[list[bytes]]:
    """Return the rows of a batch as lines, in units that belong into one file: groups, or rows.

    run_id   identifier of the run, which can have several processes
    process  identifier of the process
    first    number of the first rollout of the batch in this process

    A rollout has the id KEY/STEP/PROCESS.NUMBER, where KEY is its id in the data set. The rollouts
    of a complete group have a group of their own, named after the first of them. Other rollouts
    have the group KEY/STEP/RUN, since its members can be in the files of several processes.
    """
    units: Sequence[Sequence[int]] = batch.groups or [[i] for i in range(len(batch))]
    numbers = [f"{process}.{first + i}" for i in range(len(batch))]
    return [_unit(batch, unit, run_id, numbers) for unit in units]


def _unit(
    batch: ScoredBatch, positions: Sequence[int], run_id: str, numbers: Sequence[str]
) -> list[bytes]:
    """Return the rows of a group, or of a rollout that is scored by itself."""
    members = [(i, rollout) for i in positions if (rollout := batch.rollouts[i]) is not None]
    if not members:
        return []
    at, leader = members[0]
    if batch.groups is None:
        group = f"{_place(leader, leader.group)}/{run_id}"
    else:
        is_common = all(rollout.id == leader.id for _, rollout in members)
        group = f"{_place(leader, None if is_common else leader.group)}/{numbers[at]}"
    common = {"group": group, "run": run_id}
    return [
        _row(rollout, batch.results[i], {"id": f"{_place(rollout)}/{numbers[i]}"} | common, batch)
        for i, rollout in members
    ]


def with_missing(line: bytes, missing: int) -> bytes:
    """Return a line that states how many rollouts before it are missing."""
    return line[:-2] + b',"%s":%d}\n' % (MISSING.encode(), missing) if missing else line


def _place(rollout: Rollout, key: str | int | None = None) -> str:
    """Return the key of a rollout, its split and its step, as far as they are known.

    The default key is the id in the data set, or else a digest of the prompt, the documents and the
    gold data of the row, because several rows can have one question.
    """
    if key is None:
        key = _key(rollout)
    parts = (key, rollout.split, rollout.step)
    return "/".join(str(part) for part in parts if part is not None)


def _key(rollout: Rollout) -> str | int:
    if rollout.id is not None:
        return rollout.id
    row = (rollout.key, _first_messages(rollout.prompt), _own_documents(rollout))
    gold = (rollout.answers, rollout.supporting, rollout.gold_documents)
    text = repr((*row, *gold))  # which also has a form for half of a surrogate pair
    return blake2b(text.encode(), digest_size=4).hexdigest()


def _first_messages(prompt: Any) -> Any:
    """Return a prompt without the turns of the rollout, which differ within a group."""
    if prompt is None or isinstance(prompt, str):
        return prompt
    return list(takewhile(lambda message: message.get("role") != "assistant", prompt))


def _own_documents(rollout: Rollout) -> Any:
    """Return the documents of the row, None if they were read from the turns."""
    documents = rollout.documents or ()
    if all(isinstance(document, Result) for document in documents):
        return None
    return [(document.title, document.text) for document in documents]


def _row(
    rollout: Rollout, result: ScoreOrError, place: Mapping[str, str], batch: ScoredBatch
) -> bytes:
    fields = {**place, **_own_fields(rollout)}
    if isinstance(result, RolloutError):
        fields |= error_fields(result, batch.names)
    else:
        fields |= score_fields(rollout, result, batch.names)
    fields["signature"] = batch.signature
    return msgspec.json.encode(fields, enc_hook=_plain) + b"\n"


def _own_fields(rollout: Rollout) -> dict[str, Any]:
    """Return the fields of a rollout that have a value.

    Documents that were read from the turns are left out: a reader of the row reads them again.
    """
    values = ((name, getattr(rollout, name)) for name in Rollout.__struct_fields__)
    fields = {
        name: value for name, value in values if value is not None and name not in ("id", "group")
    }
    documents = rollout.documents
    if (documents or rollout.turns is not None) and all(
        isinstance(document, Result) for document in documents or ()
    ):
        fields.pop("documents", None)
    return fields


def _plain(value: Any) -> Any:
    """Return a value that JSON does not have as a list, a number or a text."""
    plain = to_builtins(value)
    return str(value) if plain is value else plain
