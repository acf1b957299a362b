"""Scores are sums that are equal in all versions of Python.

Since Python 3.12, the built-in `sum` corrects the rounding errors of floats. `math.fsum` returns
the same float in all versions.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from results import ROOT, write_results

ESTIMATES = frozenset(
    str(ROOT / "rag_rewards/rewards/contrastive.py: ") + name
    for name in ("_read", "checked_logprobs")
)
"""Callers that only select by plain sums which values are summed exactly."""


def test_the_built_in_sum_adds_no_fractions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built_in, callers = sum, set()

    def recording(values: Iterable[Any], /, start: Any = 0) -> Any:
        terms = list(values)
        if built_in(isinstance(term, float) and not term.is_integer() for term in terms) > 1:
            code = sys._getframe(1).f_code
            callers.add(f"{code.co_filename}: {code.co_name}")
        return built_in(terms, start)

    monkeypatch.setattr(builtins, "sum", recording)
    write_results(tmp_path)
    own = {caller for caller in callers if caller.startswith(str(ROOT / "rag_rewards"))}
    assert own <= ESTIMATES
