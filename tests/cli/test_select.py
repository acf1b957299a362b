"""`rag-rewards select`: its output, training sets, messages and errors."""

from __future__ import annotations

import tracemalloc
from itertools import groupby

import pytest
from command_line import card_of, read_rows

from rag_rewards.selection.options import SelectOptions
from rag_rewards.selection.select import select


def scored(group, *marks, **fields):
    """Return the scored rollouts of a question. A mark of 1 is a right response."""
    return [
        {
            "id": f"{group}-{at}",
            "group": group,
            "question": f"What of {group}?",
            "documents": [{"id": 1, "title": "T", "text": f"About {group}."}],
            "supporting": [1],
            "answers": [f"answer {group}"],
            "note": {"other": [1, 2.50]},
            "response": f"Response {at} to {group}.",
            "finish_reason": "stop",
            "logprobs": {"full": [-1.0 - at]},
            "reward": 2.0 * mark,
            "components": {"accuracy": float(mark)},
            "correct": float(mark),
            "details": {"refused": False},
            "error": None,
            "signature": "rag-rewards 0.8.0 naive-grpo",
            **fields,
        }
        for at, mark in enumerate(marks)
    ]


def rows_of(*groups):
    return [row for group in groups for row in group]


@pytest.fixture
def many(write):
    """60 questions that are half right, 30 that are right, 10 that are wrong."""
    kinds = [(1, 0), (1, 0), (1, 1)] * 30
    groups = [scored(f"q{i}", *marks) for i, marks in enumerate(kinds)]
    return write(rows_of(*groups, *(scored(f"w{i}", 0, 0) for i in range(10))))


def test_one_row_per_question_without_fields_of_a_response(cli, write, tmp_path):
    out = tmp_path / "out.jsonl"
    ran = cli("select", write(scored("a", 1, 0, 0, 0)), "-o", out, code=0)
    assert read_rows(out) == [
        {
            "id": "a",
            "group": "a",
            "question": "What of a?",
            "documents": [{"id": 1, "title": "T", "text": "About a."}],
            "supporting": [1],
            "answers": ["answer a"],
            "note": {"other": [1, 2.50]},
            "pass_rate": 0.25,
            "samples": 4,
        }
    ]
    assert ran.out == ""
    assert ran.err.splitlines() == [f"1 of 1 questions (4 rows) → {out}"]


def test_the_output_is_an_input_of_prepare(cli, many, tmp_path):
    out, train = tmp_path / "out.jsonl", tmp_path / "train.jsonl"
    cli("select", many, "-o", out, "--pass", "0.5:0.5", code=0)
    cli("prepare", "rows", out, "-o", train, "-r", "naive-grpo", "-t", "trl", code=0)
    assert [row["id"] for row in read_rows(train)] == [row["id"] for row in read_rows(out)]
    assert len(read_rows(train)) == 60


def test_windows_with_shares(cli, many, tmp_path):
    out = tmp_path / "out.jsonl"
    shares = ("--pass", "0.1:0.875=0.9", "--pass", "1:1=0.1")
    ran = cli("select", many, "-o", out, *shares, code=0)
    rates = [row["pass_rate"] for row in read_rows(out)]
    assert (rates.count(0.5), rates.count(1.0), len(rates)) == (59, 7, 66)
    assert card_of(out)["counts"]["steps"] == [
        {"step": "pass rate is known", "before": 100, "after": 100},
        {"step": "pass rate in 0.1:0.875, 1:1", "before": 100, "after": 90},
        {"step": "sampled with seed 0", "before": 90, "after": 66},
    ]
    assert card_of(out)["counts"]["by window"] == {"0.1:0.875=0.9": 59, "1:1=0.1": 7}
    assert "pass rate in 0.1:0.875, 1:1: 100 → 90" in ran.err
    cli("select", many, "-o", out, *shares, "--sample", "20", code=0)
    rates = [row["pass_rate"] for row in read_rows(out)]
    assert (rates.count(0.5), rates.count(1.0)) == (18, 2)
    error = cli("select", many, "-o", out, *shares, "--sample", "80", code=2).err
    assert "--sample requires 72 questions, but only 60 have a pass rate in 0.1:0.875" in error


