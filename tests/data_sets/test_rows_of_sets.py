"""Rows of each data set as gold data, and the problems of rows."""

from __future__ import annotations

import json

import msgspec
import pytest
from constructed_rows import ALCE, CRAG, TRUST_ALIGN
from hypothesis import given
from hypothesis import strategies as st

from rag_rewards.datasets.catalog import DATASETS, data_set
from rag_rewards.datasets.crag import CragRow, crag
from rag_rewards.datasets.gold import Gold, Problem, with_answers_found
from rag_rewards.datasets.gold_rows import read_gold
from rag_rewards.datasets.multihop import BEYOND, MISSING, supporting_paragraphs
from rag_rewards.datasets.read_options import ReadOptions
from rag_rewards.datasets.records import Records
from rag_rewards.errors import UsageError
from rag_rewards.preparation.suitability import suitability_problem
from rag_rewards.recipes import RECIPES, definition_of, recipe
from rag_rewards.rollout import Document
from rag_rewards.rows import decode_row


def golds(tmp_path, name, rows, **options):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return of_file(name, path, **options)


def of_file(name, path, **options):
    with Records(str(path)) as records:
        return [gold for _, gold in read_gold(data_set(name), records, ReadOptions(**options))]


FACTS = {
    "_id": "a",
    "question": "Who?",
    "answer": "Ann",
    "context": [["T1", ["One.", " Two."]], ["T2", ["Three."]], ["T3", [" Four."]]],
    "supporting_facts": [["T3", 0], ["T1", 1], ["T1", 0]],
    "type": "bridge",
    "level": "hard",
}


# --- HotpotQA and 2WikiMultiHopQA --------------------------------------------------------------


def test_supporting_sentences(tmp_path):
    [gold] = golds(tmp_path, "hotpotqa", [FACTS])
    assert gold.supporting == (0, 2)
    assert gold.answerable is True
    assert gold.answers == (("Ann",),)
    assert [document.text for document in gold.documents] == ["One. Two.", "Three.", "Four."]
    assert gold.fields()["supporting"] == ["1", "3"]
    [wiki] = golds(tmp_path, "2wikimultihopqa", [FACTS | {"evidences": []}])
    assert wiki.documents[0].text == "One. Two."


@pytest.mark.parametrize(
    ("changes", "reason", "detail"),
    [
        ({"supporting_facts": [["T1", 0], ["T9", 0], ["T8", 0]]}, MISSING, "T9; T8"),
        ({"supporting_facts": [["T2", 1]]}, BEYOND, "T2: sentence 1 of 1"),
        ({"supporting_facts": [["T2", -1]]}, BEYOND, "T2: sentence -1 of 1"),
        ({"supporting_facts": [["t1", 0]]}, MISSING, "t1"),
    ],
)
def test_facts_that_do_not_match_one_paragraph(tmp_path, changes, reason, detail):
    [gold] = golds(tmp_path, "hotpotqa", [FACTS | changes])
    assert gold.supporting is None
    assert gold.unsupported == Problem(reason, detail)
    assert gold.answerable is None
    assert suitability_problem(gold, definition_of("arena")) == Problem(reason, detail)
    assert suitability_problem(gold, definition_of("lear")) is None


@pytest.mark.parametrize("title", ["T1", "T2", "T3"])
def test_a_repeated_title_keeps_its_first_match(tmp_path, title):
    context = [*FACTS["context"], [title, ["Again."]]]
    [gold] = golds(tmp_path, "hotpotqa", [FACTS | {"context": context}])
    assert gold.supporting == (0, 2)


def test_a_sentence_belongs_to_the_first_paragraph_that_has_it():
    paragraphs = [("T", ["a"]), ("T", ["b", "c"]), ("T", ["d", "e", "f"])]
    assert supporting_paragraphs(paragraphs, [("T", 1)]) == (1,)
    assert supporting_paragraphs(paragraphs, [("T", 2), ("T", 0)]) == (0, 2)
    assert supporting_paragraphs(paragraphs, [("T", 3)]).detail == "T: sentence 3 of 3"


def first_match(paragraphs, facts):
    """The data processing of ARENA: for each fact, the first paragraph with title and sentence."""
    return tuple(
        sorted(
            {
                next(
                    at
                    for at, (title, sentences) in enumerate(paragraphs)
                    if title == fact and number < len(sentences)
                )
                for fact, number in facts
            }
        )
    )


