"""The reasons for a score and for the value of each component, from the recorded details."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rag_rewards.errors import RolloutError, shorten
from rag_rewards.recipes import RECIPES
from rag_rewards.report.rows import Configuration
from rag_rewards.rollout import Rollout, Score
from rag_rewards.rows import ScoredRow

_FOREIGN = (AttributeError, KeyError, TypeError, ValueError)
"""Exceptions for details that another program wrote under the names of this package."""
_UNREADABLE = "the details of the row have another form than those of this package"

Components = Mapping[str, float | None]
Reason = tuple[str, str]
"""The reason for the value of a component, and how to increase it. Both may be empty."""


def reason(rollout: Rollout, score: Score, no_spread: str = "") -> str:
    """Return the reason for a score: answer, citations and evidence, then faults of the format.

    `no_spread` is the reason for rewards of 0 in the group, from `no_spread_of`.
    """
    try:
        reasons = _from_details(rollout, score)
    except _FOREIGN:
        reasons = [_UNREADABLE]
    if score.components.get("format") == 0.0:
        reasons.append("wrong format")
    if fault := score.details.get("invalid"):
        reasons.append(f"invalid: {fault}")
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


def component_reason(
    row: ScoredRow, name: str, value: float | None, configuration: Configuration
) -> Reason:
    """Return the reason for the value of a component, and how to increase it."""
    if value is None:
        return "not computed under these settings", ""
    case = _Case(row, row.details or {}, value, configuration)
    reasons = _REASONS | _SEARCH_REASONS if case.is_search else _REASONS
    try:
        return reasons[name](case) if name in reasons else ("", "")
    except _FOREIGN:
        return _UNREADABLE, ""


def gold_aliases(row: ScoredRow) -> list[list[str]]:
    """Return the aliases of each gold answer; none if the row has no gold answers."""
    try:
        return [list(aliases) for aliases in row.gold]
    except RolloutError:
        return []


# --- the score -----------------------------------------------------------------------------------


def _from_details(rollout: Rollout, score: Score) -> list[str]:
    details = score.details
    return [
        *(_consistency if "consistent" in score.components else _answer)(details, score),
        *_grades(details, score),
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


def _grades(details: Any, score: Score) -> Iterator[str]:
    """Yield the grades of a judge or of rules."""
    if grades := details.get("criteria"):
        yield "grades: " + ", ".join(f"{name} {grade:g}" for name, grade in grades.items())
    if (grade := score.components.get("group")) is not None:
        yield f"{grade:g} in comparison with the group"


def _agrees(details: Any, correct: float) -> bool:
    """Return whether rules decided on the answer as the score states it."""
    is_judged = details.get("decided_by") == "judge"
    return not is_judged and (details["decision"] == "right") == (correct == 1)


def _consistency(details: Any, score: Score) -> Iterator[str]:
    """Yield whether the documents contradict the response, which decides on its reward."""
    answer = details.get("answer")
    subject = f"“{shorten(answer, 48)}”" if answer else "the response"
    yield _contradiction(details, subject, score.components["consistent"])
    yield from _decision(details)


def _contradiction(details: Any, subject: str, value: float | None) -> str:
    if cause := details.get("not_verified"):
        return f"{subject} is not compared with the documents: {cause}"
    return f"{'no' if value else 'a'} document contradicts {subject}"


def _has_decision(details: Mapping[str, Any]) -> bool:
    """Return whether the details of a score state a decision on an answer, and its reason."""
    is_decided = details.get("decision") in ("right", "wrong", "undecided")
    return is_decided and isinstance(details.get("decision_reason"), str)


def _decision(details: Any) -> Iterator[str]:
    """Yield the decision on the answer and its reason, if there is one."""
    if not _has_decision(details):
        return
    reason = details["decision_reason"]
    words = _WORDS.get(reason, reason)
    if details["decision"] == "undecided" and words == reason and not _LONG.match(reason):
        words = f"nothing explains “{shorten(reason, 48)}”"
    decision = f"{details['decision']}: {words}"
    is_judged = details.get("decided_by") == "judge"
    yield f"decided by the judge (rules: {decision})" if is_judged else decision


_WORDS = {
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
            yield f"lists {', '.join(labels) or 'none'} (supporting: {_supporting(rollout)})"
    elif "cited" in details:
        yield _cites(details["cited"])


def _cites(labels: Sequence[str]) -> str:
    return f"cites {', '.join(labels) or 'no document'}"


def _statements(details: Any) -> Iterator[str]:
    statements = details.get("statements")
    if statements is None or details.get("refused"):
        return
    answering, supported = _support(statements)
    yield (
        f"{answering} of {len(statements)} statements contain an answer, "
        f"citations support {supported}"
    )


def _support(statements: Any) -> tuple[int, int]:
    """Return the number of statements with an answer, and of those that citations support."""
    answering = [each for each in statements if each["answers"]]
    return len(answering), sum(bool(each.get("supported")) for each in answering)


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


# --- components ----------------------------------------------------------------------------------


class _Case(NamedTuple):
    """The value of a component, and what its reason depends on."""

    row: ScoredRow
    details: Any
    value: float
    configuration: Configuration

    @property
    def is_search(self) -> bool:
        """Whether the recipe reads turns."""
        return "dialect" in self.details and "searches" in self.details

    @property
    def gold(self) -> str:
        aliases = " or ".join(f"“{each[0]}”" for each in gold_aliases(self.row)[:3])
        return aliases or "the gold answer"

    def unless_full(self, change: str) -> str:
        """Return a change that increases the value, unless the value is 1."""
        return "" if self.value >= 1 else change


def _supporting(row: Rollout) -> str:
    try:
        return ", ".join(row.supporting_labels) or "none"
    except RolloutError:
        return "none"


def _format(case: _Case) -> Reason:
    if case.configuration.recipe == "dr-tulu":
        return _report_format(case)
    if case.is_search:
        form = _ORDER.get(case.details["dialect"], _TAGS_OF_TURNS)
        names, right = "a tag", "the tags are in the order of the dialect"
    else:
        definition = RECIPES.get(case.configuration.recipe)
        form = definition.output.description if definition else "all sections in their order"
        names, right = "a section", "the response consists of the required sections"
    if case.value:
        return right, ""
    return f"{names} is missing, repeated or misplaced, or there is other text", f"write {form}"


def _report_format(case: _Case) -> Reason:
    """Return which of an answer, a citation and a query there are, see `format_value`."""
    answer = case.details["answer"]
    has_answer = answer is not None
    if case.configuration.settings.get("format.valid"):
        has_answer = any(map(str.isalnum, answer or ""))
    rest = case.value - 0.5 * has_answer
    has_citation = rest > 0.25
    has_query = rest - 0.3 * has_citation > 0.1
    parts = {"an answer": has_answer, "a citation": has_citation, "a query": has_query}
    missing = " and ".join(part for part, is_there in parts.items() if not is_there)
    present = " and ".join(part for part, is_there in parts.items() if is_there) or "nothing"
    lack = f", and lacks {missing}" if missing else ""
    return f"the report has {present}{lack}", f"write {missing}" if missing else ""


_TAGS_OF_TURNS = "<think>, then <search> or <answer>, in every turn"
_ORDER = {
    "r1-searcher": "<think> … (query, documents) … </think> <answer>…</answer>",
    "tools": "one tool call per turn, and a last turn without a call",
}
"""The form of a rollout by dialect; think and search tags for the others."""


def _accuracy(case: _Case) -> Reason:
    answer = case.details.get("answer")
    subject = f"“{shorten(str(answer), 60)}”" if answer else "the answer"
    if case.value >= 1:
        return f"{subject} agrees with the gold answer", ""
    extent = f"agrees to {case.value:.2f}" if case.value > 0 else "does not agree"
    return f"{subject} {extent} with the gold answer", f"answer {case.gold}"


def _relevance(case: _Case) -> Reason:
    supporting = _supporting(case.row)
    if case.details.get("relevance") is None:
        return "the response has no list of document ids", f"name [{supporting}]"
    [reason] = _documents(case.details, case.row)
    return reason, case.unless_full(f"name exactly [{supporting}]")


def _citation(case: _Case) -> Reason:
    supporting = _supporting(case.row)
    if isinstance(statements := case.details.get("statements"), list):
        answering, supported = _support(statements)
        reason = f"citations support {supported} of {answering} statements with an answer"
        change = f"cite documents that entail them, such as [{supporting}]"
        return reason, "" if supported == answering or supporting == "none" else change
    if isinstance(claims := case.details.get("claims"), list):
        if not claims:
            return "the answer has no claim, or no search has a result", "cite results of searches"
        recall = f"{sum(claim['recall'] for claim in claims):g} of {len(claims)}"
        labels = dict.fromkeys(label for claim in claims for label in claim["cited"])
        change = case.unless_full("cite results that support every claim")
        return (
            f"sum of the recalls of the claims: {recall}; the answer {_cites(list(labels))}",
            change,
        )
    if isinstance(cited := case.details.get("cited"), list):
        change = "" if supporting == "none" else f"cite [{supporting}]"
        return f"{_cites(cited)} (supporting: {supporting})", case.unless_full(change)
    return "no statement was checked", ""


def _refusal(case: _Case) -> Reason:
    refused, answerable = bool(case.details.get("refused")), case.row.answerable
    action = "the response refuses" if refused else "the response answers"
    if answerable is None:
        return f"{action}; the row does not contain `answerable`", ""
    question = "an answerable" if answerable else "an unanswerable"
    change = "" if refused != answerable else ("answer" if refused else "refuse")
    return f"{action} {question} question", change


def _outcome(case: _Case) -> Reason:
    if case.is_search:
        return _accuracy(case)
    truth, box = str(case.details.get("truth", "")), f"box {case.gold}"
    return truth, {"correct": "", "uncertain": box}.get(truth, f"{box}, or abstain for 0")


def _reasoning(case: _Case) -> Reason:
    if case.value:
        return "the judge accepts the reasoning", ""
    return "the judge does not accept the reasoning", "write precise reasoning about the question"


def _contribution(case: _Case) -> Reason:
    document = case.details.get("critical_document", "?")
    reason = f"{case.value:+.2f} nats; document {document} contributes most"
    return reason, "use words that are more likely with the documents"


def _clr(case: _Case) -> Reason:
    tokens, settings = case.details.get("tokens", 0), case.configuration.settings
    threshold = settings.get("threshold")
    if case.value == 0 and threshold is not None:
        reason = f"the evidential contribution is not above the threshold of {threshold:g} nats"
        if settings.get("threshold_on") == "reward":
            reason = f"the likelihood reward is below the threshold of {threshold:g}"
        return reason, "base the answer on the documents"
    reason = f"evidential contribution divided by the square root of {tokens} tokens"
    return reason, "write the same in fewer words"


def _clr_normalized(case: _Case) -> Reason:
    scaled = "clr, scaled between the minimum and the maximum of the group"
    return scaled if case.value else f"{scaled}; 0 at the minimum, and if all are equal", ""


def _consistent(case: _Case) -> Reason:
    is_wrong = not case.value and not case.details.get("not_verified")
    change = "leave out what a document contradicts" if is_wrong else ""
    return _contradiction(case.details, "the response", case.value), change


def _bonus(case: _Case) -> Reason:
    below = [n for n, v in (case.row.components or {}).items() if n != "bonus" and v != 1]
    if not below:
        return "all other components are 1", ""
    return f"{', '.join(below)} below 1", "increase all other components to 1"


def _length(case: _Case) -> Reason:
    reason = next(_lengths(case.details), "")
    return reason, "reason more and extract less" if reason and case.value < 0.99 else ""


def _retrieval(case: _Case) -> Reason:
    if case.value:
        return "the results contain the gold answer", ""
    if not case.details["searches"]:
        return "there is no search", "search"
    return "no result contains the gold answer", "write queries that find the gold answer"


def _searched(case: _Case) -> Reason:
    number = case.details["searches"]
    return (f"searches: {number}", "") if case.value else ("there is no search", "search")


def _malformed(case: _Case) -> Reason:
    names = [
        f"turn {t}: {', '.join(turn['malformed'])}"
        for t, turn in enumerate(case.details.get("turns") or (), start=1)
        if turn.get("malformed")
    ]
    return "; ".join(names[:5]) or "no turn is malformed", ""


def _search_keys(case: _Case) -> Reason:
    return "mean F1 of the best query for each search key", case.unless_full("query each key")


def _redundancy(case: _Case) -> Reason:
    change = "write queries that find other documents" if case.value else ""
    return "share of documents that an earlier turn had found, summed over the turns", change


def _constant(text: str) -> Callable[[_Case], Reason]:
    return lambda case: (text, "")


_SEARCH_REASONS: dict[str, Callable[[_Case], Reason]] = {
    "retrieval": _retrieval,
    "searched": _searched,
    "malformed": _malformed,
    "search_keys": _search_keys,
    "redundancy": _redundancy,
    "gain": _constant("what the turns found that earlier turns had not found"),
    "info_gain": _constant("increase of the likelihood of the gold answer over the turns"),
    "prior": _constant("likelihood of the gold answer before the first search"),
    "posterior": _constant("likelihood of the gold answer before the last turn"),
}
"""The reasons for components of search agents."""
_REASONS: dict[str, Callable[[_Case], Reason]] = {
    "format": _format,
    "tag_count": lambda case: ("", case.unless_full("write every tag once")),
    **dict.fromkeys(("accuracy", "exact_match", "answer", "answer_full"), _accuracy),
    **dict.fromkeys(("citation", "citation_recall"), _citation),
    "relevance": _relevance,
    "refusal": _refusal,
    "outcome": _outcome,
    "reasoning": _reasoning,
    "evidential_contribution": _contribution,
    "clr": _clr,
    "clr_normalized": _clr_normalized,
    "consistent": _consistent,
    "bonus": _bonus,
    "length": _length,
}
