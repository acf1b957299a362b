"""Rows: decoding, errors of invalid rows, gold answers, labels, evidence."""

from __future__ import annotations

import json
import math
import pickle
import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards import DataError, Document, Evidence, EvidenceError, Rollout, RowError, decode_row
from rag_rewards.evidence.judge_needs import VerdictNeed
from rag_rewards.evidence.needs import (
    EntailmentNeed,
    LogProbsNeed,
    MaskedAnswersNeed,
    MaskedLogProbsNeed,
    Need,
    SimilarityNeed,
    values_without,
)
from rag_rewards.rewards.correctness import supported_answers
from rag_rewards.rollout import (
    Entailment,
    LogProbs,
    MaskedAnswers,
    MaskedLogProbs,
    Message,
    Similarity,
    canonical,
    gold_text,
)
from rag_rewards.text.gold_forms import GoldForms
from rag_rewards.text.normalize import squad

quick = budget(150)

FULL = {
    "id": "r1",
    "group": 3,
    "question": "q?",
    "query_time": "02/28/2024, 10:04:54 PT",
    "documents": [{"id": 4, "title": "T", "text": "x", "supports": [True, 0]}, {"text": "y"}],
    "response": [{"role": "assistant", "content": [{"type": "text", "text": "Paris"}]}],
    "response_prefix": "<think>",
    "finish_reason": "stop",
    "prompt": [{"role": "user", "content": "q?"}],
    "prompt_token_ids": [1, 2],
    "response_token_ids": [3],
    "step": 7,
    "split": "train",
    "weight_version": "w7",
    "supporting": [4, "2"],
    "answers": [["Paris", 1], [True]],
    "answer_kind": "claims",
    "answerable": True,
    "out_of_knowledge": False,
    "logprobs": {"full": [-1], "without": {"4": [-2.5]}, "answer_span": [0, 1]},
    "masked_answers": {"rationale": "a", "evidence": "b"},
    "masked_logprobs": {"rationale": [[-1.0]], "evidence": [[-2.0]], "full": [[-3.0]]},
    "verdicts": {"outcome": 1, "reasoning": 0},
    "nli": [{"premise": "p", "hypothesis": "h", "entailment": 0.5}],
    "similarity": [{"text": "t", "reference": "r", "similarity": 0.5}],
    "reward": 7.0,
    "anything": {"else": [1]},
}


def test_json_bytes_and_mappings_decode_alike():
    whole = decode_row(FULL)
    assert decode_row(json.dumps(FULL)) == decode_row(json.dumps(FULL).encode()) == whole
    assert whole.parsed.text == "<think>Paris"
    assert whole.gold == (("Paris", "1"), ("yes",))
    assert whole.labels == ("4", "2")
    assert whole.supporting_labels == ("4", "2")
    assert whole.documents[0].supports == (True, 0)
    assert whole.logprobs == LogProbs(full=(-1.0,), without={"4": (-2.5,)}, answer_span=(0, 1))
    assert not hasattr(whole, "anything")


