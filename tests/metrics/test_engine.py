"""The engine: what is read, left out, split, resampled and compared."""

from __future__ import annotations

import random

import pytest

from rag_rewards.errors import BackendError, UsageError
from rag_rewards.metrics import metric_of
from rag_rewards.metrics.comparison import check_pairs, compare, reliance, shared_names
from rag_rewards.metrics.measuring import Asking, measure
from rag_rewards.metrics.splitting import MIXED, NO_LABEL, confidence_bin, split
from rag_rewards.metrics.summary import Resampling, summarise
from rag_rewards.rollout import LogProbs, Rollout
from rag_rewards.rows import Chunk

FAST = Resampling(200)


def row(said, id=None, group=None, gold="a", **fields):
    made = {"response": said, "answers": [gold], "id": id, "group": group} | fields
    return {name: value for name, value in made.items() if value is not None}


def summary(run, *metrics, resampling=FAST):
    return summarise([metric_of(m) for m in metrics], run.samples, resampling)


# --- reading ------------------------------------------------------------------------------------


def test_broken_rows_are_counted_by_field_and_the_first_is_named():
    lines = [
        b'{"response": "a", "answers": ["a"]}',
        b"{",
        b'{"answers": ["a"]}',
        b'{"response": "a", "reward": NaN}',
        b'{"response": "a", "reward": "high"}',
        b'{"response": "a", "documents": [{"text": 1}]}',
        b'{"response": "a", "documents": [{"text": "x"}, {"text": 1}]}',
        b'{"response": [{"role": "user", "content": "a"}]}',
        b'{"response": "a", "nli": [{"premise": "a", "hypothesis": "b", "entailment": NaN}]}',
    ]
    chunk = Chunk(lines=lines, numbers=list(range(1, len(lines) + 1)))
    run = measure("run", [chunk], [metric_of("em")])
    assert (run.rows, run.ids) == (9, ["1", "5"])
    found = {fault.path: (fault.type, fault.count) for fault in run.faults.all()}
    assert found == {
        "": ("RowError", 1),
        "response": ("RowError", 2),
        "reward": ("RowError", 1),
        "documents[].text": ("RowError", 2),
        "nli[].entailment": ("EvidenceError", 1),
    }
    firsts = [fault.first for fault in run.faults.all()]
    assert "line 4: reward: not a finite number: nan" in firsts


def test_rows_that_a_scoring_left_in_error_and_cut_ones_are_counted(run_of):
    rows = [row("a", error={"type": "BackendError"}), row("a", finish_reason="length"), row("a")]
    run = run_of(rows, "em")
    assert (run.unscored, run.truncated) == (1, 1)


def test_no_row_at_all_has_no_value_and_no_interval(run_of):
    metrics = "em", "trust-score", "truthfulness", "pass@1", "group-signal", "compression-ratio"
    for report in summary(run_of([], *metrics), *metrics):
        assert all(value.value is None and value.low is None for value in report.values.values())


def test_what_gathering_could_not_get_costs_only_the_metrics_that_needed_it():
    error = BackendError("down")
    chunk = Chunk(lines=[b'{"response": "b", "answers": ["a"]}'], numbers=[1])
    metrics = [metric_of("em"), metric_of("judge")]
    run = measure("run", [chunk], metrics, gather=lambda rows: [error for _ in rows])
    assert [len(sample) for sample in run.samples] == [1, 0]
    assert [f.type for f in run.left_out[1]] == ["BackendError"]


def test_the_needs_of_several_metrics_are_asked_once_and_apart():
    rollout = Rollout(response="b", question="q")
    assert Asking([metric_of("judge")]).needs(rollout) == []  # it has no gold: em says so
    given = Rollout(response="b", answers="a", documents=(), nli=())
    asked = Asking([metric_of("judge"), metric_of("trust-score"), metric_of("judge")])
    assert [need.component for need in asked.needs(given)] == ["accuracy"]


# --- intervals ----------------------------------------------------------------------------------


def test_prompts_are_resampled_not_rollouts(run_of):
    """Eight equal rollouts of a prompt say no more than one of them."""
    rng = random.Random(2)
    once = [row("a" if rng.random() < 0.5 else "b", group=str(i)) for i in range(60)]
    often = [one for one in once for _ in range(8)]
    alone = [one | {"group": str(i)} for i, one in enumerate(often)]
    [first], [second], [third] = (
        summary(run_of(rows, "em"), "em") for rows in (once, often, alone)
    )
    assert (first.prompts, second.prompts, third.prompts) == (60, 60, 480)
    width = [r.values["em"].high - r.values["em"].low for r in (first, second, third)]
    assert width[0] == width[1]
    assert width[2] == pytest.approx(width[0] / 8**0.5, rel=0.25)