@given(st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.just("x"), max_size=3)), max_size=6))
def test_supporting_paragraphs_against_a_direct_implementation(paragraphs):
    facts = [(title, n) for title, sentences in paragraphs for n in range(len(sentences))]
    assert supporting_paragraphs(paragraphs, facts[::2]) == first_match(paragraphs, facts[::2])


def test_rows_as_columns_of_hugging_face(tmp_path):
    columns = {
        "id": "a",
        "question": "Who?",
        "answer": "Ann",
        "context": {
            "title": [title for title, _ in FACTS["context"]],
            "sentences": [sentences for _, sentences in FACTS["context"]],
        },
        "supporting_facts": {"title": ["T3", "T1", "T1"], "sent_id": [0, 1, 0]},
        "type": "bridge",
        "level": "hard",
    }
    expected = golds(tmp_path, "hotpotqa", [FACTS])
    assert golds(tmp_path, "hotpotqa", [columns]) == expected
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.Table.from_pylist([columns]), tmp_path / "train.parquet")
    assert of_file("hotpotqa", tmp_path / "train.parquet") == expected


def test_a_supporting_document_that_is_not_among_the_first(tmp_path):
    [gold] = golds(tmp_path, "hotpotqa", [FACTS], top=2)
    assert gold.unsupported == Problem(MISSING, "T3")


def test_a_full_wiki_row_without_its_gold_documents(shared):
    [gold] = of_file("hotpotqa", shared / "data/hotpotqa/fullwiki_dev_row_missing_gold.jsonl")
    assert gold.unsupported == Problem(MISSING, "Scott Derrickson; Ed Wood")


def test_real_rows_against_the_mapping_of_another_project(shared, tmp_path):
    """The other project marked the supporting paragraphs of 29 + 20 rows."""
    for name in ("hotpotqa", "2wikimultihopqa"):
        path = shared / f"data/ircot_multihop/{name}_gold_plus_3_distractors.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        native = [as_facts(name, row) for row in rows]
        converted = golds(tmp_path, name, native)
        checked = 0
        for row, gold in zip(rows, converted, strict=True):
            if isinstance(gold, Gold) and gold.supporting is not None:
                marked = [at for at, yes in enumerate(row["is_supporting"]) if yes]
                assert list(gold.supporting) == marked, row["qid"]
                checked += 1
        assert checked == len(rows)


def as_facts(name, row):
    """Return a derived row in the published form, with one sentence per paragraph."""
    return {
        "_id": row["qid"],
        "question": row["question"],
        "answer": row["answer"],
        "context": [[p["title"], [p["paragraph_text"]]] for p in row["paragraphs"]],
        "supporting_facts": [[title, 0] for title in row["gold_titles"]],
    } | ({"evidences": []} if name == "2wikimultihopqa" else {"level": "hard"})


# --- MuSiQue -----------------------------------------------------------------------------------

MUSIQUE = {
    "id": "2hop__1_2",
    "question": "Who?",
    "answer": "Ann",
    "answer_aliases": ["Anna", "Ann"],
    "answerable": True,
    "paragraphs": [
        {"idx": 0, "title": "T", "paragraph_text": "One.", "is_supporting": False},
        {"idx": 1, "title": "T", "paragraph_text": "Two.", "is_supporting": True},
    ],
}


def test_musique(tmp_path):
    twin = MUSIQUE | {"answerable": False, "paragraphs": MUSIQUE["paragraphs"][:1]}
    gold, unanswerable = golds(tmp_path, "musique", [MUSIQUE, twin])
    assert gold.supporting == (1,)
    assert gold.answers == (("Ann", "Anna"),)
    assert unanswerable.answerable is False
    assert unanswerable.id == "2hop__1_2-unanswerable"
    assert golds(tmp_path, "musique", [MUSIQUE], top=1)[0].unsupported


def test_a_real_row_of_musique(shared):
    [real] = of_file("musique", shared / "data/musique/musique_ans_row.json")
    assert real.supporting == (4, 17)
    assert len(real.documents) == 20
    assert of_file("musique", shared / "data/musique/musique_ans_row.json", top=5)[0].unsupported


# --- ASQA, QAMPARI, ELI5, ExpertQA -------------------------------------------------------------


ANSWER_KINDS = [("asqa", "short"), ("qampari", "list"), ("eli5", "claims")]


