"""Which text of a response is its answer."""

from __future__ import annotations

from typing import Literal

from rag_rewards.rollout import GoldForms, Rollout
from rag_rewards.text.boxed import last_box, unwrap
from rag_rewards.text.normalize import Normalizer, NormalizerName, normalizer
from rag_rewards.text.sections import Tags

Reads = Literal["auto", "answer", "box", "response"]
"""The answer section; the last box; the response without its thinking; or the first of these
that is there, so that runs with different formats can be compared."""

ANSWER = Tags(("answer",))


def read_answer(rollout: Rollout, reads: Reads = "auto") -> str | None:
    r"""The answer of a response, None when it has none. A box's \text{…} is taken off.

    >>> read_answer(Rollout(response=r"<think>?</think> So \boxed{Rome}.")), read_answer(
    ...     Rollout(response="It is Rome."), "box")
    ('Rome', None)
    """
    response = rollout.parsed
    if reads in ("auto", "answer"):
        section = response.cut(ANSWER).content.get("answer")
        if section is not None or reads == "answer":
            return section
    if reads in ("auto", "box"):
        box = last_box(response.visible)
        if box is not None or reads == "box":
            return unwrap(box) if box else box
    return response.visible


class Common:
    """The work that the metrics of a few rows share: answers are read and normalized once."""

    def __init__(self) -> None:
        self._forms: dict[NormalizerName, GoldForms] = {}
        self._answers: dict[tuple[int, Reads], tuple[Rollout, str | None]] = {}

    def answer(self, row: Rollout, reads: Reads) -> str | None:
        """Return the answer of a row, read once for all metrics."""
        key = (id(row), reads)
        if key not in self._answers:
            self._answers[key] = (row, read_answer(row, reads))  # the row keeps its id taken
        return self._answers[key][1]

    def forms(self, name: NormalizerName) -> GoldForms:
        """Gold answers in that normaliser's form; its `normalize` remembers every text."""
        found = self._forms.get(name)
        if found is None:
            found = self._forms[name] = GoldForms(_remembering(normalizer(name)))
        return found


def _remembering(normalize: Normalizer) -> Normalizer:
    known: dict[str, str] = {}

    def remembered(text: str) -> str:
        normal = known.get(text)
        if normal is None:
            normal = known[text] = normalize(text)
        return normal

    return remembered
