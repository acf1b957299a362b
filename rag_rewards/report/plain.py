"""The summary of a scoring without styles.

This module needs no library, which saves start-up time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rag_rewards.errors import plain, shorten
from rag_rewards.rows import Totals, findings_of
from rag_rewards.rows.decisions import NOTHING


def summary(totals: Totals, seconds: float, signature: str) -> Iterator[str]:
    """Yield the lines of a summary: counts, means, warnings and the signature.

    `seconds` is the run time.
    """
    rate = f" · {(totals.rows + totals.errors) / seconds:,.0f} rows/s" if seconds > 0.5 else ""
    yield f"{totals.rows:,} scored, {totals.errors:,} in error{rate}"
    if means := totals.means():
        yield "means: " + " · ".join(f"{name} {value:.4g}" for name, value in means.items())
    if totals.decisions:
        yield f"answers: {decisions_text(totals.decisions)}"
    findings = findings_of(totals, signature)
    yield from (f"warning: {finding}" for finding in findings)
    if totals.truncated and all(each.code != "truncated" for each in findings):
        yield f"{totals.truncated:,} responses truncated at the length limit"
    if totals.error_types:
        kinds = ", ".join(f"{name} {n:,}" for name, n in sorted(totals.error_types.items()))
        yield f"errors: {kinds}"
        for name, message in sorted(totals.error_examples.items()):
            yield plain(f"  {name}: {shorten(message, 240)}")
    yield signature


def decisions_text(decisions: Mapping[str, int]) -> str:
    """Return the counts of `decided_as` as text.

    >>> decisions_text({"undecided": 1, "right": 5, "nothing in common": 2})
    '5 right · 1 undecided · 2 with nothing in common'
    """
    names = {"judge": "decided by the judge", NOTHING: f"with {NOTHING}"}
    order = ("right", "wrong", "undecided", NOTHING, "judge")
    return " · ".join(
        f"{decisions[each]:,} {names.get(each, each)}" for each in order if each in decisions
    )