@pytest.mark.parametrize(("name", "kind"), ANSWER_KINDS)
def test_answers_found(tmp_path, name, kind):
    """The documents that contain an answer are supporting; without one, refusing is right."""
    first, second = golds(tmp_path, name, TRUST_ALIGN[name])
    assert (first.answerable, first.supporting, first.answer_kind) == (False, (), kind)
    assert (second.answerable, second.supporting, second.answer_kind) == (True, (2,), kind)
    assert [set(document.supports) for document in second.documents] == [{False}] * 2 + [{True}]
    for gold in (first, second):
        assert suitability_problem(gold, definition_of("ground-grpo")) is None
    stage1 = definition_of("ground-grpo-stage1")
    assert suitability_problem(first, stage1).reason.startswith("unanswerable")
    assert suitability_problem(second, stage1) is None
    assert golds(tmp_path, name, TRUST_ALIGN[name], top=2)[1].answerable is False


def test_gold_answers_of_alce(tmp_path):
    [gold] = golds(tmp_path, "asqa", [ALCE["asqa"]])
    assert gold.answers == (("Rey", "Ann Rey"), ("Lowe",))
    assert gold.answerable is None
    assert suitability_problem(gold, definition_of("ground-grpo")) == Problem(
        "unknown whether the documents contain an answer", "the documents have no answers_found"
    )
    [claims] = golds(tmp_path, "eli5", [ALCE["eli5"]])
    assert claims.answers == (("Snow scatters light.",), ("Light has all colors.",))
    assert claims.answer_kind == "claims"


def test_expertqa_has_the_rows_of_eli5_with_listed_claims(tmp_path):
    """The form of declare-lab/trust-align@34d0543, docs/concepts/datasets.md."""

    def document(text, *found):
        return {"title": "T", "text": text, "answers_found": found, "rec_score": sum(found) / 2}

    row = {
        "question": "Which signs show a transformation?",
        "answers": [["Lymph nodes grow fast."], ["A biopsy shows it."]],
        "docs": [document("a", 0, 0), document("b", 0, 1), *[document("c", 0, 0)] * 5],
    }
    [gold] = golds(tmp_path, "expertqa", [row], top=5)
    assert len(gold.documents) == 5
    assert (gold.answer_kind, gold.answerable, gold.supporting) == ("claims", True, (1,))
    assert gold.answers == (("Lymph nodes grow fast.",), ("A biopsy shows it.",))
    assert gold.documents[1].supports == (False, True)
    assert suitability_problem(gold, definition_of("ground-grpo")) is None
    with pytest.raises(UsageError, match="looks like eli5, not expertqa"):
        golds(tmp_path, "expertqa", [row | {"claims": ["x"]}])


def test_answers_found_of_a_wrong_length(tmp_path):
    row = {"question": "?", "answers": [["x"]], "docs": [{"text": "t", "answers_found": [1, 0]}]}
    [problem] = golds(tmp_path, "qampari", [row])
    assert problem.detail == "docs[0]: 2 for 1 answers"


def test_answers_found_that_some_documents_lack(tmp_path):
    docs = [{"text": "t", "answers_found": [1]}, {"text": "u"}]
    [gold] = golds(tmp_path, "qampari", [{"question": "?", "answers": [["x"]], "docs": docs}])
    assert gold.answerable is None
    assert gold.fields()["documents"][0]["supports"] is None


# --- CRAG --------------------------------------------------------------------------------------


def test_pages_of_crag(tmp_path):
    [gold] = golds(tmp_path, "crag", CRAG[:1])
    assert gold.query_time == "03/01/2024, 10:00:00 PT"
    assert gold.answers == (("Mount Alba",),)
    # A page that occurs twice is one document, and snippets lose their markup.
    assert [document.text for document in gold.documents] == ["A page about Mount Alba.", "No."]
    many = [{"page_name": f"P{n}", "page_snippet": f"Snippet {n}."} for n in range(50)]
    [fifty] = golds(tmp_path, "crag", [CRAG[0] | {"search_results": many}])
    assert len(fifty.documents) == 50
    [problem] = golds(tmp_path, "crag", [CRAG[0] | {"answer": "nan"}])
    assert problem == Problem("no gold answer", "the answer is 'nan'")
    assert suitability_problem(gold, definition_of("truthrl")) is None
    refused = suitability_problem(gold, definition_of("arena"))
    assert refused.reason.startswith("CRAG does not annotate")


