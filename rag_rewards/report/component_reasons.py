"""The reason for the value of each component, and how a response could increase it."""

from __future__ import annotations

from collections.abc import Callable

from rag_rewards.errors import RolloutError, shorten
from rag_rewards.recipes import RECIPES
from rag_rewards.report.reasons import FOREIGN, UNREADABLE
from rag_rewards.report.rows import Configuration
from rag_rewards.report.search_reasons import is_search_agent, search_reason
from rag_rewards.rows import ScoredRow

Reason = tuple[str, str]
"""The reason for a value, and how to increase it. Both may be empty."""


def component_reason(
    row: ScoredRow, name: str, value: float | None, configuration: Configuration
) -> Reason:
    """Return the reason for the value of a component, and how to increase it."""
    if value is None:
        return "not computed under these settings", ""
    if reason := search_reason(row, name, value):
        return reason
    try:
        return _REASONS[name](row, value, configuration) if name in _REASONS else ("", "")
    except FOREIGN:
        return UNREADABLE, ""


def gold_aliases(row: ScoredRow) -> list[list[str]]:
    """Return the aliases of each gold answer; none if the row has no gold answers."""
    try:
        return [list(aliases) for aliases in row.gold]
    except RolloutError:
        return []


def _gold(row: ScoredRow) -> str:
    return " or ".join(f"“{aliases[0]}”" for aliases in gold_aliases(row)[:3])


def _format(row: ScoredRow, value: float, configuration: Configuration) -> Reason:
    definition = RECIPES.get(configuration.recipe)
    form = definition.output.description if definition else "all sections in their order"
    if value:
        return "the response consists of the required sections", ""
    return "a section is missing, repeated or misplaced, or there is other text", f"write {form}"


def _tag_count(row: ScoredRow, value: float, configuration: Configuration) -> Reason:
    return "", "" if value >= 1 else "write every tag once"


def _accuracy(row: ScoredRow, value: float, configuration: Configuration) -> Reason:
    answer = (row.details or {}).get("answer")
    subject = f"“{shorten(str(answer), 60)}”" if answer else "the answer"
    if value >= 1:
        return f"{subject} agrees with the gold answer", ""
    change = f"answer {_gold(row) or 'the gold answer'}"
    if value > 0:
        return f"{subject} agrees to {value:.2f} with the gold answer", change
    return f"{subject} does not agree with the gold answer", change


def _relevance(row: ScoredRow, value: float, configuration: Configuration) -> Reason:
    supporting = ", ".join(_supporting(row)) or "none"
    labels = (row.details or {}).get("relevance")
    if labels is None:
        return "the response has no list of document ids", f"name [{supporting}]"
    reason = f"lists {', '.join(map(str, labels)) or 'none'}; supporting: {supporting}"
    return reason, "" if value >= 1 else f"name exactly [{supporting}]"


def _citation(row: ScoredRow, value: float, configuration: Configuration) -> Reason:
    statements = (row.details or {}).get("statements")
    markers = ", ".join(f"[{label}]" for label in _supporting(row))
    if isinstance(statements, list):
        answering = [each for each in statements if each.get("answers")]
        supported = sum(bool(each.get("supported")) for each in answering)
        reason = f"citations support {supported} of {len(answering)} statements with an answer"
        is_complete = supported == len(answering)
        return reason, "" if is_complete else f"cite documents that entail them: {markers}"
    cited = (row.details or {}).get("cited")
    if isinstance(cited, list):
        names = ", ".join(map(str, cited)) or "no document"
        reason = f"cites {names}; supporting: {markers or 'none'}"
        return reason, "" if value >= 1 else f"cite {markers}"
    return "no statement was checked", ""


def _refusal(row: ScoredRow, value: float, configuration: Configuration) -> Reason:
    refused = bool((row.details or {}).get("refused"))
    action = "the response refuses" if refused else "the response answers"
    if row.answerable is None:
        return f"{action}; the row does not contain `answerable`", ""
    question = "an answerable" if row.answerable else "an unanswerable"
    change = "" if refused != row.answerable else ("answer" if refused else "refuse")
    return f"{action} {question} question", change


def _outcome(row: ScoredRow, value: float, configuration: Configuration) -> Reason:
    if is_search_agent(row):
        return _accuracy(row, value, configuration)
    truth = str((row.details or {}).get("truth", ""))
    box = f"box {_gold(row)}"
    return truth, {"correct": "", "uncertain": box}.get(truth, f"{box}, or abstain for 0")


def _reasoning(row: ScoredRow, value: float, configuration: Configuration) -> Reason:
    if value:
        return "the judge accepts the reasoning", ""
    return "the judge does not accept the reasoning", "write precise reasoning about the question"


def _contribution(row: ScoredRow, value: float, configuration: Configuration) -> Reason:
    document = (row.details or {}).get("critical_document", "?")
    reason = f"{value:+.2f} nats; document {document} contributes most"
    return reason, "use words that are more likely with the documents"


def _clr(row: ScoredRow, value: float, configuration: Configuration) -> Reason:
    tokens = (row.details or {}).get("tokens", 0)
    threshold = configuration.settings.get("threshold")
    if value == 0 and threshold is not None:
        reason = f"the evidential contribution is not above the threshold of {threshold:g} nats"
        if configuration.settings.get("threshold_on") == "reward":
            reason = f"the likelihood reward is below the threshold of {threshold:g}"
        return reason, "base the answer on the documents"
    return (
        f"evidential contribution divided by the square root of {tokens} tokens",
        "write the same in fewer words",
    )


def _clr_normalized(row: ScoredRow, value: float, configuration: Configuration) -> Reason:
    scaled = "clr, scaled between the minimum and the maximum of the group"
    return scaled if value else f"{scaled}; 0 at the minimum, and if all are equal", ""


def _consistent(row: ScoredRow, value: float, configuration: Configuration) -> Reason:
    if cause := (row.details or {}).get("not_verified"):
        return f"not compared with the documents: {cause}", ""
    if value:
        return "no document contradicts the response", ""
    return "a document contradicts the response", "leave out what a document contradicts"


def _bonus(row: ScoredRow, value: float, configuration: Configuration) -> Reason:
    below = [n for n, v in (row.components or {}).items() if n != "bonus" and v != 1]
    if not below:
        return "all other components are 1", ""
    return f"{', '.join(below)} below 1", "increase all other components to 1"


def _length(row: ScoredRow, value: float, configuration: Configuration) -> Reason:
    details = row.details or {}
    lengths, unit = details.get("tokens"), details.get("unit", "words")
    if not isinstance(lengths, dict):
        return "", ""
    reason = (
        f"{lengths['reason']} {unit} of reasoning, {lengths['extract']} {unit} extracted from "
        f"{lengths['documents']}"
    )
    return reason, "" if value >= 0.99 else "reason more and extract less"


_REASONS: dict[str, Callable[[ScoredRow, float, Configuration], Reason]] = {
    "format": _format,
    "tag_count": _tag_count,
    "accuracy": _accuracy,
    "exact_match": _accuracy,
    "answer": _accuracy,
    "answer_full": _accuracy,
    "relevance": _relevance,
    "citation": _citation,
    "citation_recall": _citation,
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


def _supporting(row: ScoredRow) -> tuple[str, ...]:
    try:
        return row.supporting_labels
    except RolloutError:
        return ()
