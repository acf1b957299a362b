"""What the rewards of search agents share: penalties, retrieval of the answer, and details."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from rag_rewards.rollout import Rollout
from rag_rewards.text.gold_forms import GoldForms
from rag_rewards.text.normalize import Normalizer, squad, tokens
from rag_rewards.turn_entries import TurnEntries
from rag_rewards.turns.trajectory import Trajectory
from rag_rewards.turns.turn import PENALIZED

Match = Literal["substring", "words"]
RepeatedAnswer = Literal["last", "none"]


def answer_of(run: Trajectory, repeated: RepeatedAnswer) -> str | None:
    """Return the answer of a rollout, or None. With `none`, several answers are no answer."""
    if repeated == "none" and "repeated_answer" in run.turns[-1].malformed:
        return None
    return run.answer


def penalties(run: Trajectory, penalty: float) -> list[float]:
    """Return the penalty of each turn: 0, or −`penalty` for a turn with a name in `PENALIZED`.

    >>> from rag_rewards.turns.trajectory import read_trajectory
    >>> penalties(read_trajectory("<search>a"), 0.1)
    [-0.1]
    """
    return [
        -penalty if penalty and not PENALIZED.isdisjoint(turn.malformed) else 0.0
        for turn in run.turns
    ]


def entries_of(
    process: Sequence[float | None], penalties: Sequence[float], outcome: float
) -> TurnEntries:
    """Return the turn entries of process rewards, penalties, and an outcome at the last turn.

    >>> entries_of([None, 0.5, None], [-0.1, 0.0, -0.1], 1.0)
    (-0.1, 0.5, 0.9)
    """
    earlier = [
        (reward or 0.0) + penalty if penalty else reward
        for reward, penalty in zip(process[:-1], penalties[:-1], strict=True)
    ]
    return (*earlier, outcome + (process[-1] or 0.0) + penalties[-1])


class Retrieval:
    """Whether the results of a rollout contain the gold answers.

    `substring` looks for a normalized alias anywhere in a normalized result, and `words` only at
    the boundaries of words. A result is its title and its text. The normalized results of a batch
    are computed once. Source: Search-R1, qa_em_format.py (substring).
    """

    def __init__(self, match: Match, forms: GoldForms) -> None:
        self.match = match
        self.forms = forms
        self._normal: dict[str, str] = {}

    def __call__(self, rollout: Rollout, run: Trajectory) -> float:
        """Return 1 if the results of the searches contain every required answer, else 0."""
        required = rollout.gold
        texts = [
            f"{result.title}\n{result.text}" if result.title else result.text
            for turn in run.turns
            if turn.is_search
            for result in turn.results or ()
        ]
        return float(all(self._is_in(texts, aliases) for aliases in required)) if texts else 0.0

    def _is_in(self, texts: Iterable[str], aliases: tuple[str, ...]) -> bool:
        golds = [form for form in self.forms.of(aliases) if form]
        if self.match == "words":
            golds = [f" {' '.join(tokens(gold))} " for gold in golds]
        needles = [_encoded(max(gold.split(), key=len)) for gold in golds]
        for text in texts:
            if _lacks_all(text, needles, self.forms.normalize):
                continue
            normal = self._normal_of(text)
            if any(gold in normal for gold in golds):
                return True
        return False

    def _normal_of(self, text: str) -> str:
        normal = self._normal.get(text)
        if normal is None:
            normal = self.forms.normalize(text)
            if self.match == "words":
                normal = f" {' '.join(tokens(normal))} "
            self._normal[text] = normal
        return normal


_MARKS = string.punctuation.encode()


def _lacks_all(text: str, needles: Sequence[bytes], normalize: Normalizer) -> bool:
    """Return whether no word of `needles`, in UTF-8, can be in the normal form of a text.

    `squad` removes punctuation and whole words, so that a word without white space in its result
    is also in the text without punctuation. This test is much faster than the normalization.
    """
    if normalize is not squad:
        return False
    plain = _encoded(text.lower()).translate(None, _MARKS)
    return not any(needle in plain for needle in needles)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def details_of(
    run: Trajectory, answer: str | None, per_turn: Mapping[str, Sequence[float | None]]
) -> dict[str, Any]:
    """Return the details of a rollout: its turns with their components, and their counts.

    per_turn  the values of a component in each turn, None for a turn without a value
    """
    turns = [
        {
            "queries": list(turn.queries),
            "results": None if turn.results is None else len(turn.results),
            "malformed": list(turn.malformed),
            **{name: values[t] for name, values in per_turn.items() if values[t] is not None},
        }
        for t, turn in enumerate(run.turns)
    ]
    return {
        "answer": answer,
        "dialect": run.dialect.name,
        "trusted": run.trusted,
        "n_turns": len(run.turns),
        "searches": run.searches,
        "malformed_turns": sum(bool(turn.malformed) for turn in run.turns),
        "turns": turns,
    }