def test_real_rows_of_crag(shared):
    rows = of_file("crag", shared / "data/crag/dev_data_sample10.jsonl")
    assert rows[0].query_time == "02/28/2024, 10:04:54 PT"
    assert len(rows[0].documents) == 4  # five results, two of them the same page
    assert rows[7] == Problem("no gold answer", "the answer is 'nan'")
    assert not any("<strong>" in d.text for g in rows if isinstance(g, Gold) for d in g.documents)
    # A page without a snippet has its own text.
    assert "McIlroy" in rows[4].documents[0].text
    assert suitability_problem(rows[0], definition_of("truthrl")) is None
    assert suitability_problem(rows[0], definition_of("arena")).reason.startswith(
        "CRAG does not annotate"
    )


CRAG_ROW = {
    "query": "How many?",
    "search_results": [{"page_name": "P", "page_snippet": "s"}],
    "answer": "5",
}


@pytest.mark.parametrize("name", ["alternative_answers", "alt_ans"])
def test_alternative_answers_of_crag(name):
    def gold(alternatives):
        return crag(msgspec.convert(CRAG_ROW | {name: alternatives}, CragRow))

    assert gold(["five"]).answers == gold('["five"]').answers == (("5", "five"),)
    assert gold("[]").answers == gold("").answers == gold(None).answers == (("5",),)
    # TruthRL's evaluation reads text that is no list as one answer.
    assert gold("five").answers == gold("['five']").answers == (("5", "five"),)
    assert gold([6.5, "five"]).answers == (("5", "6.5", "five"),)
    for text in ("[five]", "[", "['x'", "[{}]", "[['x']]", "[" + "-" * 9_000 + "1]", "[" * 9_000):
        assert gold(text) == Problem(f"{name} is not a list", text[:80])
    assert gold("['" + "x" * 10_000 + "']").reason == f"{name} is not a list"


def test_both_fields_of_alternative_answers_of_crag():
    both = {"alternative_answers": ["five"], "alt_ans": ["5", "cinq"]}
    assert crag(msgspec.convert(CRAG_ROW | both, CragRow)).answers == (("5", "five", "cinq"),)


@pytest.mark.parametrize("name", ["alternative_answers", "alt_ans"])
def test_alternative_answers_of_crag_are_right_for_truthrl(tmp_path, name):
    [gold] = golds(tmp_path, "crag", [CRAG_ROW | {name: ["five"]}])
    truthrl = recipe("truthrl", {"verifier": "exact"})
    rows = [decode_row(gold.fields() | {"response": rf"\boxed{{{x}}}"}) for x in ("five", "six")]
    assert [score.value for score in truthrl(rows)] == [1.0, -1.0]


def test_the_text_of_whole_pages(tmp_path):
    page = {"page_name": "P", "page_snippet": "s", "page_result": "<p>one<p>two<script>x</script>"}
    row = CRAG_ROW | {"search_results": [page, page | {"page_snippet": ""}, {"page_snippet": "t"}]}
    [snippets] = golds(tmp_path, "crag", [row])
    [pages] = golds(tmp_path, "crag", [row], pages="full")
    assert [document.text for document in snippets.documents] == ["s", "one two", "t"]
    assert [document.text for document in pages.documents] == ["one\n\ntwo", "t"]


CHUNKS = [
    {"chunk_text": "low", "bge_score": 1.9, "oracle_score": 5},
    {"chunk_text": "high", "bge_score": 2.0, "oracle_score": 0},
    {"chunk_text": "irrelevant", "bge_score": None, "oracle_score": 2},
    {"chunk_text": "relevant", "oracle_score": 3},
    {"chunk_text": "unknown", "page_url": "https://x"},
    {"chunk_text": "high", "bge_score": 7},
]