def test_a_sample_depends_on_the_seed_and_keeps_the_order_of_the_file(cli, many, tmp_path):
    ids = {}
    for seed in (0, 0, 1):
        out = tmp_path / "out.jsonl"
        cli("select", many, "-o", out, "--sample", "40", "--seed", seed, code=0)
        selected = [row["id"] for row in read_rows(out)]
        assert ids.setdefault(seed, selected) == selected
        order = [key for key, _ in groupby(row["group"] for row in read_rows(many))]
        assert selected == sorted(selected, key=order.index)
    assert ids[0] != ids[1]
    assert len(ids[0]) == 40


def test_equal_runs_write_equal_files(cli, many, tmp_path):
    outputs = []
    for name in ("one", "two"):
        out = tmp_path / name / "out.jsonl"
        out.parent.mkdir()
        cli("select", many, "-o", out, "--pass", "0.5:1", "--sample", "9", code=0)
        outputs.append((out.read_bytes(), (out.parent / "out.jsonl.card.md").read_bytes()))
    assert outputs[0] == outputs[1]


def test_rollouts_are_copied_unchanged(cli, write, tmp_path):
    rows = rows_of(scored("a", 1, 1), scored("b", 1, 0), scored("c", 0, 0))
    source, out = write(rows), tmp_path / "out.jsonl"
    cli("select", source, "-o", out, "--min-spread", "0", "--rollouts", code=0)
    assert out.read_bytes() == b"".join(source.read_bytes().splitlines(keepends=True)[2:4])


def test_standard_deviation_of_s_and_e(cli, write, tmp_path):
    # S of a row is −1 − its position: a standard deviation of ½, and of √(2/3).
    rows = rows_of(scored("a", 1, 1), scored("b", 1, 1, 1))
    out = tmp_path / "out.jsonl"
    cli("select", write(rows), "-o", out, "--min-std", "0.5", code=0)
    assert [row["id"] for row in read_rows(out)] == ["b"]
    error = cli("select", write(rows), "-o", out, "--min-std", "0", "--std-of", "E", code=2).err
    assert "E of every response is known: 2 → 0" in error


def test_excluded_and_repeated_questions(cli, write, tmp_path):
    twin = [row | {"group": "twin"} for row in scored("a", 0, 0)]
    source = write(rows_of(scored("a", 1, 1), scored("b", 1, 0), twin))
    out, other = tmp_path / "out.jsonl", tmp_path / "other.jsonl"
    cli("select", source, "-o", out, "--unique", code=0)
    assert [row["id"] for row in read_rows(out)] == ["a", "b"]
    cli("select", source, "-o", other, "--pass", "0.5:0.5", code=0)
    cli("select", source, "-o", out, "--exclude", other, code=0)
    assert [row["id"] for row in read_rows(out)] == ["a", "twin"]
    (tmp_path / "odd.jsonl").write_text('{"q": 1}\n')
    error = cli("select", source, "-o", out, "--exclude", tmp_path / "odd.jsonl", code=2).err
    assert "row 1 has no `question`: add it" in error


def test_partial_groups(cli, write, tmp_path):
    out = tmp_path / "out.jsonl"
    source = write(rows_of(scored("a", 1, 0, 1), scored("b", 1, 0)))
    cli("select", source, "-o", out, "--min-samples", "3", code=0)
    assert [row["samples"] for row in read_rows(out)] == [3]


def test_rows_are_scored_with_a_recipe(cli, write, arena, tmp_path):
    wrong = "<relevance>[1]</relevance><analysis>One.</analysis><answer>Rhine</answer>"
    rows = [arena(group="g"), arena(id="b", group="g", response=wrong)]
    out = tmp_path / "out.jsonl"
    error = cli("select", write(rows), "-o", out, code=2).err
    assert "correct: missing; score the rows first, or choose a recipe" in error
    cli("select", write(rows), "-o", out, "-r", "arena", code=0)
    assert read_rows(out)[0]["pass_rate"] == 0.5


def test_right_at(cli, write, tmp_path):
    rows = [row | {"correct": 0.6} for row in scored("a", 1, 1)]
    out = tmp_path / "out.jsonl"
    cli("select", write(rows), "-o", out, "--pass", "0:0", code=0)
    cli("select", write(rows), "-o", out, "--pass", "1:1", "--right-at", "0.6", code=0)


