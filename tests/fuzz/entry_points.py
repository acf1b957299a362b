"""The functions that read untrusted texts, each as a function of one text."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache

import msgspec
from fuzz_checks import outcome
from fuzz_rows import ROWS_OF_RECIPES
from hostile_texts import new
from rag_rewards_adapters.verl.rows import row_fields

from rag_rewards.datasets.catalog import DATASETS
from rag_rewards.datasets.crag import page_text
from rag_rewards.datasets.prgb import required_answers
from rag_rewards.evidence.protocols import JudgeQuestion
from rag_rewards.matching.decide import decide
from rag_rewards.matching.lenient import lenient_match
from rag_rewards.models.checked_judge import is_suspicious, planted_question
from rag_rewards.models.judge_answers import parse_entities, parse_verdict
from rag_rewards.models.judge_prompts import judge_messages
from rag_rewards.models.responses import error_message, retry_after_seconds
from rag_rewards.prompts import PromptTemplate
from rag_rewards.rewards import Claims
from rag_rewards.rollout import Rollout
from rag_rewards.rows import Chunk, decode_or_error, line_id, line_key
from rag_rewards.rows.columns import label_fields, response_prefix_of
from rag_rewards.rows.decoding import find_fault
from rag_rewards.scorer import Scorer
from rag_rewards.signature import Signature
from rag_rewards.text.absence import declines, explains, paraphrases
from rag_rewards.text.citations import cited_labels, compiled, markers, strip_markers
from rag_rewards.text.hidden import shown
from rag_rewards.text.latex import first_box, last_box, plain_latex, unwrap
from rag_rewards.text.lengths import auto_length, first_words, words
from rag_rewards.text.normalize import Unicode, squad, triviaqa
from rag_rewards.text.refusal import (
    abstained,
    refusal_similarity,
    strict_refusal,
    trust_score_refusal,
)
from rag_rewards.text.response import read_response
from rag_rewards.text.sections import SectionStyle, Tags, cut
from rag_rewards.text.statements import statements
from rag_rewards.text.thinking import without_preparation, without_thinking
from rag_rewards.text.url_citations import cited_urls, without_url_citations
from rag_rewards.training.openrlhf import response_start
from rag_rewards.turns.dialects import DIALECTS
from rag_rewards.turns.order import is_well_formed
from rag_rewards.turns.trajectory import Reading, read_trajectory

CITATIONS = compiled()
FOLDING = Unicode("spelling")
STYLES = (
    Tags(("think", "answer")),
    Tags(("think", "answer"), SectionStyle("lenient", "missing")),
)
QUESTION = "Which city is it, and when?"
ALIASES = [f"May {day % 28 + 1}, {1900 + day} by Anna Paris{day}" for day in range(60)]


def decided(*gold):
    return lambda text: decide(text, gold, QUESTION)


def sections(text):
    for style in STYLES:
        cut(text, style)
    return read_response(text).visible, without_thinking(text), without_preparation(text)


def boxes(text):
    return first_box(text), last_box(text), unwrap(f"\\text{{{text}}}"), plain_latex(text)


def citations(text):
    return (
        markers(text, CITATIONS),
        cited_labels(text, CITATIONS),
        strip_markers(text, CITATIONS),
        cited_urls(text),
        without_url_citations(text),
    )


def claims(text):
    rollout = Rollout(response=text, documents=("Paris is in France.", "Rome is in Italy."))
    for measure in ("faithfulness", "f1"):
        Claims(measure).needs(rollout)


def agent(text):
    for name in ("auto", *DIALECTS):
        is_well_formed(read_trajectory(text, None, Reading(name)))


def rows(text):
    """Decode a row in which a text is everything."""
    row = {"id": text, "response": text, "question": text, "answers": [text], "group": text}
    line = json.dumps(row | {text: text}).encode()
    decode_or_error(line), line_id(line), line_key(line), line_key(line[:-9]), find_fault(line)
    line = text.encode("utf-8", "replace")
    decode_or_error(line), line_id(line), line_key(line), find_fault(line)


def labels(text):
    outcome(lambda: label_fields(text))
    outcome(lambda: row_fields(text, {"question": text}))
    response_prefix_of(text)
    outcome(lambda: response_start(text + "a", text[1:] + text[:9]))


def outputs_of_judges(text):
    for kind in ("outcome", "accuracy"):
        parse_verdict(text, kind)
    parse_entities(text, ["E0"])
    question = JudgeQuestion("accuracy", text, text, (text,), (text,))
    judge_messages(question, marked=True)
    is_suspicious(question)
    planted_question(question, 0)


def texts_of_servers(text):
    return error_message(text.encode("utf-8", "replace")), retry_after_seconds(text)


def texts_of_users(text):
    outcome(lambda: PromptTemplate(text))
    outcome(lambda: Signature.parse("rag-rewards 0.2.0 arena " + text))


def data_sets(text):
    page_text(text)
    outcome(lambda: required_answers(text))
    crag = {
        "query": text,
        "answer": text,
        "alt_ans": text,
        "search_results": [{"page_snippet": text}],
    }
    data_set = DATASETS["crag"]
    data_set.gold(msgspec.convert(crag, data_set.row))


@cache
def scorer(name, hardened):
    return Scorer.load(name, hardened=hardened)


def recipe(name, hardened):
    """Return the scoring of a line in which a text is the response, or the gold answer."""
    example = ROWS_OF_RECIPES[name][0]

    def score(text):
        for change in ({"response": text}, {"answers": [new(text)]}):
            line = json.dumps(example | change).encode()
            scorer(name, hardened).score_rows(Chunk(lines=[line], numbers=[1]))

    return score


ENTRY_POINTS: dict[str, Callable[[str], object]] = {
    "decision, a city": decided("Paris"),
    "decision, letters": decided("1", "a", "x. a.", "A"),
    "decision, yes": decided("yes"),
    "decision, a date": decided("1999", "May 5, 1999"),
    "decision, a name": decided("Anna Maria Reed", "Reed (band)", "Oslo and Rome in Paris"),
    "decision, Chinese": decided("巴黎"),
    "decision, many aliases": decided(ALIASES),
    "decision, gold": lambda text: decide("It is Paris.", [new(text), "Paris"]),
    "decision, question": lambda text: decide("It is Paris.", ["Paris"], new(text)),
    "decision, the text itself": lambda text: decide(text, [new(text), text, "Paris"]),
    "lenient": lambda text: lenient_match(text, ["Paris", "May 5, 1999"], QUESTION),
    "lenient, many aliases": lambda text: lenient_match(text, ALIASES, QUESTION),
    "lenient, gold": lambda text: lenient_match("Paris", [new(text), "Paris"], new(text)),
    "normalized": lambda text: (FOLDING(text), squad(text), triviaqa(text), shown(text)),
    "lengths": lambda text: (words(text), auto_length(text), first_words(text, 1 << 20)),
    "sections and thinking": sections,
    "boxes and LaTeX": boxes,
    "citations": citations,
    "statements": lambda text: (
        statements(text, CITATIONS),
        statements(text, CITATIONS, items=True),
    ),
    "claims": claims,
    "refusals": lambda text: (
        strict_refusal(text, refusal_similarity),
        trust_score_refusal(text),
        abstained(text),
        abstained(text, alone=True),
        declines(text, ["Paris"]),
        paraphrases(text, QUESTION),
        explains(text, QUESTION),
    ),
    "search agents": agent,
    "rows": rows,
    "labels of trainers": labels,
    "outputs of judges": outputs_of_judges,
    "texts of servers": texts_of_servers,
    "texts of users": texts_of_users,
    "rows of data sets": data_sets,
}
RECIPES: dict[str, Callable[[str], object]] = {
    f"{name}{', hardened' if hardened else ''}": recipe(name, hardened)
    for name in ROWS_OF_RECIPES
    for hardened in (False, True)
}