def test_retrieved_chunks_of_truthrl(tmp_path):
    row = {"query": "?", "answer": "x", "retrieved_chunks": CHUNKS, "out_of_knowledge": True}
    [gold] = golds(tmp_path, "crag", [row | {"alt_ans": "['y']", "search_results": []}])
    assert [document.text for document in gold.documents] == ["high", "relevant", "unknown"]
    assert (gold.answers, gold.out_of_knowledge) == ((("x", "y"),), True)
    [first] = golds(tmp_path, "crag", [row], top=1)
    assert [document.text for document in first.documents] == ["high"]
    long = [{"chunk_text": text * 40_000} for text in "abc"]
    [gold] = golds(tmp_path, "crag", [row | {"retrieved_chunks": long}])
    assert len(gold.documents) == 2


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"retrieved_chunks": ["text"]}, "$.retrieved_chunks[0]"),
        ({"retrieved_chunks": [{"text": "x"}]}, "chunk_text"),
        ({"search_results": [{"page_result": 7}]}, "$.search_results[0].page_result"),
    ],
)
def test_broken_rows_of_crag(tmp_path, changes, detail):
    [first, problem] = golds(tmp_path, "crag", [CRAG_ROW, {"query": "?", "answer": "x", **changes}])
    assert isinstance(first, Gold)
    assert problem.reason == "broken row"
    assert detail in problem.detail


# --- retrieved passages ------------------------------------------------------------------------


def test_gold_passages_take_precedence_over_passages_with_an_answer(tmp_path):
    def passages(*marks):
        ctxs = [{"id": "wiki:7", "title": "T", "text": f"t{i}"} | m for i, m in enumerate(marks)]
        [gold] = golds(tmp_path, "nq", [{"question": "?", "answers": ["a"], "ctxs": ctxs}])
        return gold

    answer, no_answer = {"has_answer": True}, {"has_answer": False}
    assert passages(no_answer, answer, answer).supporting == (1, 2)
    assert passages(no_answer, answer, answer | {"isgold": True}).supporting == (2,)
    assert passages({"hasanswer": True}).supporting == (0,)
    none = passages(no_answer, no_answer)
    assert (none.supporting, none.answerable) == ((), False)
    unknown = passages({}, answer)
    assert (unknown.supporting, unknown.answerable) == (None, None)


def test_the_oracle_file(shared):
    rows = of_file("nq", shared / "data/nq/nq_open_oracle_first25.jsonl")
    assert len(rows) == 25
    assert all(row.supporting == (0,) and row.answerable for row in rows)
    assert rows[0].id == "nq-1"


def test_hotpotqa_with_retrieved_passages(tmp_path):
    """LEAR, section 4.1: passages that DPR retrieved, in place of those of the data set."""
    passages = [{"title": "T", "text": f"t{i}", "has_answer": i == 3} for i in range(100)]
    row = {"question": "Were both born in 1900?", "answers": ["yes"], "ctxs": passages}
    [gold] = golds(tmp_path, "retrieved", [row], top=data_set("retrieved").top)
    assert (len(gold.documents), gold.supporting, gold.answerable) == (5, (3,), True)
    with pytest.raises(UsageError, match="looks like nq or triviaqa or retrieved, not hotpotqa"):
        golds(tmp_path, "hotpotqa", [row])


def test_a_training_set_for_retrievers_is_not_ranked(tmp_path):
    def passage(text):
        return {"title": "T", "text": text, "score": 1, "passage_id": "9"}

    row = {
        "dataset": "nq_train_psgs_w100",
        "question": "?",
        "answers": ["a"],
        "positive_ctxs": [passage("p"), passage("q")],
        "negative_ctxs": [passage("n")],
        "hard_negative_ctxs": [passage("h1"), passage("h2")],
    }
    [gold] = golds(tmp_path, "triviaqa", [row])
    assert [document.text for document in gold.documents] == ["p", "h1", "h2", "n"]
    assert gold.supporting == (0,)
    assert not gold.ranked


# --- rows of this package ----------------------------------------------------------------------


def test_documents_of_package_rows_are_renumbered(tmp_path):
    row = {
        "id": 7,
        "question": "Q",
        "documents": [{"id": 12, "text": "a"}, {"id": "x", "text": "b", "title": "B"}],
        "supporting": ["x"],
        "answers": "yes",
        "response": "<answer>old</answer>",
        "reward": 3.0,
    }
    [gold] = golds(tmp_path, "rows", [row])
    fields = gold.fields(supports=False)
    assert fields["documents"] == [
        {"id": "1", "title": "", "text": "a"},
        {"id": "2", "title": "B", "text": "b"},
    ]
    assert (fields["id"], fields["supporting"], fields["answers"]) == ("7", ["2"], [["yes"]])


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"supporting": [3]}, "supporting[0]: document id 3 does not exist (documents: 1)"),
        ({"answers": []}, "answers: contains no answer"),
        ({"answers": None}, "answers: missing"),
        ({"documents": [{"title": "t"}]}, "text"),
        ({"answer_kind": "prose"}, "prose"),
    ],
)
def test_broken_package_rows(tmp_path, changes, detail):
    row = {"question": "Q", "documents": [{"text": "a"}], "answers": ["x"]}
    [problem] = golds(tmp_path, "rows", [row | changes])
    assert problem.reason == "broken row"
    assert detail in problem.detail


