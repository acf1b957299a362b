"""Random texts: everything that reads a response, a gold answer or the output of a judge."""

from __future__ import annotations

from fuzz_checks import outcome, same_twice
from fuzz_texts import aliases, any_texts, texts
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.matching.decide import decide
from rag_rewards.matching.lenient import lenient_match
from rag_rewards.matching.mentions import stated_answers
from rag_rewards.models.judge_answers import outermost, parse_entities, parse_verdict
from rag_rewards.models.responses import error_message, retry_after_seconds
from rag_rewards.rewards.carr import filled, placeholders, readable
from rag_rewards.text.absence import declines, explains, paraphrases
from rag_rewards.text.citations import cited_labels, compiled, markers, strip_markers
from rag_rewards.text.hidden import shown
from rag_rewards.text.latex import first_box, last_box, plain_latex, unwrap
from rag_rewards.text.lengths import auto_length
from rag_rewards.text.normalize import Unicode, lower, squad, triviaqa
from rag_rewards.text.refusal import (
    abstained,
    refusal_similarity,
    strict_refusal,
    trust_score_refusal,
)
from rag_rewards.text.response import read_response, strip_end_of_sequence
from rag_rewards.text.sections import SectionStyle, Tags, cut
from rag_rewards.text.statements import statements
from rag_rewards.text.thinking import without_preparation, without_thinking
from rag_rewards.text.url_citations import before_references, cited_urls, without_url_citations

CITATIONS = compiled()
FOLDING = Unicode("spelling")
NORMALIZERS = (lower, squad, triviaqa, Unicode(), FOLDING)
STYLES = (
    Tags(("think", "answer")),
    Tags(("think", "answer"), SectionStyle("lenient", "missing")),
    Tags(("relevance", "analysis", "answer")),
)
golds = st.lists(aliases, min_size=1, max_size=4)


@given(texts)
@budget(80)
def test_sections_and_thinking(text):
    for style in STYLES:
        sections = cut(text, style)
        assert repr(sections) == repr(cut(text, style))
    for read in (without_thinking, without_preparation, strip_end_of_sequence, shown):
        assert isinstance(same_twice(lambda read=read: read(text)), str)
    response = read_response(text)
    assert (response.visible, response.text) == (
        read_response(text).visible,
        read_response(text).text,
    )


@given(texts)
@budget(80)
def test_boxes_and_latex(text):
    for box in (first_box(text), last_box(text)):
        assert box is None or box in text
        if box is not None:
            assert len(unwrap(box)) <= len(box)
    assert isinstance(same_twice(lambda: plain_latex(text)), str)
    assert isinstance(same_twice(lambda: unwrap(f"\\text{{{text}}}")), str)


@given(texts, texts)
@budget(80)
def test_citations_and_statements(text, document):
    for marker in markers(text, CITATIONS):
        assert marker
    assert same_twice(lambda: cited_labels(text, CITATIONS)) is not None
    strip_markers(text, CITATIONS)
    for items in (False, True):
        for statement in same_twice(lambda items=items: statements(text, CITATIONS, items=items)):
            assert statement.text
    before_references(text), cited_urls(text), without_url_citations(text)


@given(texts, golds, st.one_of(st.just("Which city?"), texts))
@budget(120)
def test_decisions(text, gold, question):
    decision = same_twice(lambda: decide(text, [*gold, "Paris"], question))
    assert decision.value in ("right", "wrong", "undecided")
    assert decision.reason
    decide(text, [[*gold, "Paris"], ["Rome"]], question, [text])
    stated_answers(text, [[*gold, "Paris"], ["Rome"]], question, [text])


@given(texts, golds, st.one_of(st.just("Which city?"), texts))
@budget(60)
def test_lenient_matching_and_refusals(text, gold, question):
    lenient_match(text, [*gold, "Paris"], question)
    assert 0 <= refusal_similarity(text) <= 100
    assert same_twice(lambda: strict_refusal(text, refusal_similarity)) in (False, True)
    trust_score_refusal(text), abstained(text), abstained(text, alone=True)
    declines(text, gold), paraphrases(text, question), explains(text, question)


@given(texts, st.sampled_from(["outcome", "accuracy", "reasoning", "supported", "consistent"]))
@budget(80)
def test_the_output_of_a_judge(text, kind):
    assert same_twice(lambda: parse_verdict(text, kind)) in (None, 0, 1)
    spans, rest = outermost(text)
    assert all(text[start] == "{" and text[end - 1] == "}" for start, end in spans)
    assert 0 <= rest <= len(text)
    entities = parse_entities(text, ["E0", "E1"])
    assert entities is None or set(entities) == {"E0", "E1"}


@given(texts, st.dictionaries(st.sampled_from(["E0", "E1"]), st.one_of(st.none(), aliases)))
@budget(40)
def test_rubrics(text, names):
    placeholders(text), readable(text)
    outcome(lambda: filled(text, names))


@given(st.binary(max_size=80), texts)
@budget(40)
def test_errors_of_servers(content, text):
    assert isinstance(error_message(content), str)
    assert isinstance(error_message(text.encode()), str)
    assert 0 <= retry_after_seconds(text) < float("inf")


@given(any_texts, golds)
@budget(40)
def test_halves_of_surrogate_pairs(text, gold):
    """A trainer can pass a text that JSON does not have."""
    for style in STYLES:
        cut(text, style)
    read_response(text), last_box(text), plain_latex(text), shown(text)
    (
        statements(text, CITATIONS),
        decide(text, [*gold, "Paris"]),
        lenient_match(text, [*gold, "Paris"]),
    )
    refusal_similarity(text), abstained(text), auto_length(text)