def test_a_row_requires_only_a_response():
    row = decode_row({"response": "x"})
    assert row == Rollout(response="x")
    others = set(Rollout.__struct_fields__) - {"response"}
    assert all(getattr(row, name) is None for name in others)
    assert decode_row({"response": "x"} | dict.fromkeys(others)) == row


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({}, "response: missing"),
        ({"response": None}, "response: expected str | array, found null"),
        ({"response": 1}, "response: expected str | array, found int"),
        ([1], "expected object, found array"),
        ({"response": [{"content": "x"}]}, "response[0].role: missing"),
        (
            {"response": [{"role": "tool", "content": 1}]},
            "response[0].content: expected str | array | null, found int",
        ),
        ({"response": "", "documents": [{"title": "T"}]}, "documents[0].text: missing"),
        (
            {"response": "", "documents": [{"text": "x"}, {"text": 7}]},
            "documents[1].text: expected str, found int",
        ),
        (
            {"response": "", "documents": [{"text": "x", "id": True}]},
            "documents[0].id: expected int | str | null, found bool",
        ),
        (
            {"response": "", "documents": "x"},
            "documents: expected array | null, found str; parse lists that are texts first, for "
            "example with json.loads",
        ),
        ({"response": "", "supporting": [1.5]}, "supporting[0]: expected int | str, found float"),
        ({"response": "", "supporting": 1}, "supporting: expected array | null, found int"),
        (
            {"response": "", "answers": {"a": 1}},
            "answers: expected bool | int | float | str | array | null, found object",
        ),
        (
            {"response": "", "answers": [[["a"]]]},
            "answers[0][0]: expected bool | int | float | str, found array",
        ),
        (
            {"response": "", "answers": [None]},
            "answers[0]: expected bool | int | float | str | array, found null",
        ),
        (
            {"response": "", "answer_kind": "long"},
            "answer_kind: expected short, list, claims or null, found 'long'",
        ),
        ({"response": "", "answerable": "yes"}, "answerable: expected bool | null, found str"),
        (
            {"response": "", "out_of_knowledge": 1},
            "out_of_knowledge: expected bool | null, found int",
        ),
        ({"response": "", "id": 1.5}, "id: expected int | str | null, found float"),
        ({"response": "", "step": "7"}, "step: expected int | null, found str"),
        (
            {"response": "", "response_token_ids": [1, "a"]},
            "response_token_ids[1]: expected int, found str",
        ),
        ({"response": "", "logprobs": {"without": {}}}, "logprobs.full: missing"),
        (
            {"response": "", "logprobs": {"full": [None]}},
            "logprobs.full[0]: expected float, found null",
        ),
        (
            {"response": "", "logprobs": {"full": [], "without": {"1": ["x"]}}},
            "logprobs.without[][0]: expected float, found str",
        ),
        (
            {"response": "", "masked_answers": {"rationale": 1}},
            "masked_answers.rationale: expected str | null, found int",
        ),
        (
            {"response": "", "masked_logprobs": {"full": [[1, "a"]]}},
            "masked_logprobs.full[0][1]: expected float, found str",
        ),
        (
            {"response": "", "verdicts": {"outcome": "yes"}},
            "verdicts[]: expected a number from 0 to 1, an object of grades, or null, found str",
        ),
        (
            {"response": "", "verdicts": {"rubric": {"year": None}}},
            "verdicts[][]: expected a number from 0 to 1, a list of such numbers, or a digest, "
            "found null",
        ),
        (
            {"response": "", "verdicts": {"group": {"orders": [0.5, "x"]}}},
            "verdicts[][][1]: expected a number from 0 to 1, found str",
        ),
        (
            {"response": "", "nli": [{"premise": "p", "hypothesis": "h"}]},
            "nli[0].entailment: missing",
        ),
        ({"response": "", "similarity": [{"text": "t"}]}, "similarity[0].reference: missing"),
    ],
)
def test_invalid_rows_are_errors_with_path_and_message(row, message):
    for form in (row, json.dumps(row)):
        if form is row and not isinstance(row, dict):
            continue
        with pytest.raises(RowError) as caught:
            decode_row(form)
        assert str(caught.value) == message
        path, _, what = message.rpartition(": ")
        assert (caught.value.path, caught.value.message) == (path, what)


def test_a_span_is_two_numbers():
    row = {"response": "", "logprobs": {"full": [], "answer_span": [1]}}
    for form in (row, json.dumps(row)):
        with pytest.raises(RowError, match=r"^logprobs\.answer_span: expected array of length 2"):
            decode_row(form)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"response": "x"',
        "nonsense",
        b"\xff\xfe",
        '{"response": "x"} {}',
        '{"response": "x", "more": ' + "[" * 100_000,
    ],
)
def test_text_that_is_not_json(text):
    with pytest.raises(RowError) as caught:
        decode_row(text)
    assert str(caught.value).startswith("not JSON: ")
    assert caught.value.path == ""


