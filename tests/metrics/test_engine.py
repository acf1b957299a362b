"""The engine of metrics: measuring, excluding, resampling, splitting and comparing rows."""

from __future__ import annotations

import random

import pytest

from rag_rewards.errors import BackendError, UsageError
from rag_rewards.metrics import metric_of
from rag_rewards.metrics.comparison import (
    RunAgreement,
    check_pairs,
    compare,
    evaluate_pairs,
    overlap,
)
from rag_rewards.metrics.evaluation import MIXED, split
from rag_rewards.metrics.intervals import Resampling, summarize
from rag_rewards.metrics.measurement import NO_LABEL, MetricNeeds, confidence_bin, measure
from rag_rewards.rollout import LogProbs, Rollout
from rag_rewards.rows import Chunk

FAST = Resampling(200)


def row(response, id=None, group=None, gold="a", **fields):
    values = {"response": response, "answers": [gold], "id": id, "group": group} | fields
    return {name: value for name, value in values.items() if value is not None}


def summary(run, *metrics, resampling=FAST):
    return summarize([metric_of(m) for m in metrics], run.measurements, resampling)


# --- reading ------------------------------------------------------------------------------------


def test_broken_rows_are_counted_by_field():
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
    errors = run.errors.counts()
    assert {error.path: (error.type, error.count) for error in errors} == {
        "": ("RowError", 1),
        "response": ("RowError", 2),
        "reward": ("RowError", 1),
        "documents[].text": ("RowError", 2),
        "nli[].entailment": ("EvidenceError", 1),
    }
    assert "line 4: reward: not a finite number: nan" in [error.first for error in errors]


def test_unscored_and_truncated_rows_are_counted(run_of):
    rows = [row("a", error={"type": "BackendError"}), row("a", finish_reason="length"), row("a")]
    run = run_of(rows, "em")
    assert (run.unscored, run.truncated) == (1, 1)


def test_no_rows(run_of):
    metrics = "em", "trust-score", "truthfulness", "pass@1", "group-signal", "compression-ratio"
    for report in summary(run_of([], *metrics), *metrics):
        assert all(value.value is None and value.low is None for value in report.values.values())


def test_missing_evidence_excludes_a_row_only_from_metrics_that_need_it():
    error = BackendError("down")
    chunk = Chunk(lines=[b'{"response": "b", "answers": ["a"]}'], numbers=[1])
    metrics = [metric_of("em"), metric_of("judge")]
    run = measure("run", [chunk], metrics, gather=lambda rows: [error for _ in rows])
    assert [len(each) for each in run.measurements] == [1, 0]
    assert [f.type for f in run.left_out[1]] == ["BackendError"]


def test_needs_of_several_metrics():
    rollout = Rollout(response="b", question="q")
    assert MetricNeeds([metric_of("judge")]).needs(rollout) == []  # without gold answers
    rollout = Rollout(response="b", answers="a", documents=(), nli=())
    needs = MetricNeeds([metric_of("judge"), metric_of("trust-score"), metric_of("judge")])
    assert [need.component for need in needs.needs(rollout)] == ["accuracy"]


# --- intervals ----------------------------------------------------------------------------------


def test_prompts_are_resampled_and_not_rollouts(run_of):
    """Eight equal rollouts of a prompt contain no more information than one."""
    rng = random.Random(2)
    once = [row("a" if rng.random() < 0.5 else "b", group=str(i)) for i in range(60)]
    repeated = [one for one in once for _ in range(8)]
    ungrouped = [one | {"group": str(i)} for i, one in enumerate(repeated)]
    [first], [second], [third] = (
        summary(run_of(rows, "em"), "em") for rows in (once, repeated, ungrouped)
    )
    assert (first.prompts, second.prompts, third.prompts) == (60, 60, 480)
    width = [r.values["em"].high - r.values["em"].low for r in (first, second, third)]
    assert width[0] == width[1]
    assert width[2] == pytest.approx(width[0] / 8**0.5, rel=0.25)