def test_a_group_with_a_broken_row_is_in_error(cli, write, tmp_path):
    broken = scored("b", 1, 0)
    broken[1]["documents"] = 7
    unscored = scored("c", 1, 1)
    del unscored[0]["correct"], unscored[0]["reward"]
    torn = [b'{"group": "d", "response": "x', *scored("d", 1)]
    rows = [*scored("a", 1, 0), *broken, *unscored, *torn, *scored("e", 1, 0), *scored("a", 1)]
    out = tmp_path / "out.jsonl"
    ran = cli("select", write(rows), "-o", out, code=3)
    assert [row["id"] for row in read_rows(out)] == ["a", "e"]
    errors = read_rows(tmp_path / "out.jsonl.errors.jsonl")
    assert [(e["line"], e["error"]["type"], e["error"]["path"]) for e in errors] == [
        (3, "GroupError", ""),
        (4, "RowError", "documents"),
        (5, "DataError", "correct"),
        (6, "GroupError", ""),
        (7, "RowError", ""),
        (8, "GroupError", ""),
        (11, "GroupError", ""),
    ]
    assert "are not adjacent" in errors[-1]["error"]["message"]
    assert "7 rows in error, the first: line 3" in ran.err
    assert card_of(out)["counts"]["rows in error"] == 7


def test_details_of_a_wrong_type(cli, write, tmp_path):
    out = tmp_path / "out.jsonl"
    rows = [*scored("a", 1), *scored("b", 1, details="text")]
    error = cli("select", write(rows), "-o", out, code=3).err
    assert "line 2: details: must be a mapping, or its JSON" in error


def test_groups_whose_rows_are_not_adjacent(cli, write, tmp_path):
    rows = rows_of(scored("a", 1), scored("b", 1), scored("a", 0))
    out = tmp_path / "out.jsonl"
    cli("select", write(rows), "-o", out, "--sort", code=0)
    assert [row["samples"] for row in read_rows(out)] == [2, 1]
    nameless = [{k: v for k, v in row.items() if k != "group"} for row in scored("a", 1, 0, 1, 0)]
    cli("select", write(nameless), "-o", out, "--group-size", "2", code=0)
    assert [row["pass_rate"] for row in read_rows(out)] == [0.5, 0.5]


def test_standard_input_and_parquet(cli, write, many, tmp_path):
    out, piped = tmp_path / "out.jsonl", tmp_path / "piped.jsonl"
    cli("select", many, "-o", out, "--pass", "1:1", code=0)
    cli("select", "-", "-o", piped, "--pass", "1:1", stdin=many.read_bytes(), code=0)
    assert out.read_bytes() == piped.read_bytes()
    pytest.importorskip("pyarrow")
    parquet = tmp_path / "scored.parquet"
    source = write([{k: v for k, v in row.items() if k != "logprobs"} for row in read_rows(many)])
    cli("score", source, "-o", parquet, "-r", "naive-grpo", code=0)
    cli("select", parquet, "-o", out, "--pass", "0:1", code=0)
    assert len(read_rows(out)) == 100


@pytest.mark.parametrize("kind", ["r-tuning", "rft", "dpo", "sft"])
def test_training_sets(cli, write, tmp_path, kind):
    rows = rows_of(scored("a", 1, 0), scored("b", 1, 1), scored("c", 0, 0))
    out = tmp_path / "out.jsonl"
    ran = cli("select", write(rows), "-o", out, "--make", kind, code=0)
    chats = read_rows(out)
    keys = ["id", "prompt", *(["chosen", "rejected"] if kind == "dpo" else ["completion"])]
    assert all(list(row) == keys for row in chats)
    expected = {"r-tuning": "abc", "rft": "ab", "dpo": "ac", "sft": "abc"}[kind]
    assert "".join(row["id"] for row in chats) == expected
    reasons = card_of(out)["counts"]["cannot be made"]
    reason = {"rft": "no response that abstains", "dpo": "no wrong response"}.get(kind)
    assert reasons == ({reason: 1} if reason else {})
    assert f"suitable for {kind}: 3 → {len(expected)}" in ran.err
    if reason:
        assert f"unsuitable: {reason}: 1" in ran.err