def test_the_value_lies_in_its_interval_and_a_seed_gives_it_again(run_of):
    run = run_of([row("a"), row("b"), row("a")] * 20, "f1")
    [report] = summary(run, "f1")
    value = report.values["f1"]
    assert value.low <= value.value <= value.high
    assert summary(run, "f1")[0].values == report.values
    assert summary(run, "f1", resampling=Resampling(200, seed=1))[0].values != report.values


def test_metrics_beside_each_other_change_nothing(run_of):
    rows = [row("a" if i % 3 else "b c", group=str(i // 2)) for i in range(60)]
    alone = [summary(run_of(rows, m), m)[0] for m in ("em", "f1", "pass@1")]
    assert summary(run_of(rows, "em", "f1", "pass@1"), "em", "f1", "pass@1") == alone


# --- splitting ----------------------------------------------------------------------------------


def test_by_a_field(run_of):
    rows = [
        row("a", group="g", hops=2),
        row("b", group="g", hops=2),
        row("a", group="h", hops=10),
        row("b", group="h"),
    ]
    metrics = [metric_of("em"), metric_of("pass@1")]
    parts = split(run_of(rows, "em", "pass@1", by=("hops",)), metrics, "hops")
    assert list(parts) == ["2", "10", MIXED, NO_LABEL]
    assert [[len(s) for s in samples] for samples in parts.values()] == [
        [2, 1],
        [1, 0],
        [0, 1],
        [1, 0],
    ]
    assert parts["2"][0].sums == {"right": 1.0, "rows": 2.0}


def test_by_a_field_that_is_not_there_or_has_a_value_for_every_row(run_of):
    metrics = [metric_of("em")]
    with pytest.raises(UsageError, match="no row has 'hops'"):
        split(run_of([row("a")], "em", by=("hops",)), metrics, "hops")
    many = run_of([row("a", id=i) for i in range(300)], "em", by=("id",))
    with pytest.raises(UsageError, match="300 values"):
        split(many, metrics, "id")


def test_labels_of_every_kind(run_of):
    kinds = ["x", "nan", 10, 9.5, True, None, ["a"], "(mixed)"]
    rows = [row("a", kind=kind, group=str(i)) for i, kind in enumerate(kinds)]
    rows[5]["kind"] = None
    parts = split(run_of(rows, "em", by=("kind",)), [metric_of("em")], "kind")
    assert list(parts) == ["9.5", "10", '["a"]', "nan", "true", "x", MIXED, NO_LABEL]


def test_a_field_that_is_not_utf8_is_an_error_of_the_row():
    line = b'{"response": "a", "answers": ["a"], "kind": "\xff"}'
    made = [metric_of("em")]
    run = measure("run", [Chunk(lines=[line, line], numbers=[1, 2])], made, by=("kind",))
    assert run.labels == {"kind": []}
    assert [(fault.path, fault.count) for fault in run.faults.all()] == [("kind", 2)]


@pytest.mark.parametrize("name", ["", 'a"b', "a\\b"])
def test_what_is_no_fields_name(run_of, name):
    with pytest.raises(UsageError, match=r"^by"):
        run_of([row("a")], "em", by=(name,))


def test_by_confidence(run_of):
    sure, unsure = {"full": [0.0, 0.0]}, {"full": [-0.6931472, -0.6931472]}
    rows = [row("a", logprobs=sure), row("b", logprobs=unsure), row("b")]
    parts = split(run_of(rows, "em", by=("confidence",)), [metric_of("em")], "confidence")
    assert list(parts) == ["0.4-0.5", "0.9-1.0", NO_LABEL]
    own = [row("a", confidence="high", logprobs=sure)]
    assert list(split(run_of(own, "em", by=("confidence",)), [metric_of("em")], "confidence")) == [
        "high"
    ]


@pytest.mark.parametrize("full", [(), (5.0,)])
def test_no_confidence_without_log_probabilities(full):
    assert confidence_bin(Rollout(response="a", logprobs=LogProbs(full=full))) == NO_LABEL


# --- comparing ----------------------------------------------------------------------------------


def compared(base, other, *metrics, resampling=FAST):
    made = [metric_of(m) for m in metrics]
    return compare(base, other, made, range(len(made)), resampling)


def test_a_paired_difference_is_surer_than_two_intervals(run_of):
    """The other run is right wherever the base is, and one time in ten more."""
    rng = random.Random(4)
    right = [rng.random() < 0.5 for _ in range(200)]
    better = [known or rng.random() < 0.1 for known in right]
    runs = [
        run_of([row("a" if r else "b", id=i, group=str(i)) for i, r in enumerate(rights)], "em")
        for rights in (right, better)
    ]
    apart = [summary(run, "em")[0].values["em"] for run in runs]
    assert apart[0].high > apart[1].low
    [found] = compared(*runs, "em").differences
    assert found.holds
    assert found.difference == pytest.approx((sum(better) - sum(right)) / 200)
    assert 0 < found.low < found.difference < found.high
    [back] = compared(runs[1], runs[0], "em").differences
    assert (back.low, back.high) == pytest.approx((-found.high, -found.low), abs=0.005)


def test_equal_runs_differ_by_nothing(run_of):
    run = run_of([row("a", id=1), row("b", id=2)], "em", "f1", "truthfulness(verifier=exact)")
    for each in compared(run, run, "em", "f1", "truthfulness(verifier=exact)").differences:
        assert (each.difference, each.low, each.high, each.holds) == (0.0, 0.0, 0.0, False)


def test_runs_are_joined_on_id_whatever_their_order(run_of):
    base = run_of([row("a", id="x"), row("b", id="y"), row("a", id="z")], "em")
    other = run_of([row("a", id="y"), row("a", id="x"), row("a", id="new")], "em")
    found = compared(base, other, "em")
    assert (found.rows.shared, found.rows.only_base, found.rows.only_other) == (2, 1, 1)
    [each] = found.differences
    assert (each.units, each.base, each.other, each.difference) == (2, 0.5, 1.0, 0.5)


def test_runs_that_share_nothing(run_of):
    found = compared(run_of([row("a", id=1)], "em"), run_of([row("a", id=2)], "em"), "em")
    assert found.rows.shared == 0
    [each] = found.differences
    assert (each.units, each.difference, each.low, each.holds) == (0, None, None, None)


def test_ids_that_stand_twice_join_nothing(run_of):
    assert shared_names(["a", "a", "b"], ["a", "b"]).twice == 1
    base = run_of([row("a", id=1), row("b", id=1), row("a", id=2)], "em")
    found = compared(base, run_of([row("b", id=1), row("b", id=2)], "em"), "em")
    assert [(d.units, d.difference) for d in found.differences] == [(1, -1.0)]
    assert (found.rows.shared, found.rows.twice) == (1, 1)


def test_a_row_that_one_run_could_not_measure_is_in_neither(run_of):
    base = run_of([row("a", id=1), row("a", id=2)], "em")
    other = run_of([row("b", id=1), {"response": "a", "id": 2}], "em")
    [each] = compared(base, other, "em").differences
    assert (each.units, each.difference) == (1, -1.0)


def test_groups_are_joined_on_their_key(run_of):
    base = run_of([row("a", group="g"), row("b", group="g"), row("a", group="h")], "pass@1")
    other = run_of([row("a", group="g"), row("a", group="g"), row("a", group="i")], "pass@1")
    [each] = compared(base, other, "pass@1").differences
    assert (each.units, each.base, each.other) == (1, 0.5, 1.0)


# --- reference reliance -------------------------------------------------------------------------

DOCUMENTS = [{"text": "a"}]
NAME = "reference-reliance"


def relied(given, alone, *metrics):
    made = [metric_of(m) for m in metrics or (NAME,)]
    return reliance([given, alone], made, FAST)


def test_reference_reliance(run_of):
    given = run_of(
        [row(said, id=i, documents=DOCUMENTS) for i, said in enumerate(["A*", "a", "a", "b"])], NAME
    )
    alone = run_of([row(said, id=i) for i, said in enumerate(["b", "a", "b", "b", "a"])], NAME)
    [report] = relied(given, alone)
    assert {name: value.value for name, value in report.values.items()} == {
        NAME: 0.5,
        "with": 0.75,
        "without": 0.25,
    }
    assert (report.unit, report.units, report.counts["pairs"]) == ("pair", 4, 4.0)
    assert report.values[NAME].low is not None


def test_reference_reliance_takes_two_files_in_order(run_of):
    given, alone = run_of([row("a", id=1, documents=DOCUMENTS)], NAME), run_of([row("a")], NAME)
    with pytest.raises(UsageError, match="with documents first"):
        relied(alone, given)
    with pytest.raises(UsageError, match="takes two files, with and without documents: 3 given"):
        check_pairs([metric_of("em"), metric_of(NAME)], 3)


def test_reference_reliance_says_what_was_left_out_of_either_file(run_of):
    given, alone = run_of([row("a", id=1)], NAME), run_of([row("a", id=1), {"response": "x"}], NAME)
    [report] = relied(given, alone)
    assert [(fault.path, fault.count) for fault in report.left_out] == [("answers", 1)]


def test_reference_reliance_of_strangers_has_no_value(run_of):
    given, alone = run_of([row("a", id="x")], NAME), run_of([row("a", id="y")], NAME)
    assert relied(given, alone)[0].values[NAME].value is None


def test_too_few_resamples():
    with pytest.raises(UsageError, match="at least 2"):
        Resampling(1)
