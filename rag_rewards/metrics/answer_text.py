"""The text of a response that is its answer."""

from __future__ import annotations

from typing import Literal

from rag_rewards.rollout import Rollout
from rag_rewards.text.boxed import last_box
from rag_rewards.text.gold_forms import GoldForms
from rag_rewards.text.latex import plain_latex
from rag_rewards.text.normalize import Normalizer, NormalizerName, normalizer
from rag_rewards.text.sections import Tags

Reads = Literal["auto", "answer", "box", "response"]
"""The answer section, the last box, or the response without its thinking section.

`auto` is the first of these that exists, so that runs with different formats can be compared.
"""

ANSWER = Tags(("answer",))


def read_answer(rollout: Rollout, reads: Reads = "auto") -> str | None:
    r"""Return the answer of a response, or None if it has none. LaTeX in a box becomes plain text.

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
            return plain_latex(box) if box else box
    return response.visible


class AnswerCache:
    """The answers and normalized texts of a few rows, which several metrics share."""

    def __init__(self) -> None:
        self._forms: dict[NormalizerName, GoldForms] = {}
        self._answers: dict[tuple[int, Reads], tuple[Rollout, str | None]] = {}

    def answer(self, row: Rollout, reads: Reads) -> str | None:
        """Return the answer of a row."""
        key = (id(row), reads)
        if key not in self._answers:
            # The reference keeps the row alive, so that no other row has its id.
            self._answers[key] = (row, read_answer(row, reads))
        return self._answers[key][1]

    def forms(self, name: NormalizerName) -> GoldForms:
        """Return the normalized gold answers. Their `normalize` caches its results."""
        forms = self._forms.get(name)
        if forms is None:
            forms = self._forms[name] = GoldForms(_cached(normalizer(name)))
        return forms


def _cached(normalize: Normalizer) -> Normalizer:
    cache: dict[str, str] = {}

    def cached(text: str) -> str:
        normal = cache.get(text)
        if normal is None:
            normal = cache[text] = normalize(text)
        return normal

    return cached