@pytest.mark.parametrize(
    ("text", "kind", "path"),
    [
        ('{"response": "x", "logprobs": {"full": [-1, NaN]}}', EvidenceError, "logprobs.full[1]"),
        (
            '{"response": "x", "logprobs": {"full": [], "without": {"3": [-Infinity]}}}',
            EvidenceError,
            "logprobs.without.3[0]",
        ),
        (
            '{"response": "x", "nli": [{"premise": "", "hypothesis": "", "entailment": NaN}]}',
            EvidenceError,
            "nli[0].entailment",
        ),
        ('{"response": "x", "step": Infinity}', RowError, "step"),
        ('{"response": "x", "extra": {"a": [1, {"b": NaN}]}}', RowError, "extra.a[1].b"),
    ],
)
def test_nan_and_infinity_are_errors_with_a_path(text, kind, path):
    with pytest.raises(kind) as caught:
        decode_row(text)
    assert type(caught.value) is kind
    assert str(caught.value).startswith(f"{path}: not a finite number: ")


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("evidence", "path"),
    [
        ({"logprobs": {"full": [-1.0, None], "without": {}}}, "logprobs.full[1]"),
        ({"logprobs": {"full": [-1.0], "without": {"2": [None]}}}, "logprobs.without.2[0]"),
        ({"nli": [{"premise": "", "hypothesis": "", "entailment": None}]}, "nli[0].entailment"),
        ({"masked_logprobs": {"full": [[None]]}}, "masked_logprobs.full[0][0]"),
    ],
)
def test_nan_and_infinity_in_the_evidence_of_a_mapping_are_errors(evidence, path, number):
    def filled(value):
        if isinstance(value, dict):
            return {name: filled(each) for name, each in value.items()}
        if isinstance(value, list):
            return [filled(each) for each in value]
        return number if value is None else value

    row = {"response": "x", **filled(evidence)}
    with pytest.raises(EvidenceError) as caught:
        decode_row(row)
    assert str(caught.value) == f"{path}: not a finite number: {number}"


BAD_BYTE = "byte 0xe9 at position {} of the row is not UTF-8: convert the file to UTF-8"
HALF_PAIR = "half of a surrogate pair: write both halves, or remove it"


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        (b'{"response": "caf\xe9"}', "response", BAD_BYTE.format(18)),
        (b'{"response": "x", "more": [{"of": "caf\xe9"}]}', "more[0].of", BAD_BYTE.format(39)),
        (b'{"response": "x", "a": "\xe9", "a": 1}', "a", BAD_BYTE.format(25)),
        (b'{"response": "x", "caf\xe9": 1}', "", "in a field name, " + BAD_BYTE.format(23)),
        (b'{"response": "x", "a": {"\xe9": 1}}', "a", "in a field name, " + BAD_BYTE.format(26)),
        (b'{"response": "caf\xe9', "", "not JSON: " + BAD_BYTE.format(18)),
        (b'{"response": "\xed\xa0\x80"}', "response", "byte 0xed at position 15 of the row"),
        (b'{"response": "x", "nli": [{"premise": "\\ud800"}]}', "nli[0].premise", HALF_PAIR),
        ('{"response": "x", "more": "\\udc00 x"}', "more", HALF_PAIR),
        ('{"response": "x", "more": {"\\ud800": 1}}', "more", "in a field name, " + HALF_PAIR),
        ('{"response": "\ud800"}', "response", HALF_PAIR),
    ],
)
def test_invalid_unicode_is_an_error_with_a_path(text, path, message):
    with pytest.raises(RowError) as caught:
        decode_row(text)
    assert caught.value.path == path
    assert caught.value.message.startswith(message)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
FIELDS = st.sampled_from(sorted(Rollout.__struct_fields__))


def nested(inner):
    return inner | st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4)


@quick
@given(nested(nested(nested(LEAVES))))
def test_any_json_decodes_or_is_a_row_error(value):
    try:
        row = decode_row(json.dumps(value))
    except (RowError, EvidenceError):
        return
    assert isinstance(row, Rollout)
    assert decode_row(msgspec.json.encode(row)) == row


# --- the response -------------------------------------------------------------------------------


