"""Rubrics: statements with placeholders for names, and how they are connected (CaRR)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

ROOT = "E0"
"""The placeholder of the answer."""
PLACEHOLDER = re.compile(r"<(E\d{1,9})>")


def placeholders(rubric: str) -> tuple[str, ...]:
    """Return the placeholders of a rubric, each once.

    >>> placeholders("<E0> wrote <E2>, and <E0> wrote <E3>.")
    ('E0', 'E2', 'E3')
    """
    return tuple(dict.fromkeys(PLACEHOLDER.findall(rubric)))


def readable(rubric: str) -> str:
    """Return a rubric with its placeholders as words.

    >>> readable("<E0> was born in <E1>.")
    'E0 was born in E1.'
    """
    return PLACEHOLDER.sub(r"\1", rubric)


def filled(rubric: str, names: Mapping[str, str | None]) -> str | None:
    """Return a rubric with names in place of its placeholders, None if a name is missing.

    >>> filled("<E0> wrote <E1>.", {"E0": "Ada", "E1": "Notes"})
    'Ada wrote Notes.'
    >>> filled("<E0> wrote <E1>.", {"E0": "Ada", "E1": None}) is None
    True
    """
    if not all((names.get(each) or "").strip() for each in placeholders(rubric)):
        return None
    return PLACEHOLDER.sub(lambda match: (names.get(match[1]) or "").strip(), rubric)


def connected(rubrics: Sequence[Sequence[str]], supported: Collection[int]) -> set[int]:
    """Return the supported rubrics that are connected with the placeholder E0.

    rubrics    the placeholders of each rubric
    supported  positions of the supported rubrics

    A rubric is connected if it contains E0, or shares a placeholder with a connected rubric. The
    time is linear in the number of placeholders. Source: CaRR.

    >>> connected([["E0", "E1"], ["E1", "E2"], ["E3"]], {0, 1, 2}) == {0, 1}
    True
    >>> connected([["E0", "E1"], ["E1", "E2"], ["E3"]], {1, 2})
    set()
    """
    containing: dict[str, list[int]] = defaultdict(list)
    for i in supported:
        for each in rubrics[i]:
            containing[each].append(i)
    reached: set[int] = set()
    seen, waiting = {ROOT}, [ROOT]
    while waiting:
        for i in containing[waiting.pop()]:
            if i in reached:
                continue
            reached.add(i)
            new = [each for each in rubrics[i] if each not in seen]
            seen.update(new)
            waiting += new
    return reached
