"""One rollout, explained: its words by what the documents added, its documents, its components."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from rag_rewards.errors import RolloutError
from rag_rewards.evidence.needs import values_without
from rag_rewards.evidence.protocols import Tokenizer
from rag_rewards.recipes import RECIPES
from rag_rewards.report.reasons import reason
from rag_rewards.report.rows import Configuration, Configurations
from rag_rewards.report.shorten import shorten
from rag_rewards.rewards.contrastive import token_contributions
from rag_rewards.rows import ScoredRow
from rag_rewards.text.citations import compiled, markers
from rag_rewards.text.response import strip_end_of_sequence

_PIECE = re.compile(r"\s*(?:\w+|[^\w\s])")
_BARE = re.compile(r"\w+|[^\w\s]")
_TAG = re.compile(r"</?\w{1,20}>")


LONGEST = 20_000
"""Characters of a response or a document that are shown."""


class Segment(msgspec.Struct, frozen=True, omit_defaults=True, rename={"text": "t"}):
    """A stretch of the response. `v`: nats that the documents added to it; `k`: tag or cite."""

    text: str
    v: float | None = None
    k: str = ""
    c: tuple[str, ...] = ()


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """One component: its value, why it has it, and what would change it."""

    name: str
    value: float | None
    why: str = ""
    change: str = ""


class Passage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One document. `effect`: by how many nats the response is less likely without it."""

    label: str
    text: str
    title: str = ""
    supporting: bool | None = None
    cited: bool = False
    effect: float | None = None


class Variant(msgspec.Struct, frozen=True):
    """A response that differs from that of the row in one respect, and its reward."""

    what: str
    reward: float
    response: str


class Explanation(msgspec.Struct, kw_only=True, omit_defaults=True):
    """All that is shown of one rollout."""

    id: str
    reward: float | None
    group: str = ""
    question: str = ""
    step: int | None = None
    correct: float | None = None
    advantage: float | None = None
    reason: str = ""
    equation: str = ""
    signature: str = ""
    gold: list[list[str]] = []
    segments: list[Segment] = []
    tokens: str = ""
    shades: dict[str, list[float | None]] = {}
    parts: list[Part] = []
    passages: list[Passage] = []
    changes: list[Variant] = []
    notes: list[str] = []


def explain(
    row: ScoredRow,
    *,
    advantage: float | None = None,
    tokenizer: Tokenizer | None = None,
    equation: str = "",
    each_document: bool = False,
    configuration: Configuration | None = None,
) -> Explanation:
    """What a scored row says, in full. Changes are added by whoever can score them.

    `each_document` adds the shades of the response by each document that was left out.
    `configuration` is what scored the row; by default its signature is read.
    """
    scored = configuration or Configurations().of(row)
    values, labels = contributions(row, scored)
    texts, told = token_texts(row, len(values), tokenizer) if values else ([], "")
    return Explanation(
        id=str(row.id),
        reward=row.reward,
        group=row.key or "",
        question=row.question or "",
        step=row.step,
        correct=row.correct,
        advantage=advantage,
        reason=reason(row, row.score),
        equation=equation,
        signature=row.signature or "",
        gold=_gold(row),
        segments=segments(row.parsed.text[:LONGEST], texts, values),
        tokens=told,
        shades=_shades(row, texts, scored) if each_document else {},
        parts=[_part(row, each, value, scored) for each, value in (row.components or {}).items()],
        passages=passages(row, scored),
        notes=_notes(row, labels, scored),
    )


def _gold(row: ScoredRow) -> list[list[str]]:
    try:
        return [list(aliases) for aliases in row.gold]
    except RolloutError:
        return []


def _notes(row: ScoredRow, labels: Sequence[str], scored: Configuration) -> list[str]:
    notes = []
    if row.finish_reason == "length":
        notes.append("cut at the length limit")
    if row.reward is None:
        notes.append("not scored")
    if (length := len(row.parsed.text)) > LONGEST:
        notes.append(f"the first {LONGEST:,} of {length:,} characters are shown")
    if len(labels) > 1 and scored.settings.get("loo") != "mean":
        notes.append(f"words are shaded by document {labels[0]}, the one that matters most")
    if scored.settings.get("span") == "answer" and labels:
        notes.append("the thinking does not count: span=answer")
    if row.response_prefix:
        notes.append("begins with what the template opened")
    return notes


def _bounded(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} … ({len(text):,} characters)"


# --- tokens ------------------------------------------------------------------------------------