# --- all data sets -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("hotpotqa", FACTS | {"question": 7}),
        ("hotpotqa", FACTS | {"context": [["T1"]]}),
        ("hotpotqa", FACTS | {"supporting_facts": [["T1", "0"]]}),
        ("musique", MUSIQUE | {"paragraphs": [{"title": "T", "paragraph_text": "x"}]}),
        ("qampari", {"question": "?", "docs": [{"title": "T"}], "answers": [["x"]]}),
    ],
)
def test_a_row_that_does_not_decode_is_broken(tmp_path, name, row):
    [problem] = golds(tmp_path, name, [row])
    assert problem.reason == "broken row"
    assert "$" in problem.detail or "missing required field" in problem.detail


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"answer": " "}, "no gold answer"),
        ({"question": ""}, "no question"),
        ({"context": []}, "no documents"),
    ],
)
def test_rows_without_question_documents_or_answer(tmp_path, changes, reason):
    assert golds(tmp_path, "hotpotqa", [FACTS | changes]) == [Problem(reason)]


REAL = {
    "hotpotqa": "hotpotqa/distractor_row_trimmed.json",
    "2wikimultihopqa": "2wikimultihopqa/rows.json",
    "musique": "musique/musique_ans_row.json",
    "asqa": "alce/asqa_eval_row_docs_truncated.jsonl",
    "eli5": "alce/eli5_eval_row_docs_truncated.jsonl",
    "crag": "crag/dev_data_sample10.jsonl",
    "nq": "nq/nq_open_oracle_first25.jsonl",
}


@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.parametrize("actual", REAL)
def test_a_file_of_another_data_set_is_refused(shared, name, actual):
    path = shared / "data" / REAL[actual]
    if name == actual or {name, actual} < {"nq", "triviaqa", "retrieved"}:
        assert any(isinstance(gold, Gold) for gold in of_file(name, path))
        return
    with pytest.raises(UsageError, match=f"looks like {actual}(?: or .*)?, not {name}: its rows"):
        of_file(name, path)


@pytest.mark.parametrize(
    ("name", "file", "message"),
    [
        ("triviaqa", "triviaqa/rc_wikipedia_dev_dummy.json", "TriviaQA's original form.*DPR"),
        ("eli5", "eli5/kilt_eli5_dev_dummy.jsonl", "KILT's form"),
        ("nq", "nq/flashrag_nq_test_17.jsonl", "questions without documents"),
        ("hotpotqa", "search_r1/corpus_sample.jsonl", "a corpus without questions"),
    ],
)
def test_files_without_documents_are_refused(shared, name, file, message):
    with pytest.raises(UsageError, match=message):
        of_file(name, shared / "data" / file)


def test_an_unknown_data_set_suggests_a_similar_name():
    with pytest.raises(UsageError, match="hotpotqa"):
        data_set("hotpotQA")


# --- find answers in documents -----------------------------------------------------------------


def test_answers_are_whole_words():
    gold = Gold(
        question="?",
        documents=(Document(text="The Seine, in Paris."), Document(text="Parisian")),
        answers=(("Paris", "Lutetia"), ("seine",), ("yes",)),
    )
    annotated = with_answers_found(gold)
    assert [document.supports for document in annotated.documents] == [
        (True, True, False),
        (False, False, False),
    ]
    assert (annotated.supporting, annotated.answerable) == ((0,), True)
    marked = Gold(question="?", documents=gold.documents, answers=gold.answers, supporting=(1,))
    assert with_answers_found(marked) is marked


def test_claims_are_not_searched_and_require_entailment(shared):
    [gold] = of_file("eli5", shared / "data/alce/eli5_eval_row_docs_truncated.jsonl")
    assert with_answers_found(gold) is gold
    unable = {
        name for name in RECIPES if "claims" in str(suitability_problem(gold, definition_of(name)))
    }
    without_answers = {"ctrl-rag-clr", "binary-rar", "rubric", "ruler", "dr-tulu"}
    assert unable == set(RECIPES) - {"ground-grpo", "ground-grpo-stage1"} - without_answers
