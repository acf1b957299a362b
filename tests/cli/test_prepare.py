"""`rag-rewards prepare`: its output, messages and errors."""

from __future__ import annotations

import gzip
import json
from importlib import import_module

import pytest
from command_line import card_of, read_rows
from processes import WAIT_SECONDS

from rag_rewards import __version__
from rag_rewards.preparation.options import PrepareOptions, presets
from rag_rewards.report.progress import TerminalBar
from rag_rewards.signature import Signature
from rag_rewards.text.normalize import squad


def facts(number, **changes):
    """A row of HotpotQA."""
    titles = [f"T{number}.{i}" for i in range(4)]
    return {
        "_id": f"id{number}",
        "question": f"Question {number}?",
        "answer": f"answer {number}",
        "context": [[title, [f"About {title}.", f" More of {title}."]] for title in titles],
        "supporting_facts": [[titles[1], 0], [titles[2], 1]],
        "type": "bridge",
        "level": "easy",
    } | changes


@pytest.fixture
def hotpotqa(tmp_path):
    def write(rows, name="hotpot.json"):
        path = tmp_path / name
        path.write_text(json.dumps(rows))
        return path

    return write


def test_output_for_trl(cli, hotpotqa, tmp_path):
    out = tmp_path / "train.jsonl"
    source = hotpotqa([facts(i) for i in range(3)])
    ran = cli("prepare", "hotpotqa", source, "-o", out, "-r", "arena", "-t", "trl", code=0)
    assert ran.err.splitlines()[0] == f"3 of 3 rows of {source} → {out}"
    assert ran.out == ""
    first = read_rows(out)[0]
    columns = "prompt id question documents supporting answers answer_kind answerable source_fields"
    assert list(first) == columns.split()
    assert first["supporting"] == ["2", "3"]
    assert first["answers"] == [["answer 0"]]
    assert first["documents"][1] == {
        "id": "2",
        "title": "T0.1",
        "text": "About T0.1. More of T0.1.",
    }
    [message] = first["prompt"]
    assert message["role"] == "user"
    # ARENA's references are numbered and have no titles.
    assert "\n\n[2] About T0.1. More of T0.1.\n\n[3] About" in message["content"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "hotpot.json",
        "train.jsonl",
        "train.jsonl.card.md",
    ]


def test_a_recipe_that_is_defined_in_a_file(cli, hotpotqa, tmp_path):
    (tmp_path / "mine.py").write_text("from rag_rewards.recipes.arena import ARENA as mine\n")
    source = hotpotqa([facts(0)])
    built_in, own = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for out, recipe in ((built_in, "arena"), (own, f"{tmp_path / 'mine.py'}:mine")):
        cli("prepare", "hotpotqa", source, "-o", out, "-r", recipe, "-t", "trl", code=0)
    assert read_rows(own) == read_rows(built_in)