def test_the_last_assistant_message_is_the_response():
    chat = [
        Message("system", "s"),
        Message("assistant", "first"),
        Message("tool", "<answer>x"),
        Message("assistant", "second</s>"),
        Message("user", "u"),
    ]
    assert Rollout(response=chat).parsed.text == "second"
    assert Rollout(response=chat, response_prefix="<think>").parsed.text == "<think>second"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("x", "x"),
        (None, ""),
        ([], ""),
        (
            [
                {"type": "text", "text": "a"},
                {"type": "image", "url": "u"},
                {"type": "text", "text": "b"},
            ],
            "ab",
        ),
        ([{"type": "text"}, {"type": "text", "text": 7}], ""),
        ([{"type": "tool_result", "text": "x"}], ""),
    ],
)
def test_only_text_parts_of_a_message_count(content, text):
    assert Rollout(response=[Message("assistant", content)]).parsed.text == text


def test_messages_without_an_assistant_are_a_row_error():
    for chat in ([], [Message("user", "x")], [Message("tool", "x")]):
        with pytest.raises(
            RowError, match=r"^response: the messages contain no assistant message$"
        ):
            _ = Rollout(response=chat).parsed


def test_prefix_and_end_of_sequence():
    row = Rollout(response="a</think>b<|im_end|>", response_prefix="<think>")
    assert row.parsed.text == "<think>a</think>b"
    assert row.parsed.visible == "b"


# --- gold answers -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "gold"),
    [
        ("Paris", (("Paris",),)),
        (["Paris", "Lutetia"], (("Paris", "Lutetia"),)),
        ([["Paris", "Lutetia"], ["Rome"]], (("Paris", "Lutetia"), ("Rome",))),
        (1969, (("1969",),)),
        (3.5, (("3.5",),)),
        (True, (("yes",),)),
        ([True, False, 0, 1], (("yes", "no", "0", "1"),)),
        ([[True], [2]], (("yes",), ("2",))),
        (["", "Paris", " "], (("Paris",),)),
        (["!"], (("!",),)),
    ],
)
def test_gold_answers(answers, gold):
    assert Rollout(response="", answers=answers).gold == gold
    assert decode_row({"response": "", "answers": answers}).gold == gold


@pytest.mark.parametrize(
    ("answers", "kind", "message"),
    [
        (None, DataError, "answers: missing"),
        ([], DataError, "answers: contains no answer"),
        ("", DataError, "answers: contains no answer"),
        ([" ", ""], DataError, "answers: contains no answer"),
        ([[]], DataError, r"answers\[0\]: contains no answer"),
        ([["a"], [""]], DataError, r"answers\[1\]: contains no answer"),
        (
            ["a", ["b"]],
            RowError,
            "answers: must contain either aliases or lists of aliases, not both",
        ),
    ],
)
def test_rows_without_answers(answers, kind, message):
    with pytest.raises(kind, match=f"^{message}$"):
        _ = Rollout(response="", answers=answers).gold


def test_gold_is_normalized_once_for_rollouts_that_share_it():
    calls = []

    def counted(text):
        calls.append(text)
        return squad(text)

    forms = GoldForms(counted)
    for row in (Rollout(response="", answers=["The Who", "Who"]),) * 2:
        assert forms.of(row.gold[0]) == ("who", "who")
    assert calls == ["The Who", "Who"]


@pytest.mark.parametrize(
    ("rows", "gold"),
    [
        (10_000, lambda i: (f"{i}",)),
        (300, lambda i: tuple(f"{i} of {n}" for n in range(100))),
        (100, lambda i: (f"{i} " + "巴 黎黎" * 500,)),
        (5, lambda i: (f"{i}" * 1_200_000,)),
    ],
    ids=["short", "aliases", "tokens", "long"],
)
def test_memory_of_gold_forms_is_bounded(rows, gold):
    forms = GoldForms(squad)
    tracemalloc.start()
    try:
        for i in range(rows):
            forms.tokens_of(gold(i))
        memory, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert memory < 5_000_000
    assert len(pickle.dumps(forms)) < 200


def test_texts_of_numbers():
    assert [gold_text(v) for v in (True, False, 1, 1.5, "x")] == ["yes", "no", "1", "1.5", "x"]
    assert [canonical(v) for v in (7, "7", "07", " 7 ", "0", "00", "7a", "²", -1)] == [
        "7",
        "7",
        "7",
        "7",
        "0",
        "0",
        "7a",
        "²",
        "-1",
    ]