def contributions(row: ScoredRow, scored: Configuration) -> tuple[list[float], list[str]]:
    """ε of every token under d*, the document without which the response is least likely; and the
    documents that can be left out, d* first. Nothing where the row has no log-probabilities, or
    log-probabilities that do not fit. Source: CTRL-RAG, Eq. 12 and Figure 2."""
    known = row.logprobs
    if known is None or not known.full:
        return [], []
    try:
        wanted = row.supporting_labels if row.supporting else row.labels
    except RolloutError:
        return [], []
    found = {label: values_without(row, label) for label in wanted}
    usable = {d: v for d, v in found.items() if v is not None and len(v) == len(known.full)}
    if not usable:
        return [], []
    start, end = _counted(row, scored)
    order = sorted(usable, key=lambda label: sum(usable[label][start:end]))
    without = list(usable.values()) if scored.settings.get("loo") == "mean" else [usable[order[0]]]
    values = token_contributions(known.full, without, "mean")
    return [v if start <= i < end else 0.0 for i, v in enumerate(values)], order


def _shades(
    row: ScoredRow, texts: Sequence[str], scored: Configuration
) -> dict[str, list[float | None]]:
    """What each document added to each segment, where more than one was left out."""
    known = row.logprobs
    try:
        labels = row.labels
    except RolloutError:
        return {}
    if known is None:
        return {}
    start, end = _counted(row, scored)
    found: dict[str, list[float | None]] = {}
    for label in labels:
        values = values_without(row, label)
        if values is None or len(values) != len(known.full):
            continue
        added = [
            f - w if start <= i < end else 0.0
            for i, (f, w) in enumerate(zip(known.full, values, strict=True))
        ]
        found[label] = [each.v for each in segments(row.parsed.text[:LONGEST], texts, added)]
    return found if len(found) > 1 else {}


def _counted(row: ScoredRow, scored: Configuration) -> tuple[int, int]:
    """The tokens that the recipe counts: all, or those of the answer (span=answer)."""
    known = row.logprobs
    if known is None:
        return 0, 0
    if scored.settings.get("span") == "answer" and known.answer_span:
        return known.answer_span
    return 0, len(known.full)


def token_texts(
    row: ScoredRow, count: int, tokenizer: Tokenizer | None = None
) -> tuple[list[str], str]:
    """The text of each token, and how it is known.

    From a tokenizer where one is given, else from `tokens` in the row or in its details, else
    words and punctuation where there are as many; [] where tokens can only be placed roughly.
    """
    said = strip_end_of_sequence(_own_text(row))
    if tokenizer is not None:
        ids = row.response_token_ids or tuple(tokenizer.encode(said, add_special_tokens=False))
        if len(ids) == count:
            return _decoded(tokenizer, ids), "tokens of the tokenizer"
    given = row.tokens or (row.details or {}).get("tokens")
    if isinstance(given, list) and len(given) == count and all(isinstance(t, str) for t in given):
        return list(given), "tokens as the row gives them"
    pieces = _PIECE.findall(said)
    if len(pieces) == count:
        return pieces, "words and punctuation: as many as there are tokens"
    pieces = said.split()
    if len(pieces) == count:
        return [f" {piece}" if i else piece for i, piece in enumerate(pieces)], "words"
    why = f"placed roughly: {count} tokens over the text by position; a tokenizer places them"
    return [], why


def _own_text(row: ScoredRow) -> str:
    if isinstance(row.response, str):
        return row.response
    return next(m.text for m in reversed(row.response) if m.role == "assistant")