def test_the_interval_contains_the_value_and_depends_on_the_seed(run_of):
    run = run_of([row("a"), row("b"), row("a")] * 20, "f1")
    [report] = summary(run, "f1")
    value = report.values["f1"]
    assert value.low <= value.value <= value.high
    assert summary(run, "f1")[0].values == report.values
    assert summary(run, "f1", resampling=Resampling(200, seed=1))[0].values != report.values


def test_metrics_do_not_depend_on_each_other(run_of):
    rows = [row("a" if i % 3 else "b c", group=str(i // 2)) for i in range(60)]
    metrics = ("em", "f1", "pass@1")
    separate = [summary(run_of(rows, m), m)[0] for m in metrics]
    assert summary(run_of(rows, *metrics), *metrics) == separate


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
    assert [[len(each) for each in measured] for measured in parts.values()] == [
        [2, 1],
        [1, 0],
        [0, 1],
        [1, 0],
    ]
    assert parts["2"][0].sums == {"right": 1.0, "rows": 2.0}


def test_by_a_missing_field_or_one_with_too_many_values(run_of):
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
    metrics = [metric_of("em")]
    run = measure("run", [Chunk(lines=[line, line], numbers=[1, 2])], metrics, by=("kind",))
    assert run.labels == {"kind": []}
    assert [(error.path, error.count) for error in run.errors.counts()] == [("kind", 2)]


@pytest.mark.parametrize("name", ["", 'a"b', "a\\b"])
def test_invalid_field_names(run_of, name):
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


def comparison(base, other, *metrics, resampling=FAST):
    parsed = [metric_of(m) for m in metrics]
    return compare(base, other, parsed, range(len(parsed)), resampling)


def test_a_paired_interval_is_narrower(run_of):
    """The other run is right where the base is right, and in a tenth of the other rows."""
    rng = random.Random(4)
    right = [rng.random() < 0.5 for _ in range(200)]
    better = [is_right or rng.random() < 0.1 for is_right in right]
    runs = [
        run_of([row("a" if r else "b", id=i, group=str(i)) for i, r in enumerate(rights)], "em")
        for rights in (right, better)
    ]
    first, second = (summary(run, "em")[0].values["em"] for run in runs)
    assert first.high > second.low
    [result] = comparison(*runs, "em").differences
    assert result.holds
    assert result.difference == pytest.approx((sum(better) - sum(right)) / 200)
    assert 0 < result.low < result.difference < result.high
    [back] = comparison(runs[1], runs[0], "em").differences
    assert (back.low, back.high) == pytest.approx((-result.high, -result.low), abs=0.005)


def test_equal_runs_have_no_difference(run_of):
    run = run_of([row("a", id=1), row("b", id=2)], "em", "f1", "truthfulness(verifier=exact)")
    for each in comparison(run, run, "em", "f1", "truthfulness(verifier=exact)").differences:
        assert (each.difference, each.low, each.high, each.holds) == (0.0, 0.0, 0.0, False)


def test_runs_are_joined_on_id_in_any_order(run_of):
    base = run_of([row("a", id="x"), row("b", id="y"), row("a", id="z")], "em")
    other = run_of([row("a", id="y"), row("a", id="x"), row("a", id="new")], "em")
    result = comparison(base, other, "em")
    assert (result.rows.shared, result.rows.only_base, result.rows.only_other) == (2, 1, 1)
    [each] = result.differences
    assert (each.units, each.base, each.other, each.difference) == (2, 0.5, 1.0, 0.5)


def test_runs_without_common_rows(run_of):
    result = comparison(run_of([row("a", id=1)], "em"), run_of([row("a", id=2)], "em"), "em")
    assert result.rows.shared == 0
    [each] = result.differences
    assert (each.units, each.difference, each.low, each.holds) == (0, None, None, None)


def test_repeated_ids_are_not_joined(run_of):
    assert overlap(["a", "a", "b"], ["a", "b"]).twice == 1
    base = run_of([row("a", id=1), row("b", id=1), row("a", id=2)], "em")
    result = comparison(base, run_of([row("b", id=1), row("b", id=2)], "em"), "em")
    assert [(d.units, d.difference) for d in result.differences] == [(1, -1.0)]
    assert (result.rows.shared, result.rows.twice) == (1, 1)


def test_a_row_that_one_run_cannot_measure_is_excluded_from_both(run_of):
    base = run_of([row("a", id=1), row("a", id=2)], "em")
    other = run_of([row("b", id=1), {"response": "a", "id": 2}], "em")
    [each] = comparison(base, other, "em").differences
    assert (each.units, each.difference) == (1, -1.0)


def test_groups_are_joined_on_their_key(run_of):
    base = run_of([row("a", group="g"), row("b", group="g"), row("a", group="h")], "pass@1")
    other = run_of([row("a", group="g"), row("a", group="g"), row("a", group="i")], "pass@1")
    [each] = comparison(base, other, "pass@1").differences
    assert (each.units, each.base, each.other) == (1, 0.5, 1.0)


def test_agreement_of_two_runs(run_of):
    """The four shares of LEAR's Figure 2: evidence of two policies that contains the answer."""

    def evidence(*texts):
        rows = [
            {"id": i, "response": f"<extract>{text}</extract>", "answers": ["Seine"]}
            for i, text in enumerate(texts)
        ]
        return run_of(rows, "answer-recall")

    vanilla = evidence("the Seine", "a river", "the Seine", "a river", "a river")
    rational = evidence("the Seine", "the Seine", "a river", "the Seine", "Rhine")
    main, rationale = comparison(vanilla, rational, "answer-recall").differences
    assert main.agreement == RunAgreement(both=1, only_base=1, only_other=2, neither=1)
    assert main.difference == pytest.approx((2 - 1) / 5)
    assert rationale.agreement == RunAgreement(both=0, only_base=0, only_other=0, neither=5)


def test_values_that_are_no_shares_have_no_agreement(run_of):
    names = ("f1", "truthfulness(verifier=exact)", "group-signal", "pass@1")
    base = run_of([row("a b", id=1, group="g"), row("a", id=2, group="g")], *names)
    for each in comparison(base, base, *names).differences:
        assert each.agreement is None, each.name
    nothing = comparison(run_of([row("a", id=1)], "em"), run_of([row("a", id=2)], "em"), "em")
    assert nothing.differences[0].agreement is None


# --- reference reliance -------------------------------------------------------------------------

DOCUMENTS = [{"text": "a"}]
NAME = "reference-reliance"


def reliance(with_documents, without):
    return evaluate_pairs([with_documents, without], [metric_of(NAME)], FAST)


def test_reference_reliance(run_of):
    first = run_of(
        [row(text, id=i, documents=DOCUMENTS) for i, text in enumerate(["A*", "a", "a", "b"])], NAME
    )
    second = run_of([row(text, id=i) for i, text in enumerate(["b", "a", "b", "b", "a"])], NAME)
    [report] = reliance(first, second)
    assert {name: value.value for name, value in report.values.items()} == {
        NAME: 0.5,
        "with": 0.75,
        "without": 0.25,
    }
    assert (report.unit, report.units, report.counts["pairs"]) == ("pair", 4, 4.0)
    assert report.values[NAME].low is not None


def test_reference_reliance_requires_two_files_in_order(run_of):
    first, second = run_of([row("a", id=1, documents=DOCUMENTS)], NAME), run_of([row("a")], NAME)
    with pytest.raises(UsageError, match="with documents first"):
        reliance(second, first)
    with pytest.raises(UsageError, match="requires two files, with and without documents: found 3"):
        check_pairs([metric_of("em"), metric_of(NAME)], 3)


def test_reference_reliance_counts_the_errors_of_both_files(run_of):
    first, second = (
        run_of([row("a", id=1)], NAME),
        run_of([row("a", id=1), {"response": "x"}], NAME),
    )
    [report] = reliance(first, second)
    assert [(error.path, error.count) for error in report.left_out] == [("answers", 1)]


def test_reference_reliance_without_common_rows(run_of):
    first, second = run_of([row("a", id="x")], NAME), run_of([row("a", id="y")], NAME)
    assert reliance(first, second)[0].values[NAME].value is None


def test_too_few_resamples():
    with pytest.raises(UsageError, match="at least 2"):
        Resampling(1)