def test_output_for_verl(cli, hotpotqa, tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "train.parquet"
    source = hotpotqa([facts(i) for i in range(3)])
    cli(
        *("prepare", "hotpotqa", source, "-o", out, "-r", "arena", "-t", "verl"),
        *("--split", "dev"),
        code=0,
    )
    rows = pq.read_table(out).to_pylist()
    assert list(rows[0]) == "data_source prompt ability reward_model extra_info".split()
    assert [row["extra_info"]["index"] for row in rows] == [0, 1, 2]
    assert rows[2]["extra_info"]["split"] == "dev"
    assert rows[2]["data_source"] == "hotpotqa"
    truth = json.loads(rows[2]["reward_model"]["ground_truth"])
    assert truth == {
        "supporting": ["2", "3"],
        "answers": [["answer 2"]],
        "answer_kind": "short",
        "answerable": True,
    }
    assert not list(tmp_path.glob("*.partial"))


def test_parquet_and_compressed_input(cli, hotpotqa, tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    rows = [facts(i) for i in range(5)]
    columns = []
    for row in rows:
        (titles, sentences), (fact_titles, numbers) = (
            zip(*row[name], strict=True) for name in ("context", "supporting_facts")
        )
        context = {"title": titles, "sentences": sentences}
        facts_of_row = {"title": fact_titles, "sent_id": numbers}
        columns.append(
            row | {"context": context, "supporting_facts": facts_of_row, "score": float("nan")}
        )
    pq.write_table(pa.Table.from_pylist(columns), tmp_path / "in.parquet")
    (tmp_path / "in.json.gz").write_bytes(gzip.compress(json.dumps(rows).encode()))
    outputs = [
        run(cli, source, tmp_path / "out.jsonl")
        for source in (hotpotqa(rows), tmp_path / "in.parquet", tmp_path / "in.json.gz")
    ]
    assert outputs[0] == outputs[1] == outputs[2]


def test_rows_that_are_left_out_are_listed_and_counted(cli, hotpotqa, tmp_path):
    out = tmp_path / "out.jsonl"
    rows = [
        facts(0),
        facts(1, supporting_facts=[["Elsewhere", 0]]),
        facts(2, context=[*facts(2)["context"], ["T2.1", ["Again."]]]),
        facts(3, supporting_facts=[["T3.1", 7]]),
        facts(0, _id="other"),
        facts(5, answer=""),
        facts(6, question=6),
        facts(7, supporting_facts=[["Nowhere", 0]]),
        facts(8, _id="id0"),
    ]
    ran = cli("prepare", "hotpotqa", hotpotqa(rows), "-o", out, "-r", "arena", "-t", "trl", code=3)
    missing = "a supporting title is not the title of a document"
    assert f"2 left out: {missing} (first: row 2, id1: Elsewhere)" in ran.err
    assert "(first: row 4, id3: T3.1: sentence 7 of 2)" in ran.err
    assert "1 left out: duplicate (first: row 5, other: same as row 1)" in ran.err
    assert "1 left out: broken row (first: row 7: Expected `str`, got `int` - at `$.question`)" in (
        ran.err
    )
    assert "1 left out: duplicate id (first: row 9, id0: same as row 1)" in ran.err
    dropped = read_rows(tmp_path / "out.jsonl.dropped.jsonl")
    assert [row["row"] for row in dropped] == [2, 4, 5, 6, 7, 8, 9]
    assert dropped[5] == {"row": 8, "id": "id7", "reason": missing, "detail": "Nowhere"}
    card, text = card_of(out), out.with_name(out.name + ".card.md").read_text("utf-8")
    assert card["counts"]["read"] == 9
    assert card["counts"]["written"] == len(read_rows(out)) == 2
    assert card["counts"]["dropped"][missing] == 2
    assert f"- {missing}: 2 rows omitted" in text


def test_recipes_that_do_not_read_supporting_keep_the_row(cli, hotpotqa, tmp_path):
    out = tmp_path / "out.jsonl"
    rows = [facts(0), facts(1, supporting_facts=[["Elsewhere", 0]])]
    ran = cli("prepare", "hotpotqa", hotpotqa(rows), "-o", out, "-r", "lear", "-t", "trl", code=0)
    assert "1 written without `supporting`: a supporting title is not the title" in ran.err
    assert [row["supporting"] for row in read_rows(out)] == [["2", "3"], None]


def test_data_card(cli, hotpotqa, tmp_path):
    import hashlib

    out = tmp_path / "out.jsonl"
    source = hotpotqa([facts(i) for i in range(4)])
    cli(
        *("prepare", "hotpotqa", source, "-o", out, "-r", "ctrl-rag", "-t", "trl"),
        *("--sample", "2", "--seed", "5"),
        code=0,
    )
    card, text = card_of(out), out.with_name(out.name + ".card.md").read_text("utf-8")
    assert card["licence"] == "CC BY-SA 4.0"
    assert card["source"] == "https://hotpotqa.github.io"
    assert card["seed"] == 5
    assert card["input"]["sha256"] == hashlib.sha256(source.read_bytes()).hexdigest()
    assert card["output"]["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()
    assert card["reward"] == f"rag-rewards {__version__} ctrl-rag"
    options = Signature.parse(card["signature"])
    assert (options.recipe, options.settings["sample"], options.settings["seed"]) == (
        *("prepare", 2),
        5,
    )
    assert card["counts"] == {
        "read": 4,
        "written": 2,
        "not chosen": 2,
        "dropped": {},
        "first of each": {},
        "kept without supporting": {},
        "answerable": {"answerable": 2},
        "rows by documents": {4: 2},
        "rows by supporting documents": {2: 2},
        "rows by hops": {2: 2},
    }
    assert "    Documents:\n\n    {documents}\n" in text
    assert str(tmp_path) not in text


def test_output_without_a_trainer_can_be_scored(cli, write, hotpotqa, tmp_path):
    """Each row gets four responses and is scored as a group."""
    out = tmp_path / "out.jsonl"
    rows = [facts(0), facts(1, question="Question 0?")]
    cli("prepare", "hotpotqa", hotpotqa(rows), "-o", out, "-r", "arena", "-t", "none", code=0)
    right = "<relevance>[2, 3]</relevance><analysis>x</analysis><answer>answer 0</answer>"
    rolled = [row | {"response": right} for row in read_rows(out) for _ in range(4)]
    scored = cli("score", write(rolled), "-r", "arena", code=0).rows
    assert [row["reward"] for row in scored] == [13.0] * 4 + [2.0] * 4
    assert [row["group"] for row in scored] == ["id0"] * 4 + ["id1"] * 4


# --- seeds -------------------------------------------------------------------------------------

NOISY = ("--noise", "3", "--order", "shuffled", "--sample", "12")


def run(cli, source, out, *options):
    cli("prepare", "hotpotqa", source, "-o", out, "-r", "ctrl-rag", "-t", "trl", *options, code=0)
    return out.read_bytes()


def test_a_seed_determines_the_output(cli, hotpotqa, tmp_path):
    source = hotpotqa([facts(i) for i in range(30)])
    one = run(cli, source, tmp_path / "x.jsonl", *NOISY)
    card = (tmp_path / "x.jsonl.card.md").read_bytes()
    assert run(cli, source, tmp_path / "x.jsonl", *NOISY) == one
    assert (tmp_path / "x.jsonl.card.md").read_bytes() == card
    assert run(cli, source, tmp_path / "x.jsonl", *NOISY, "--seed", "1") != one
    pytest.importorskip("pyarrow")
    outputs = []
    for _ in range(2):
        out = tmp_path / "x.parquet"
        cli("prepare", "hotpotqa", source, "-o", out, "-r", "arena", "-t", "verl", *NOISY, code=0)
        outputs.append(out.read_bytes())
    assert outputs[0] == outputs[1]


def test_supporting_documents_after_shuffling(cli, hotpotqa, tmp_path):
    source = hotpotqa([facts(i) for i in range(30)])
    run(cli, source, tmp_path / "x.jsonl", "--order", "shuffled")
    rows = read_rows(tmp_path / "x.jsonl")
    for row in rows:
        titles = {d["id"]: d["title"] for d in row["documents"]}
        number = row["id"].removeprefix("id")
        assert {titles[at] for at in row["supporting"]} == {f"T{number}.1", f"T{number}.2"}
    assert len({tuple(row["supporting"]) for row in rows}) > 3


def test_noise_is_last_unless_shuffled(cli, hotpotqa, tmp_path):
    source = hotpotqa([facts(i) for i in range(30)])
    run(cli, source, tmp_path / "x.jsonl", "--noise", "3")
    run(cli, source, tmp_path / "y.jsonl", "--noise-to", "9", "--order", "shuffled")
    for row in read_rows(tmp_path / "x.jsonl"):
        own = f"T{row['id'].removeprefix('id')}."
        assert [d["title"].startswith(own) for d in row["documents"]] == [True] * 4 + [False] * 3
        assert row["supporting"] == ["2", "3"]
    for row in read_rows(tmp_path / "y.jsonl"):
        own = f"T{row['id'].removeprefix('id')}."
        marks = [d["title"].startswith(own) for d in row["documents"]]
        assert (len(marks), sum(marks)) == (9, 4)
        answer = squad(row["answers"][0][0])
        assert not any(answer in squad(d["text"]) for d in row["documents"])


def test_noise_from_a_corpus(cli, hotpotqa, tmp_path, shared):
    corpus = shared / "data/search_r1/corpus_sample.jsonl"
    source = hotpotqa([facts(0)])
    run(cli, source, tmp_path / "x.jsonl", "--noise", "2", "--noise-from", corpus)
    [row] = read_rows(tmp_path / "x.jsonl")
    assert len(row["documents"]) == 6
    titles = {row["contents"].split('"')[1] for row in read_rows(corpus)}
    assert {d["title"] for d in row["documents"][4:]} <= titles


def test_a_row_without_enough_noise_is_left_out(cli, hotpotqa, tmp_path):
    out = tmp_path / "x.jsonl"
    ran = cli(
        *("prepare", "hotpotqa", hotpotqa([facts(0)]), "-o", out, "-r", "lear", "-t", "trl"),
        *("--noise", "2"),
        code=2,
    )
    assert "too few documents for noise: 1 (row 1, id0: 0 of 2)" in ran.err
    assert not out.exists()
    assert not list(tmp_path.glob("*.partial"))


# --- number of rows ----------------------------------------------------------------------------


def test_presets_have_the_sizes_of_the_papers():
    assert presets()["arena-train"].sizes == {
        "hotpotqa": 10_000,
        "2wikimultihopqa": 10_000,
        "musique": 5_000,
    }
    assert set(presets()["arena-test"].sizes.values()) == {500}
    trust_align = ("asqa", "qampari", "eli5")
    assert presets()["ground-grpo-stage1"].sizes == dict.fromkeys(trust_align, 100)
    assert presets()["ground-grpo-stage2"].sizes == dict.fromkeys(trust_align, 1_000)
    assert presets()["ground-grpo-stage2"].unanswerable == 0.5


def test_a_preset_samples_its_size(cli, hotpotqa, tmp_path):
    source = hotpotqa([facts(i) for i in range(520)])
    out = tmp_path / "test.parquet"
    pq = pytest.importorskip("pyarrow.parquet")
    arguments = ("prepare", "hotpotqa", source, "-o", out, "-r", "arena", "-t", "verl")
    ran = cli(*arguments, "--preset", "arena-test", code=0)
    assert "20 not sampled (seed 0)" in ran.err
    rows = pq.read_table(out).to_pylist()
    assert len(rows) == 500
    numbers = [int(row["extra_info"]["id"][2:]) for row in rows]
    assert numbers == sorted(numbers)
    assert {row["extra_info"]["split"] for row in rows} == {"test"}
    ran = cli(*arguments, "--preset", "arena-train", code=2)
    assert "10,000 rows are requested, but only 520 are usable" in ran.err


def test_a_share_of_unanswerable_rows(cli, write, tmp_path):
    def row(number, bit):
        document = {"title": "T", "text": f"text {number}", "answers_found": [bit]}
        return {"question": f"Q{number}?", "answers": [["a"]], "docs": [document]}

    source = write([row(i, int(i % 3 == 0)) for i in range(30)])
    out = tmp_path / "out.jsonl"
    arguments = ("prepare", "asqa", source, "-o", out, "-r", "ground-grpo", "-t", "trl")
    cli(*arguments, "--sample", "8", "--unanswerable", "0.5", code=0)
    assert sum(row["answerable"] for row in read_rows(out)) == 4
    ran = cli(*arguments, "--sample", "24", "--unanswerable", "0.5", code=2)
    assert "12 rows are requested, but only 10 are answerable" in ran.err
    cli(*arguments[:-3], "ground-grpo-stage1", "-t", "trl", code=0)
    assert all(row["answerable"] for row in read_rows(out))
    assert len(read_rows(out)) == 10


# --- prompts -----------------------------------------------------------------------------------


def test_prompts_with_query_time_and_lists(cli, write, tmp_path, shared):
    out = tmp_path / "out.jsonl"
    crag = shared / "data/crag/dev_data_sample10.jsonl"
    cli("prepare", "crag", crag, "-o", out, "-r", "truthrl", "-t", "trl", code=0)
    assert read_rows(out)[0]["prompt"][0]["content"].endswith("Query time: 02/28/2024, 10:04:54 PT")
    assert read_rows(out)[0]["query_time"] == "02/28/2024, 10:04:54 PT"
    nq = shared / "data/nq/nq_open_oracle_first25.jsonl"
    cli("prepare", "nq", nq, "-o", out, "-r", "truthrl", "-t", "trl", code=0)
    assert "uery time" not in read_rows(out)[0]["prompt"][0]["content"]
    docs = [{"title": "T", "text": "t", "answers_found": [1]}]
    source = write([{"question": "Q?", "answers": [["a"]], "docs": docs}])
    cli("prepare", "qampari", source, "-o", out, "-r", "ground-grpo", "-t", "trl", code=0)
    assert "separated by commas" in read_rows(out)[0]["prompt"][0]["content"]


def test_find_answers(cli, write, tmp_path):
    docs = [{"title": "T", "text": "The Seine."}, {"title": "U", "text": "The Rhine."}]
    source = write([{"question": "Q?", "qa_pairs": [{"short_answers": ["seine"]}], "docs": docs}])
    out = tmp_path / "out.jsonl"
    arguments = ("prepare", "asqa", source, "-o", out, "-r", "ground-grpo", "-t", "trl")
    ran = cli(*arguments, code=2)
    assert "unknown whether the documents contain an answer" in ran.err
    cli(*arguments, "--find-answers", code=0)
    [row] = read_rows(out)
    assert (row["supporting"], row["answerable"]) == (["1"], True)
    assert [document["supports"] for document in row["documents"]] == [[True], [False]]


def test_a_training_set_for_retrievers_is_always_shuffled(cli, write, tmp_path):
    def passage(text):
        return {"title": text, "text": text}

    rows = [
        {
            "question": f"Q{i}?",
            "answers": ["a"],
            "positive_ctxs": [passage(f"p{i}")],
            "hard_negative_ctxs": [passage(f"h{i}.{j}") for j in range(9)],
        }
        for i in range(40)
    ]
    out = tmp_path / "out.jsonl"
    cli("prepare", "nq", write(rows), "-o", out, "-r", "ctrl-rag", "-t", "trl", code=0)
    places = [row["supporting"] for row in read_rows(out)]
    assert {len(row["documents"]) for row in read_rows(out)} == {5}
    assert sorted({place for [place] in places}) == list("12345")


# --- errors -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dataset": "hotpot"}, "unknown data set 'hotpot'; did you mean 'hotpotqa'"),
        ({"-r": "arenas"}, "no recipe 'arenas'; did you mean 'arena'"),
        ({"-t": "TRL"}, "unknown trainer 'TRL'"),
        ({"-t": "verl"}, "verl reads Parquet: set --output to out.parquet"),
        ({"-o": "out.parquet"}, "trl reads JSON lines: set --output to out.jsonl"),
        ({"-o": "hotpot.json"}, "would overwrite hotpot.json"),
        ({"-o": "/dev/null"}, "/dev/null is not a regular file"),
        ({"source": "none.json"}, "cannot read none.json: No such file"),
        ({"source": "-"}, "not a regular file"),
        ({"--preset": "arena"}, "unknown preset 'arena'"),
        ({"--preset": "ground-grpo-stage1"}, "is for asqa, qampari, eli5"),
        ({"--preset": "arena-test", "--sample": "3"}, "leave out --sample"),
        ({"--unanswerable": "0.5"}, "--unanswerable requires --sample"),
        ({"--unanswerable": "2", "--sample": "2"}, "a share from 0 to 1"),
        ({"--sample": "-1"}, "--sample must be at least 0, found -1"),
        ({"--noise": "1", "--noise-to": "3"}, "use one of them"),
        ({"--noise-from": "hotpot.json"}, "--noise-from requires --noise or --noise-to"),
    ],
)
def test_unusable_arguments(cli, hotpotqa, tmp_path, monkeypatch, change, message):
    monkeypatch.chdir(tmp_path)
    hotpotqa([facts(0)])
    arguments = {"dataset": "hotpotqa", "source": "hotpot.json", "-o": "out.jsonl"}
    arguments |= {"-r": "arena", "-t": "trl"} | change
    before = (tmp_path / "hotpot.json").read_bytes()
    ran = cli(
        *("prepare", arguments.pop("dataset"), arguments.pop("source")),
        *(word for pair in arguments.items() for word in pair),
        code=2,
    )
    assert message in ran.err
    assert (tmp_path / "hotpot.json").read_bytes() == before
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("is_compressed", [False, True], ids=["plain", "gzip"])
def test_a_truncated_file_writes_no_output(cli, tmp_path, is_compressed):
    whole = json.dumps([facts(i) for i in range(50)]).encode()
    whole = gzip.compress(whole) if is_compressed else whole
    source, out = tmp_path / "hotpot.json.gz", tmp_path / "out.jsonl"
    source.write_bytes(whole[: len(whole) // 2])
    out.write_text("from before")
    arguments = ("prepare", "hotpotqa", source, "-o", out, "-r", "arena", "-t", "trl")
    ran = cli(*arguments, code=2)
    assert "ownload it again" in ran.err
    assert out.read_text() == "from before"
    assert not list(tmp_path.glob("*.partial"))
    source.write_bytes(whole)
    cli(*arguments, code=0)
    assert len(read_rows(out)) == 50


@pytest.mark.parametrize("content", ["[]", "\n\n[ ]\n"])
def test_a_file_without_rows(cli, tmp_path, content):
    source = tmp_path / "none.json"
    source.write_text(content)
    out = tmp_path / "out.jsonl"
    ran = cli("prepare", "hotpotqa", source, "-o", out, "-r", "arena", "-t", "trl", code=2)
    assert "has no rows" in ran.err


def test_control_characters_of_rows_are_not_printed(cli, hotpotqa, tmp_path):
    source = hotpotqa([facts(0), facts(1, supporting_facts=[["\x1b[31mred", 0]])])
    out = tmp_path / "out.jsonl"
    ran = cli("prepare", "hotpotqa", source, "-o", out, "-r", "arena", "-t", "trl", code=0)
    assert "\x1b" not in ran.err
    card_of(out)


def test_optional_arguments_are_taken_by_keyword():
    """The sixth positional argument was `split` in 0.7.0."""
    with pytest.raises(TypeError, match="positional arguments"):
        PrepareOptions("hotpotqa", "in.json", "out.jsonl", "arena", "trl", "dev")


def test_progress(cli, hotpotqa, tmp_path, monkeypatch):
    monkeypatch.setattr(import_module("rag_rewards.cli.prepare"), "shows_progress", lambda: True)
    shown = []
    monkeypatch.setattr(TerminalBar, "show", lambda _, done, text: shown.append((done, text)))
    source = hotpotqa([facts(i) for i in range(600)])
    out = tmp_path / "out.jsonl"
    cli("prepare", "hotpotqa", source, "-o", out, "-r", "arena", "-t", "trl", code=0)
    assert len(read_rows(out)) == 600
    assert [text.split()[0] for _, text in shown] == ["reading"] * 2 + ["writing"] * 2
    positions = [done for done, _ in shown]
    size = source.stat().st_size
    assert 0 < positions[0] < positions[1] <= size < positions[2] < positions[3] <= 2 * size


def test_without_pyarrow_the_extra_is_named(cli, hotpotqa, tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    out = tmp_path / "out.parquet"
    source = hotpotqa([facts(0)])
    ran = cli("prepare", "hotpotqa", source, "-o", out, "-r", "arena", "-t", "verl", code=2)
    assert 'pip install "rag-rewards[parquet]"' in ran.err


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path):
    """Ten times as many rows need at most 16 MB more."""
    import subprocess
    import sys

    pytest.importorskip("resource")
    peaks = []
    for count in (1_000, 10_000):
        source = tmp_path / f"{count}.json"
        with source.open("w") as handle:
            for i in range(count):
                row = facts(i)
                for _, sentences in row["context"]:
                    sentences[1] = f" {i} words" * 60
                handle.write(("[" if i == 0 else ",") + json.dumps(row))
            handle.write("]")
        code = (
            "import resource\n"
            "from rag_rewards.preparation.prepare import prepare\n"
            "from rag_rewards.preparation.options import PrepareOptions\n"
            f"prepare(PrepareOptions('hotpotqa', {str(source)!r}, {str(tmp_path / 'o.jsonl')!r}, "
            "'ctrl-rag', 'trl', noise=5))\n"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            timeout=WAIT_SECONDS,
        )
        peaks.append(int(done.stdout))
    assert source.stat().st_size > 20e6
    assert peaks[1] - peaks[0] < 16_000, peaks