# --- documents ----------------------------------------------------------------------------------


def docs(*ids):
    return tuple(Document(text="x", id=i) for i in ids)


@pytest.mark.parametrize(
    ("ids", "labels"),
    [
        ((), ()),
        ((None, None), ("1", "2")),
        ((12, "7"), ("12", "7")),
        (("a", "b"), ("1", "2")),
        (("a", 5), ("1", "5")),
        (("007", None), ("7", "2")),
        ((0, 1), ("0", "1")),
        ((-1, "1.5"), ("1", "2")),
        (("²", None), ("1", "2")),
    ],
)
def test_labels(ids, labels):
    assert Rollout(response="", documents=docs(*ids)).labels == labels


@pytest.mark.parametrize(
    ("ids", "path"),
    [
        ((1, 1), r"documents\[1\]\.id"),
        ((2, None), r"documents\[1\]\.id"),
        (("a", "b", 1), r"documents\[2\]\.id"),
        (("1", "01"), r"documents\[1\]\.id"),
    ],
)
def test_equal_labels_are_an_error(ids, path):
    with pytest.raises(
        DataError, match=f"^{path}: two documents have the label [12]: give them different ids$"
    ):
        _ = Rollout(response="", documents=docs(*ids)).labels


def test_supporting_documents_by_id_or_label():
    row = Rollout(response="", documents=docs("a", 12, None), supporting=("a", "12", 3, 1))
    assert row.supporting_labels == ("1", "12", "3")
    assert Rollout(response="", supporting=()).supporting_labels == ()
    assert Rollout(response="", supporting=("07", "x")).supporting_labels == ("7", "x")
    with pytest.raises(DataError, match=r"^supporting: missing$"):
        _ = Rollout(response="").supporting_labels
    with pytest.raises(DataError) as caught:
        _ = Rollout(response="", documents=docs("a", 12), supporting=(1, 2)).supporting_labels
    assert str(caught.value) == "supporting[1]: document id 2 does not exist (documents: 1, 12)"


def test_documents_as_premises():
    assert Document(text="x", title="T").premise == "Title: T\nx"
    assert Document(text="x").premise == Document(text="x", title="").premise == "x"


def test_keys_of_groups():
    assert Rollout(response="", group=3, question="q").key == "3"
    assert Rollout(response="", question="q").key == "q"
    assert Rollout(response="").key is None


# --- evidence -----------------------------------------------------------------------------------

EVIDENCE = decode_row(FULL)


def test_existing_evidence():
    assert EVIDENCE.entailment(" p\n", "h ") == 0.5
    assert EVIDENCE.entailment("p", "H") is None
    assert EVIDENCE.similarity_to("t ", " r") == 0.5
    assert EVIDENCE.verdict("outcome") == 1
    assert EVIDENCE.verdict("reasoning") == 0
    assert EVIDENCE.verdict("accuracy") is None
    assert values_without(EVIDENCE, "4") == (-2.5,)
    assert values_without(EVIDENCE, "2") is None
    assert Rollout(response="").verdict("x") is values_without(Rollout(response=""), "1") is None


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan, math.inf])
def test_entailments_are_probabilities(p):
    item = Entailment(premise="p", hypothesis="h", entailment=p)
    row = Rollout(response="", nli=(Entailment(premise="a", hypothesis="b", entailment=0.0), item))
    with pytest.raises(
        EvidenceError, match=r"^nli\[1\]\.entailment: a probability must be between 0 and 1, fou"
    ):
        row.entailment("a", "b")


NEEDS = [
    (LogProbsNeed(("4",)), LogProbsNeed(("4", "2")), "logprobs"),
    (LogProbsNeed(()), LogProbsNeed(("9",)), "logprobs"),
    (MaskedAnswersNeed("rationale"), None, "masked_answers.rationale"),
    (MaskedLogProbsNeed("evidence"), None, "masked_logprobs.evidence"),
    (EntailmentNeed("p", "h"), EntailmentNeed("h", "p"), "nli"),
    (SimilarityNeed("t", "r"), SimilarityNeed("r", "t"), "similarity"),
    (VerdictNeed("reasoning"), VerdictNeed("accuracy"), "verdicts."),
]


