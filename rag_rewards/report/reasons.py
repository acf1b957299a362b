"""The reason for a score in one line, from the details that the recipe recorded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rag_rewards.errors import shorten
from rag_rewards.rollout import Rollout, Score

FOREIGN = (AttributeError, KeyError, TypeError, ValueError)
"""Exceptions for details that another program wrote under the names of this package."""
UNREADABLE = "the details of the row have another form than those of this package"


Components = Mapping[str, float | None]


def reason(rollout: Rollout, score: Score, no_spread: str = "") -> str:
    """Return the reason for a score: answer, citations and evidence, then faults of the format.

    `no_spread` is the reason for rewards of 0 in the group, from `no_spread_of`.
    """
    try:
        reasons = _from_details(rollout, score)
    except FOREIGN:
        reasons = [UNREADABLE]
    if score.components.get("format") == 0.0:
        reasons.append("wrong format")
    if rollout.finish_reason == "length":
        reasons.append("cut at the length limit")
    if score.value == 0 and no_spread:
        reasons.append(no_spread)
    return "; ".join(reasons) or "nothing parsed"


def no_spread_of(group: Sequence[Components]) -> str:
    """Return why the min-max scaling gives 0 to all rollouts of a group; "" if it does not.

    >>> no_spread_of([{"clr": 1.3, "clr_normalized": 0.0}] * 2)
    '0: all clr of the group are equal'
    """
    if len(group) < 2 or any(each.get("clr_normalized") != 0 for each in group):
        return ""
    is_equal = len({each.get("clr") for each in group}) == 1
    return f"0: {'all clr of the group are equal' if is_equal else 'clr has no spread'}"


def _from_details(rollout: Rollout, score: Score) -> list[str]:
    details = score.details
    return [
        *(_consistency if "consistent" in score.components else _answer)(details, score),
        *_documents(details, rollout),
        *_statements(details),
        *_likelihood(details),
        *_lengths(details),
        *_turns(details),
    ]


def _answer(details: Any, score: Score) -> Iterator[str]:
    answer = details.get("answer")
    quoted = f"“{shorten(answer, 48)}”" if answer else ""
    if "truth" in details:
        yield f"{details['truth']}: box {quoted}" if answer else "incorrect: no box"
        if answer and details["truth"] != "uncertain":
            yield from _decision(details)
    elif details.get("refused"):
        yield f"refusal (similarity {details.get('refusal_similarity', 1.0):.2f})"
    elif "answer" not in details:
        accuracy = score.components.get("accuracy")
        if accuracy is not None:
            yield "contains the gold answer" if accuracy else "does not contain the gold answer"
    elif not answer:
        yield "no answer"
    elif score.correct is None:
        yield quoted
    elif _has_decision(details) and _agrees(details, score.correct):
        yield f"{quoted} is {next(_decision(details))}"
    else:
        verdicts = {1.0: "right", 0.0: "wrong"}
        yield f"{quoted} is {verdicts.get(score.correct, f'partly right ({score.correct:.2f})')}"
        yield from _decision(details)


def _agrees(details: Any, correct: float) -> bool:
    """Return whether rules decided on the answer as the score states it."""
    is_judged = details.get("decided_by") == "judge"
    return not is_judged and (details["decision"] == "right") == (correct == 1)


def _consistency(details: Any, score: Score) -> Iterator[str]:
    """Yield whether the documents contradict the response, which decides on its reward."""
    answer = details.get("answer")
    quoted = f"“{shorten(answer, 48)}”" if answer else "the response"
    if cause := details.get("not_verified"):
        yield f"{quoted} is not compared with the documents: {cause}"
    elif score.components["consistent"]:
        yield f"no document contradicts {quoted}"
    else:
        yield f"a document contradicts {quoted}"
    yield from _decision(details)


def _has_decision(details: Mapping[str, Any]) -> bool:
    """Return whether the details of a score state a decision on an answer, and its reason."""
    is_decided = details.get("decision") in ("right", "wrong", "undecided")
    return is_decided and isinstance(details.get("decision_reason"), str)


def _decision(details: Any) -> Iterator[str]:
    """Yield the decision on the answer and its reason, if there is one."""
    if not _has_decision(details):
        return
    reason = details["decision_reason"]
    words = _REASONS.get(reason, reason)
    if details["decision"] == "undecided" and words == reason and not _LONG.match(reason):
        words = f"nothing explains “{shorten(reason, 48)}”"
    decision = f"{details['decision']}: {words}"
    is_judged = details.get("decided_by") == "judge"
    yield f"decided by the judge (rules: {decision})" if is_judged else decision


_REASONS = {
    "equal": "equals a gold answer",
    "explained": "every word is explained",
    "empty": "no answer",
    "refusal": "a refusal",
    "abstention": "an abstention",
    "another value": "another value",
    "nothing in common": "nothing in common with a gold answer",
    "text that a reader does not see": "it contains text that a reader does not see",
    "no words": "it has no words",
    "incomplete": "a required answer is missing",
}
"""The reasons of `matching.decide` in plain words. Other reasons are the words of the answer."""
_LONG = re.compile(r"longer than [\d,]+ characters")


def _documents(details: Any, rollout: Rollout) -> Iterator[str]:
    if "relevance" in details:
        labels = details["relevance"]
        if labels is None:
            yield "no list of document ids"
        else:
            supporting = ", ".join(rollout.supporting_labels) or "none"
            yield f"lists {', '.join(labels) or 'none'} (supporting: {supporting})"
    elif "cited" in details:
        yield f"cites {', '.join(details['cited']) or 'no document'}"


def _statements(details: Any) -> Iterator[str]:
    statements = details.get("statements")
    if statements is None or details.get("refused"):
        return
    answering = [each for each in statements if each["answers"]]
    supported = sum(bool(each.get("supported")) for each in answering)
    yield (
        f"{len(answering)} of {len(statements)} statements contain an answer, "
        f"citations support {supported}"
    )


def _likelihood(details: Any) -> Iterator[str]:
    if "critical_document" in details:
        contribution = details["logprob"] - details["logprob_without"]
        document, tokens = details["critical_document"], details["tokens"]
        yield f"{contribution:+.1f} nats from document {document} over {tokens} tokens"


def _lengths(details: Any) -> Iterator[str]:
    lengths = details.get("tokens")
    if isinstance(lengths, dict):
        unit = details.get("unit", "words")
        yield (
            f"{lengths['reason']} {unit} of reasoning, {lengths['extract']} of "
            f"{lengths['documents']} {unit} extracted"
        )


def _turns(details: Any) -> Iterator[str]:
    searches, turns = details.get("searches"), details.get("turns")
    if searches is None:
        return
    yield "1 search" if searches == 1 else f"{searches} searches"
    if isinstance(turns, list):
        names = dict.fromkeys(name for turn in turns for name in turn.get("malformed", ()))
        if names:
            yield f"malformed: {', '.join(names)}"