def _decoded(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Texts of tokens that join to the text: each is what it adds to those before it."""
    texts, at, shown = [], 0, 0
    whole = ""
    for end in range(1, len(ids) + 1):
        grown = tokenizer.decode(ids[at:end])
        if grown.endswith("\ufffd"):  # in the middle of a character
            texts.append("")
            continue
        texts.append(grown[shown:])
        whole, shown = grown, len(grown)
        if end - at > 32 and len(whole) > 0:  # a window keeps it linear
            at, shown = end - 1, len(tokenizer.decode(ids[end - 1 : end]))
    return texts


def segments(text: str, texts: Sequence[str], values: Sequence[float]) -> list[Segment]:
    """The response cut at tokens, tags and citation markers, so that each piece is one thing."""
    if not text:
        return []
    spans = _spans(text, texts, values)
    kinds: dict[int, tuple[int, str, tuple[str, ...]]] = {}
    for match in _TAG.finditer(text):
        kinds[match.start()] = (match.end(), "tag", ())
    for marker in markers(text, compiled()):
        kinds.setdefault(marker.start, (marker.end, "cite", marker.labels))
    starts = [start for start, _ in spans]
    cuts = sorted({0, len(text), *starts, *kinds, *(end for end, _, _ in kinds.values())})
    found: list[Segment] = []
    until, kind = 0, ""
    labels: tuple[str, ...] = ()
    for start, end in pairwise(cuts):
        if start in kinds:
            until, kind, labels = kinds[start]
        inside = start < until
        at = bisect_right(starts, start) - 1
        value = round(spans[at][1], 3) if at >= 0 and spans[at][1] is not None else None
        found.append(
            Segment(text[start:end], value, kind if inside else "", labels if inside else ())
        )
    return _joined(found)


def _joined(found: Sequence[Segment]) -> list[Segment]:
    """Neighbours of one kind without a value, or with the same one, are one piece."""
    out: list[Segment] = []
    for each in found:
        last = out[-1] if out else None
        if last and each.v is None and last.v is None and (last.k, last.c) == (each.k, each.c):
            out[-1] = Segment(last.text + each.text, None, each.k, each.c)
        else:
            out.append(each)
    return out


def _spans(text: str, texts: Sequence[str], values: Sequence[float]) -> list[tuple[int, Any]]:
    """(where a token begins, its value); tokens that are not in the text are left out."""
    if not values:
        return []
    if not texts:
        return _rough(text, values)
    found: list[tuple[int, Any]] = []
    at = 0
    for token, value in zip(texts, values, strict=True):
        bare = token.strip() or token
        start = text.find(bare, at, at + len(bare) + 24) if bare else -1
        if start < 0:
            continue
        found.append((start, value))
        at = start + len(bare)
    found.append((at, None))
    return found


def _rough(text: str, values: Sequence[float]) -> list[tuple[int, Any]]:
    """Values over words by position: word i of the text takes those that fall on it."""
    words = list(_BARE.finditer(text))
    if not words:
        return []
    sums = [0.0] * len(words)
    ends = [word.end() for word in words]
    for t, value in enumerate(values):
        place = (t + 0.5) * len(text) / len(values)
        sums[min(bisect_right(ends, place), len(words) - 1)] += value
    return [(word.start(), value) for word, value in zip(words, sums, strict=True)]


# --- documents ---------------------------------------------------------------------------------


def passages(row: ScoredRow, scored: Configuration) -> list[Passage]:
    """The documents, with what leaving each out would cost the response."""
    try:
        labels = row.labels
        supporting = set(row.supporting_labels) if row.supporting is not None else None
    except RolloutError:
        labels, supporting = tuple(map(str, range(1, len(row.documents or ()) + 1))), None
    cited = {label for m in markers(row.parsed.text, compiled()) for label in m.labels}
    named = (row.details or {}).get("relevance")
    cited |= set(named) if isinstance(named, list) else set()
    start, end = _counted(row, scored)
    full = sum(row.logprobs.full[start:end]) if row.logprobs else 0.0
    out = []
    for label, document in zip(labels, row.documents or (), strict=True):
        values = values_without(row, label)
        out.append(
            Passage(
                label=label,
                text=_bounded(document.text),
                title=document.title or "",
                supporting=None if supporting is None else label in supporting,
                cited=label in cited,
                effect=None if values is None else round(full - sum(values[start:end]), 3),
            )
        )
    return out


# --- components --------------------------------------------------------------------------------

Told = tuple[str, str]
"""Why a component has its value, and what would change it."""


def _part(row: ScoredRow, name: str, value: float | None, scored: Configuration) -> Part:
    if value is None:
        return Part(name, None, "not computed under these settings", "")
    why, change = _TOLD[name](row, value, scored) if name in _TOLD else ("", "")
    return Part(name, value, why, change)


def _format(row: ScoredRow, value: float, scored: Configuration) -> Told:
    plan = RECIPES.get(scored.recipe)
    output = plan.output.description if plan else "its sections, in order"
    if value:
        return "exactly the sections that are wanted", ""
    return "the sections are not as wanted, or something stands around them", f"write {output}"


def _accuracy(row: ScoredRow, value: float, scored: Configuration) -> Told:
    gold = " or ".join(f"“{aliases[0]}”" for aliases in _gold(row)[:3]) or "the gold answer"
    answer = (row.details or {}).get("answer")
    said = f"“{shorten(str(answer), 60)}”" if answer else "what it says"
    if value >= 1:
        return f"{said} agrees with the gold answer", ""
    share = f" to {value:.2f}" if value > 0 else ""
    agrees = f"{said} agrees{share} with the gold answer" if value > 0 else f"{said} is not right"
    return agrees, f"answer {gold}"


def _relevance(row: ScoredRow, value: float, scored: Configuration) -> Told:
    wanted = ", ".join(_supporting(row)) or "none"
    named = (row.details or {}).get("relevance")
    if named is None:
        return "no list of ids is read", f"name [{wanted}]"
    why = f"names {', '.join(map(str, named)) or 'none'}; supporting: {wanted}"
    return why, "" if value >= 1 else f"name exactly [{wanted}]"


def _citation(row: ScoredRow, value: float, scored: Configuration) -> Told:
    found = (row.details or {}).get("statements")
    wanted = ", ".join(f"[{label}]" for label in _supporting(row))
    if isinstance(found, list):
        holding = [each for each in found if each.get("answers")]
        good = sum(bool(each.get("supported")) for each in holding)
        why = f"{good} of {len(holding)} statements with an answer are well cited"
        return why, "" if good == len(holding) else f"cite what entails the statement: {wanted}"
    cited = (row.details or {}).get("cited")
    if isinstance(cited, list):
        why = f"cites {', '.join(map(str, cited)) or 'nothing'}; supporting: {wanted or 'none'}"
        return why, "" if value >= 1 else f"cite {wanted}"
    return "no statement is checked", ""


def _refusal(row: ScoredRow, value: float, scored: Configuration) -> Told:
    refused = bool((row.details or {}).get("refused"))
    why = f"{'refuses' if refused else 'answers'} a question that "
    if row.answerable is None:
        return f"{why}has no label", ""
    why += "the documents answer" if row.answerable else "the documents do not answer"
    return why, "" if refused != row.answerable else ("answer" if refused else "refuse")


def _outcome(row: ScoredRow, value: float, scored: Configuration) -> Told:
    truth = str((row.details or {}).get("truth", ""))
    gold = " or ".join(f"“{aliases[0]}”" for aliases in _gold(row)[:3])
    change = {"correct": "", "uncertain": f"box {gold}"}.get(truth, f"box {gold}, or abstain for 0")
    return truth, change


def _contribution(row: ScoredRow, value: float, scored: Configuration) -> Told:
    details = row.details or {}
    document = details.get("critical_document", "?")
    why = f"{value:+.2f} nats: document {document} is the one that matters most"
    return why, "words that the documents make likelier raise it"


def _clr(row: ScoredRow, value: float, scored: Configuration) -> Told:
    tokens = (row.details or {}).get("tokens", 0)
    threshold = scored.settings.get("threshold")
    if value == 0 and threshold is not None:
        return f"E is not above the threshold of {threshold:g} nats", "ground it in the documents"
    return f"E over the square root of {tokens} tokens", "the same grounding in fewer words"


def _scaled(row: ScoredRow, value: float, scored: Configuration) -> Told:
    return "its place between the least and the most of its group", ""


def _bonus(row: ScoredRow, value: float, scored: Configuration) -> Told:
    missing = [n for n, v in (row.components or {}).items() if n != "bonus" and v != 1]
    if not missing:
        return "all others are 1", ""
    return f"{', '.join(missing)} below 1", "all three must be 1"


def _length(row: ScoredRow, value: float, scored: Configuration) -> Told:
    tokens = (row.details or {}).get("tokens")
    if not isinstance(tokens, dict):
        return "", ""
    why = f"{tokens['reason']} words of reason, {tokens['extract']} extracted of "
    return why + str(tokens["documents"]), "" if value >= 0.99 else "reason more, extract less"


def _tags(row: ScoredRow, value: float, scored: Configuration) -> Told:
    return "", "" if value >= 1 else "every tag once"


_TOLD: dict[str, Callable[[ScoredRow, float, Configuration], Told]] = {
    "format": _format,
    "tag_count": _tags,
    "accuracy": _accuracy,
    "exact_match": _accuracy,
    "answer": _accuracy,
    "answer_full": _accuracy,
    "relevance": _relevance,
    "citation": _citation,
    "citation_recall": _citation,
    "refusal": _refusal,
    "outcome": _outcome,
    "evidential_contribution": _contribution,
    "clr": _clr,
    "clr_normalized": _scaled,
    "bonus": _bonus,
    "length": _length,
}


def _supporting(row: ScoredRow) -> tuple[str, ...]:
    try:
        return row.supporting_labels
    except RolloutError:
        return ()