@pytest.mark.parametrize(("met", "other", "path"), NEEDS)
def test_needs_that_a_row_meets(met, other, path):
    assert met.is_met(EVIDENCE)
    assert not met.is_met(Rollout(response=""))
    assert other is None or not other.is_met(EVIDENCE)
    error = (other or met).unmet()
    assert isinstance(error, DataError)
    assert error.path.startswith(path)


def test_a_need_whose_part_is_no_text_reads_the_whole_field():
    class Whole(Need):
        field_name = "verdicts"
        component = part = 1

    assert (Whole().part_name, Whole().path) == ("", "verdicts")
    assert Whole().parts({"a": 1}) == {"a": 1}


def test_errors_of_unmet_needs():
    answer = [
        str(need.unmet())
        for need in (
            LogProbsNeed(("1", "3")),
            MaskedAnswersNeed("evidence"),
            MaskedLogProbsNeed("full"),
            EntailmentNeed("a  b\nc", "x" * 80),
            SimilarityNeed("t", "r"),
            VerdictNeed("outcome"),
        )
    ]
    assert answer == [
        "logprobs: missing; add `full`, `without.1`, `without.3`, with one value per response "
        "token, or set the option model",
        "masked_answers.evidence: missing; add the answer from the masked context, or set the "
        "option model",
        "masked_logprobs.full: missing; add one list per gold alias, or set the option model",
        f"nli: no entry for premise 'a b c' and hypothesis '{'x' * 59}…'; add it, set the option "
        "nli to an entailment model, or set citation.judge_by=gold if the recipe has this setting",
        "similarity: no entry for text 't'; add it, or set the option similarity",
        "verdicts.outcome: missing; add the verdict of a judge (0 or 1), set the option judge, or "
        "choose a setting without a judge",
    ]


def test_evidence_can_be_taken_and_added():
    alone = EVIDENCE.evidence
    assert isinstance(alone, Evidence)
    assert not isinstance(alone, Rollout)
    bare = Rollout(response="x", verdicts={"a": 0}, nli=())
    whole = bare.with_evidence(alone)
    assert whole.evidence == alone
    assert (bare.verdicts, bare.response) == ({"a": 0}, "x")
    positions = whole.with_evidence(Evidence(similarity=()))
    assert (positions.similarity, positions.verdicts) == ((), alone.verdicts)


def test_cached_values_are_not_part_of_a_row():
    row = decode_row(FULL)
    fresh = decode_row(FULL)
    _ = (row.parsed, row.gold, row.labels, row.key, row.supporting_labels)
    assert row == fresh
    assert msgspec.json.encode(row) == msgspec.json.encode(fresh)
    copy = pickle.loads(pickle.dumps(row))  # noqa: S301
    assert copy == fresh
    assert copy.gold == row.gold
    changed = msgspec.structs.replace(row, response="other", answers="Rome")
    assert (changed.parsed.text, changed.gold) == ("<think>other", (("Rome",),))


def test_rows_are_immutable():
    with pytest.raises(AttributeError):
        EVIDENCE.response = "x"  # type: ignore[misc]
    for part in (
        Document(text="x"),
        Message("user", "x"),
        MaskedAnswers(),
        MaskedLogProbs(),
        Similarity(text="", reference="", similarity=0.0),
    ):
        with pytest.raises(AttributeError):
            setattr(part, part.__struct_fields__[0], "y")


@pytest.mark.parametrize("supports", [[], [True], [True, False, True]])
def test_supports_has_one_value_for_each_required_answer(supports):
    document = {"text": "x", "supports": supports}
    rollout = decode_row(
        {"response": "", "answers": [["a"], ["b"]], "documents": [{"text": "y"}, document]}
    )
    for read in (lambda: rollout.supported_gold, lambda: supported_answers(rollout)):
        with pytest.raises(DataError) as error:
            read()
        assert str(error.value) == (
            "documents[1].supports: one boolean per required answer: expected 2, "
            f"found {len(supports)}"
        )