def test_a_training_set_from_labelled_questions(cli, many, tmp_path):
    labelled, out = tmp_path / "labelled.jsonl", tmp_path / "out.jsonl"
    cli("probe", many, "-o", labelled, code=0)
    assert "set --recipe" in cli("select", labelled, "-o", out, "--make", "r-tuning", code=2).err
    cli("select", labelled, "-o", out, "--make", "r-tuning", "-r", "naive-grpo", code=0)
    completions = [row["completion"][0]["content"] for row in read_rows(out)]
    assert completions.count("<answer>I don't know</answer>") == 10
    assert completions[0] == "<answer>answer q0</answer>"


def test_selection_by_the_labels_of_questions(cli, many, tmp_path):
    labelled, out = tmp_path / "labelled.jsonl", tmp_path / "out.jsonl"
    cli("probe", many, "-o", labelled, code=0)
    cli("select", labelled, "-o", out, "--pass", "0.1:0.875", "--min-samples", "2", code=0)
    assert [(row["pass_rate"], row["samples"]) for row in read_rows(out)] == [(0.5, 2)] * 60
    error = cli("select", labelled, "-o", out, "--min-samples", "3", code=2).err
    assert "at least 3 responses: 100 → 0" in error
    assert (
        "no response in the row: 100"
        in cli(*("select", labelled, "-o", out, "--rollouts"), code=2).err
    )


def test_mixed_prompts_are_refused(cli, write, tmp_path):
    rows = rows_of(scored("a", 1, prompt="text"), scored("b", 1))
    out = tmp_path / "out.jsonl"
    assert "some are text" in cli("select", write(rows), "-o", out, "--make", "rft", code=2).err
    assert not out.exists()


def test_no_question_is_left(cli, write, tmp_path):
    out = tmp_path / "out.jsonl"
    error = cli("select", write(scored("a", 1, 1)), "-o", out, "--min-spread", "0", code=2).err
    assert "no question is left: every response has a reward: 1 → 1; spread of the reward" in error
    error = cli("select", write(scored("a", 1)), "-o", out, "--make", "dpo", code=2).err
    assert "no wrong response: 1" in error
    assert "has no rows" in cli("select", write([]), "-o", out, code=2).err
    assert "every row is in error" in cli("select", write(["{"]), "-o", out, code=2).err
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--make", "dop"], "unknown training set 'dop'; did you mean 'dpo'"),
        (["--std-of", "X", "--min-std", "1"], "unknown likelihood 'X'"),
        (["--make", "sft", "--style", "indirect"], "unknown style 'indirect'"),
        (["--make", "sft", "--rollouts"], "use one"),
        (["--sample", "0"], "--sample must be at least 1"),
        (["--right-at", "0"], "--right-at must be above 0"),
        (["--pass", "0.5"], "--pass expects LOW:HIGH"),
        (["--sort", "--group-size", "2"], "use one of them"),
        (["-r", "arean"], "no recipe 'arean'"),
    ],
)
def test_unusable_arguments(cli, many, tmp_path, arguments, message):
    out = tmp_path / "out.jsonl"
    assert message in cli("select", many, "-o", out, *arguments, code=2).err
    assert not out.exists()


def test_the_input_is_not_overwritten(cli, many, tmp_path):
    before = many.read_bytes()
    assert "would overwrite" in cli("select", many, "-o", many, code=2).err
    assert "not a regular file" in cli("select", many, "-o", "-", code=2).err
    assert many.read_bytes() == before


def test_memory_does_not_grow_with_the_file(write, tmp_path):
    def peak(count):
        text = "x" * 4_000
        rows = (r for i in range(count) for r in scored(f"q{i}", 1, 0, response=text))
        source = write(rows, f"{count}.jsonl")
        tracemalloc.start()
        select(SelectOptions(str(source), str(tmp_path / "out.jsonl"), rollouts=True, sample=20))
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(100)
    small, large = peak(500), peak(2_000)
    assert large - small < 1_500_000  # the rows themselves are 13 MB more
