"""RAGQALeaderboard, PRGB and PubMedQA: rows with the fields that the projects' loaders read."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from itertools import product

import msgspec
import pytest
from constructed_rows import PRGB, PUBMED, RAGQA, TEXTS
from growth import assert_linear
from hypothesis import given
from hypothesis import strategies as st

from rag_rewards.cli import main
from rag_rewards.datasets.catalog import DATASETS, data_set
from rag_rewards.datasets.document_pool import DocumentPool
from rag_rewards.datasets.gold import Gold, Problem
from rag_rewards.datasets.gold_rows import read_gold
from rag_rewards.datasets.prgb import (
    LARGEST,
    LARGEST_DOCUMENT,
    LONGEST,
    NOISE,
    PrgbRow,
    prgb,
    required_answers,
)
from rag_rewards.datasets.read_options import ReadOptions
from rag_rewards.datasets.records import Records
from rag_rewards.errors import OptionError, UsageError
from rag_rewards.preparation.suitability import suitability_problem
from rag_rewards.recipes import definition_of, recipe
from rag_rewards.rows import decode_row


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(name, path, **options):
    with Records(str(path)) as records:
        return [gold for _, gold in read_gold(data_set(name), records, ReadOptions(**options))]


def run(*words):
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code or 0


# --- RAGQALeaderboard --------------------------------------------------------------------------


@pytest.fixture
def pool_file(tmp_path):
    path = tmp_path / "documents_pool.json"
    path.write_text(json.dumps(TEXTS, ensure_ascii=False))
    return path


def test_ragqa(tmp_path, pool_file):
    path = write(tmp_path / "musique.jsonl", [RAGQA, RAGQA | {"id": "2", "ground_truth": "Rhône"}])
    with DocumentPool(str(pool_file)) as pool:
        first, second = read("ragqa", path, pool=pool)
        assert [document.text for document in first.documents[:2]] == ["Text 7.", "Text 3."]
        assert len({document.text for document in first.documents}) == 30
        assert (first.supporting, first.answerable, first.ranked) == ((0, 1), True, False)
        assert first.answers == (("Seine", "the Seine"),)
        assert second.answers == (("Rhône",),)
        # The sample of the other documents depends on the question and on the seed.
        assert first.documents != second.documents
        assert read("ragqa", path, pool=pool) == [first, second]
        assert read("ragqa", path, pool=pool, seed=1)[0].documents != first.documents
        assert len(read("ragqa", path, pool=pool, top=0)[0].documents) == 52
        assert len(read("ragqa", path, pool=pool, top=1)[0].documents) == 2


def test_the_documents_of_ragqa_are_sampled_uniformly(tmp_path, pool_file):
    path = write(tmp_path / "rows.jsonl", [RAGQA | {"id": n} for n in range(400)])
    with DocumentPool(str(pool_file)) as pool:
        counts = Counter(
            d.text for gold in read("ragqa", path, pool=pool, top=27) for d in gold.documents[2:]
        )
    assert len(counts) == 50
    assert all(150 < count < 250 for count in counts.values())  # the mean is 200, the deviation 10


def test_ragqa_without_the_text_of_a_document(tmp_path, pool_file):
    path = write(tmp_path / "rows.jsonl", [RAGQA | {"golden_doc": ["x"]}])
    with DocumentPool(str(pool_file)) as pool:
        assert read("ragqa", path, pool=pool) == [
            Problem("a document is not in the document pool", "x")
        ]
    with pytest.raises(OptionError, match="set document_pool to its file"):
        read("ragqa", path)
    [gold] = read("ragqa", path, requires_documents=False)
    assert gold.documents == gold.supporting == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": "x", "b": 7}', "document 'b' must be text, found int"),
        (
            '{"a": "x", "b": "y',
            "is incomplete: it ends after 1 complete documents. Download it again",
        ),
        ('{"a": "\xff"}', "is not UTF-8 text .*: convert it to UTF-8"),
        ("nonsense", "is not a JSON object"),
        ('["a"]', "is not a JSON object"),
        ('{"a": "x"} {"b": "y"}', "is not JSON: Extra data"),
    ],
)
def test_a_broken_document_pool(tmp_path, text, message):
    path = tmp_path / "pool.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=message):
        DocumentPool(str(path))
    with pytest.raises(UsageError, match=r"cannot read .*: No such file"):
        DocumentPool(str(tmp_path / "none"))


def test_a_compressed_document_pool(tmp_path, pool_file):
    packed = tmp_path / "pool.json.gz"
    packed.write_bytes(gzip.compress(pool_file.read_bytes()))
    with DocumentPool(str(packed)) as pool:
        assert pool.text("7") == TEXTS["7"]
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(UsageError, match=r"pool\.json\.gz is cut off: .*; download it again"):
        DocumentPool(str(packed))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no full device")
@pytest.mark.parametrize("size", [1, 100_000])
def test_the_texts_of_a_document_pool_on_a_full_disk(tmp_path, monkeypatch, size):
    path = tmp_path / "pool.json"
    path.write_text(json.dumps({"a": "x" * size}))
    full = open("/dev/full", "w+b")  # noqa: SIM115 (closed by the pool)
    monkeypatch.setattr("tempfile.TemporaryFile", lambda: full)
    with (
        pytest.raises(UsageError, match=r"No space left on device.*set TMPDIR"),
        DocumentPool(str(path)) as pool,
    ):
        pool.text("a")


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="no file that cannot be read")
def test_a_document_pool_that_cannot_be_read():
    with pytest.raises(UsageError, match="cannot read /proc/self/mem: Input/output error"):
        DocumentPool("/proc/self/mem")


def test_prepare_ragqa(tmp_path, pool_file, capsys):
    path = write(tmp_path / "rows.jsonl", [RAGQA])
    out = tmp_path / "out.jsonl"
    words = ("prepare", "ragqa", path, "-o", out, "-r", "ctrl-rag", "-t", "none")
    assert run(*words) == 2
    assert "set --document-pool to its file documents_pool.json" in capsys.readouterr().err
    assert run(*words, "--document-pool", pool_file) == 0
    row = json.loads(out.read_text("utf-8"))
    texts = {document["id"]: document["text"] for document in row["documents"]}
    assert len(texts) == 30
    assert {texts[name] for name in row["supporting"]} == {"Text 3.", "Text 7."}
    assert row["supporting"] != ["1", "2"]  # the documents are shuffled
    first = out.read_bytes()
    assert run(*words, "--document-pool", pool_file) == 0
    assert out.read_bytes() == first
    assert run("prepare", "nq", path, "-o", out, "-r", "lear", "--document-pool", pool_file) == 2
    assert "--document-pool is for ragqa, not for nq" in capsys.readouterr().err
    assert run(*words, "--prompt", "closed-book") == 0
    assert "documents" not in json.loads(out.read_text("utf-8"))


# --- PRGB --------------------------------------------------------------------------------------


def of_prgb(changes=(), **options):
    return prgb(msgspec.convert(PRGB | dict(changes), PrgbRow), ReadOptions(**options))


def test_prgb():
    golds = {gold.id: gold for gold in (of_prgb(seed=seed) for seed in range(4))}
    assert sorted(golds) == ["combination_v2-12-0", "combination_v2-12-1"]
    mars, venus = (golds[name] for name in sorted(golds))
    assert [d.text for d in mars.documents[:2]] == [
        "The moon of Mars is large.",
        "Mars is far from the sun.",
    ]
    assert (mars.answers, venus.answers) == ((("Mars", "the red planet"),), (("Venus",),))
    assert (mars.supporting, mars.ranked) == ((0, 1), False)
    levels = Counter(document.text.split()[0] for document in mars.documents[2:])
    assert levels == {"one": 4, "two": 2, "three": 1}
    assert mars.source_fields == {"type": "combination", "question_type": "combination_v2"}
    assert sum(NOISE.values()) == 9  # with one supporting document, the 10 documents of CTRL-RAG


def test_consecutive_seeds_choose_different_variants():
    item = {"placeholders": [{"<P>": str(n)} for n in range(20)], "answer": list(range(20))}
    golds = [of_prgb({"placeholder_item": item}, seed=seed) for seed in range(20)]
    assert sorted(int(gold.answers[0][0]) for gold in golds) == list(range(20))


def test_types_of_prgb():
    kinds = {
        name: of_prgb({"id": f"{name}-1"}).source_fields["type"]
        for name in ("filter", "deductive_v2")
    }
    assert kinds == {"filter": "filter", "deductive_v2": "infer"}


def test_the_documents_of_prgb():
    assert len(of_prgb(top=3).documents) == 3
    assert len(of_prgb(top=1).documents) == 2
    # Values are inserted in the order of the placeholders, as in the loader.
    chained = {"placeholders": [{"<P>": "<S>!", "<S>": "x"}], "answer": ["x"]}
    assert of_prgb({"placeholder_item": chained}).documents[0].text == "The moon of x! is large."


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ({"placeholders": [], "answer": []}, "no gold answer"),
        ({"placeholders": [{}], "answer": []}, "the placeholders and the answers differ in number"),
        ({"placeholders": [{}], "answer": ["a &"]}, "the answer is not an expression"),
        (
            {"placeholders": [{"a": "bb" * 999, "b": "cc" * 999}], "answer": ["x"]},
            "a document is too long with the values of its placeholders",
        ),
    ],
)
def test_problems_of_prgb(item, reason):
    row = {"placeholder_item": item, "golden_doc": ["a" * 999]}
    problem = of_prgb(row)
    assert isinstance(problem, Problem)
    assert problem.reason == reason


def test_growing_documents_are_refused_before_they_grow():
    values = {chr(97 + n): chr(98 + n) * 10 for n in range(25)}
    item = {"placeholders": [values], "answer": ["x"]}
    problem = of_prgb({"placeholder_item": item, "golden_doc": ["a"]})
    assert problem.detail == f"golden_doc[0]: more than {LARGEST_DOCUMENT:,} characters"


# --- answers that are expressions --------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "answers"),
    [
        (" Seine ", (("Seine",),)),
        ("a & b", (("a",), ("b",))),
        ("a|b | c", (("a", "b", "c"),)),
        ("a & (b | c)", (("a",), ("b", "c"))),
        ("a | b & c", (("a", "b"), ("a", "c"))),
        ("(a | b) | a", (("a", "b"),)),
        ("New York & St. John's", (("New York",), ("St. John's",))),
        # As in PRGB's evaluation: only the first part counts, and parentheses need no partner.
        ("Paris (France)", (("Paris",),)),
        ("((a) & b", (("a",), ("b",))),
        ("a) & b", (("a",), ("b",))),
        ("", ()),
    ],
)
def test_required_answers(expression, answers):
    assert required_answers(expression) == answers


@pytest.mark.parametrize("expression", ["&", "a |", "a & | b", "| a", "(&)"])
def test_texts_that_are_no_expression(expression):
    assert required_answers(expression).reason == "the answer is not an expression"


EXPRESSIONS = st.recursive(
    st.sampled_from("pqrs"),
    lambda inner: st.tuples(inner, st.sampled_from("&|"), inner),
    max_leaves=8,
)


def text_of(tree):
    return tree if isinstance(tree, str) else f"({text_of(tree[0])} {tree[1]} {text_of(tree[2])})"


def value_of(tree, true):
    if isinstance(tree, str):
        return tree in true
    left, operator, right = tree
    values = (value_of(left, true), value_of(right, true))
    return all(values) if operator == "&" else any(values)


@given(EXPRESSIONS)
def test_required_answers_are_equivalent_to_the_expression(tree):
    answers = required_answers(text_of(tree))
    for chosen in product((False, True), repeat=4):
        true = {name for name, yes in zip("pqrs", chosen, strict=True) if yes}
        assert all(true & set(aliases) for aliases in answers) == value_of(tree, true)


@pytest.mark.parametrize(
    "expression",
    [
        " | ".join(f"(a{n} & b{n})" for n in range(100)),
        " & ".join(f"a{n}" for n in range(LARGEST + 1)),
        "(" * (LONGEST + 1),
    ],
)
def test_very_large_expressions_are_refused(expression):
    assert required_answers(expression).reason.startswith("the answer ")


def test_long_expressions_take_linear_time():
    terms = " & ".join(f"a{n}" for n in range(900))

    def read(count):
        assert len(required_answers(terms + " & a1" * count)) == 900

    assert_linear(read, 2_000)


def test_required_answers_of_prgb_are_scored(tmp_path):
    item = {"placeholders": [{"<P>": "Mars"}], "answer": ["Mars & (moon | satellite)"]}
    path = write(tmp_path / "en.jsonl", [PRGB | {"placeholder_item": item}])
    [gold] = read("prgb", path)
    accuracy = recipe("truthrl", {"verifier": "substring"})
    texts = ("Mars, moon", "Mars, satellite", "Mars", "moon")
    rows = [decode_row(gold.fields() | {"response": rf"\boxed{{{text}}}"}) for text in texts]
    assert [score.value for score in accuracy(rows)][:2] == [1.0, 1.0]
    assert max(score.value for score in accuracy(rows[2:])) < 1.0
    assert suitability_problem(gold, definition_of("ctrl-rag")) is None


# --- PubMedQA ----------------------------------------------------------------------------------


@pytest.mark.parametrize("indent", [None, 4])
def test_pubmedqa(tmp_path, indent):
    path = tmp_path / "ori_pqal.json"
    path.write_text(json.dumps({"21645374": PUBMED, "16418930": PUBMED}, indent=indent))
    first, second = read("pubmedqa", path)
    assert (first.id, second.id) == ("21645374", "16418930")
    assert [(d.title, d.text) for d in first.documents] == [
        ("Background", "Cells die."),
        ("Results", "Leaves were divided."),
    ]
    assert (first.answers, first.supporting, first.answerable) == ((("maybe",),), (0, 1), True)
    assert first.source_fields == {"year": "2011"}
    assert len(read("pubmedqa", path, top=1)[0].documents) == 1


def test_the_copy_of_pubmedqa_on_hugging_face(tmp_path):
    row = {
        "pubid": 21645374,
        "question": PUBMED["QUESTION"],
        "context": {"contexts": PUBMED["CONTEXTS"], "labels": PUBMED["LABELS"], "meshes": []},
        "long_answer": "…",
        "final_decision": "maybe",
    }
    [gold] = read("pubmedqa", write(tmp_path / "rows.jsonl", [row]))
    published = tmp_path / "ori_pqal.json"
    published.write_text(json.dumps({"21645374": PUBMED}))
    [expected] = read("pubmedqa", published)
    assert gold == msgspec.structs.replace(expected, source_fields={})


@pytest.mark.parametrize(
    ("changes", "reason", "detail"),
    [
        ({"final_decision": None}, "no gold answer", "PQA-U"),
        ({"CONTEXTS": []}, "no documents", ""),
        ({"QUESTION": ""}, "no question", ""),
        ({"CONTEXTS": "text"}, "broken row", "$.CONTEXTS"),
    ],
)
def test_problems_of_pubmedqa(tmp_path, changes, reason, detail):
    path = tmp_path / "ori_pqau.json"
    path.write_text(json.dumps({"1": PUBMED | changes}))
    [problem] = read("pubmedqa", path)
    assert problem.reason == reason
    assert detail in problem.detail


# --- all of them -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.parametrize("actual", ["ragqa", "prgb", "pubmedqa"])
def test_a_file_of_another_data_set_is_refused(tmp_path, name, actual):
    row = {"ragqa": RAGQA, "prgb": PRGB, "pubmedqa": PUBMED}[actual]
    path = write(tmp_path / "rows.jsonl", [row])
    if name != actual:
        with pytest.raises(UsageError, match=f"looks like {actual}, not {name}"):
            read(name, path)
        return
    [gold] = read(name, path, requires_documents=False)
    assert isinstance(gold, Gold)


def test_expertqa(tmp_path):
    docs = [{"title": "T", "text": "t", "answers_found": [1, 0]}]
    row = {"question": "?", "answers": [["One claim."], ["Another claim."]], "docs": docs}
    [gold] = read("expertqa", write(tmp_path / "rows.jsonl", [row | {"domain": "Law"}]))
    assert (gold.answer_kind, gold.supporting, gold.answerable) == ("claims", (0,), True)
    assert gold.source_fields == {"domain": "Law"}
    assert suitability_problem(gold, definition_of("ground-grpo")) is None
    original = {"question": "?", "annotator_id": "7", "answers": {}, "metadata": {}}
    with pytest.raises(UsageError, match="in ExpertQA's original form"):
        read("expertqa", write(tmp_path / "rows.jsonl", [original]))
