"""Agreement with grades of people, and the grades of a group judge in several orders."""

from __future__ import annotations

import json
from math import sqrt

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from rag_rewards.calibration import CalibrateOptions, calibrate
from rag_rewards.cli.calibrate import print_calibration
from rag_rewards.errors import OptionError
from rag_rewards.evidence.protocols import Models
from rag_rewards.loading import RecipeSpec
from rag_rewards.metrics.graded_agreement import GradedAgreement
from rag_rewards.rollout import Rollout
from rag_rewards.scorer import Scorer
from rag_rewards.testing import TableJudge

GRADES = st.integers(0, 4)
PAIRS = st.lists(st.tuples(GRADES, GRADES), min_size=1, max_size=25)


def agreement(pairs, weights=None):
    scores, grades = zip(*pairs, strict=True)
    return GradedAgreement(scores, grades)(weights or [1.0] * len(pairs))


def naive_kappa(pairs):
    """Return κ from the shares of cells and the matrix of quadratic weights."""
    n = len(pairs)
    cells = [(i, j, (i - j) ** 2) for i in range(5) for j in range(5)]
    observed = sum(w * pairs.count((i, j)) / n for i, j, w in cells)
    rows, columns = ([pair[side] for pair in pairs] for side in (0, 1))
    expected = sum(w * rows.count(i) * columns.count(j) / n**2 for i, j, w in cells)
    return 1 - observed / expected if expected else None


def naive_spearman(pairs):
    def ranks(values):
        return [sum(o < v for o in values) + sum(o == v for o in values) / 2 for v in values]

    x, y = (ranks(side) for side in zip(*pairs, strict=True))
    mx, my = sum(x) / len(x), sum(y) / len(y)
    product = sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    scale = sqrt(sum((a - mx) ** 2 for a in x) * sum((b - my) ** 2 for b in y))
    return product / scale if scale else None


def test_values_by_hand():
    # Differences 0, 0, 1, 0: observed 1/4. Scores 0, 1, 2, 2 and grades 0, 1, 1, 2 have the means
    # 5/4 and 1, and the mean squares 9/4 and 6/4: expected 9/4 + 6/4 − 2·5/4 = 5/4. Midranks 0, 1,
    # 2.5, 2.5 and 0, 1.5, 1.5, 3 around 1.5.
    values = agreement([(0, 0), (1, 1), (2, 1), (2, 2)])
    assert values["kappa"] == pytest.approx(1 - (1 / 4) / (5 / 4))
    assert values["spearman"] == pytest.approx((2.25 + 1.5) / sqrt(4.5 * 4.5))


@given(PAIRS)
@example([(0, 0), (0, 0), (1, 1)])
def test_the_agreement_equals_its_definition(pairs):
    values = agreement(pairs)
    assert values["kappa"] == pytest.approx(naive_kappa(pairs), abs=1e-9)
    assert values["spearman"] == pytest.approx(naive_spearman(pairs), abs=1e-9)
    assert all(value is None or -1 <= value <= 1 for value in values.values())


@given(st.lists(st.tuples(GRADES, GRADES, st.integers(0, 3)), min_size=1, max_size=15))
def test_a_weight_repeats_a_row(rows):
    weights = [float(weight) for *_, weight in rows]
    repeated = [(x, y) for x, y, weight in rows for _ in range(weight)]
    if repeated:
        values = agreement([(x, y) for x, y, _ in rows], weights)
        assert values == pytest.approx(agreement(repeated), abs=1e-9)


def test_equal_scores_have_no_correlation():
    assert agreement([(0.3, 0.3), (0.3, 0.3)]) == {"kappa": None, "spearman": None}
    assert agreement([(0.3, 0.1), (0.3, 0.2)])["spearman"] is None


# --- files ---------------------------------------------------------------------------------------

ROWS = [
    {"question": f"q{i}", "human": human, "other": human, "judge": judge}
    for i, (human, judge) in enumerate([(1, 0.0), (2, 0.25), (4, 1.0), (2, None), (None, 0.5)])
]


def calibrated(tmp_path, rows, **options):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    options = {"label": ["human"], "resamples": 20} | options
    return calibrate(CalibrateOptions([str(path)], **options))


@pytest.mark.parametrize(
    ("label_range", "scale", "pairs"),
    [
        (None, (1, 4), [(0, 0), (0.25, 1 / 3), (1, 1)]),
        ("1:5", (1, 5), [(0, 0), (0.25, 0.25), (1, 0.75)]),
    ],
)
def test_grades_have_the_scale_of_the_scores(tmp_path, label_range, scale, pairs):
    result = calibrated(tmp_path, ROWS, column=["judge"], label_range=label_range, by=["question"])
    [report] = result.graded
    assert (report.scale, report.missing, result.scores) == (scale, 1, [])
    assert (result.labels[0].grades, result.labels[0].missing) == (4, 1)
    assert report.all.kappa.value == pytest.approx(agreement(pairs)["kappa"])
    assert report.all.kappa.low <= report.all.kappa.value <= report.all.kappa.high
    assert {name: each.rows for name, each in report.by["question"].items()} == dict.fromkeys(
        ("q0", "q1", "q2"), 1
    )


def test_graders_and_scores_on_the_scale_of_the_grades(tmp_path):
    options = {"label": ["human", "other"], "column": ["human"], "label_range": "0:9"}
    reports = calibrated(tmp_path, ROWS, **options).graded
    named = {(each.score, each.label): each for each in reports}
    assert set(named) == {("human", "human"), ("human", "other"), ("other", "human")}
    assert {(each.scale, each.all.kappa.value) for each in reports} == {(None, 1.0)}


@pytest.mark.parametrize(
    ("labels", "options", "counts", "message"),
    [
        ([0, 1] * 5 + [7], {}, (5, 5, 0), "the number 7: correct it, or set --label-range"),
        (
            [1, 3, "4", 5, 2, "yes", True],
            {},
            (0, 0, 5),
            "expected a grade (a number), found 'yes'",
        ),
        (["yes", 1, 1.0], {"label_range": "1:5"}, (0, 0, 2), "found 'yes'"),
        ([True, "no", 0, 1, 2, 3], {}, (2, 2, 0), "the number 2: "),
        ([0, 1, 7, "yes"], {"label_threshold": 4}, (2, 2, 0), None),
    ],
)
def test_a_column_has_either_grades_or_labels(tmp_path, labels, options, counts, message):
    rows = [{"human": label, "judge": i % 2} for i, label in enumerate(labels)]
    result = calibrated(tmp_path, rows, column=["judge"], **options)
    [column] = result.labels
    assert (column.yes, column.no, column.grades) == counts
    assert sum(error.count for error in column.errors) == len(labels) - sum(counts)
    assert (len(result.scores), len(result.graded)) == (bool(counts[1]), bool(counts[2]))
    assert column.missing == 0
    assert all(message in error.first for error in column.errors)
    assert result.has_errors == (message is not None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label_range": "1:5", "label_threshold": 3}, "label_range reads labels as grades and"),
        ({"threshold": 0.5}, "threshold is for the labels yes and no, and 'human' has grades"),
        ({"label_range": "2:5"}, "label_range is 2:5, and the grade 1 in the column 'human'"),
        ({"label_range": "5:1"}, "label_range must be two increasing numbers as LOW:HIGH"),
        ({"label_range": "1:x"}, "label_range must be two increasing numbers as LOW:HIGH"),
    ],
)
def test_invalid_options_of_grades(tmp_path, options, message):
    with pytest.raises(OptionError, match=message):
        calibrated(tmp_path, ROWS, column=["judge"], **options)


def test_the_command_prints_grades(tmp_path, capsys):
    print_calibration(Console(width=120), calibrated(tmp_path, ROWS, column=["judge"]))
    printed = capsys.readouterr().out
    assert "human from 1 to 4" in printed
    assert "judge: 1 row with a label has no score" in printed
    assert "quadratic weights" in printed


# --- orders --------------------------------------------------------------------------------------

TEXTS = ("alpha", "beta", "gamma", "beta")


def group_rows(grade, orders=4):
    """Return the rows of three groups with the evidence of a judge: `grade(position, text)`."""

    def verdicts(question):
        return tuple(grade(i / 2, text) for i, text in enumerate(question.responses))

    settings = {"orders": orders, "best": 100}
    scorer = Scorer.load("ruler", settings, models=Models(judge=TableJudge(verdicts)))
    rollouts = [
        Rollout(question=f"q{group}", response=text, group=str(group))
        for group in range(3)
        for text in TEXTS
    ]
    fields = ("question", "response", "group")
    return [
        {name: getattr(rollout, name) for name in fields}
        | {"verdicts": {"group": rollout.verdict("group")}, "human": 1 + at % 4}
        for at, rollout in enumerate(scorer.gather(rollouts))
    ]


@pytest.mark.parametrize(
    ("grade", "bias", "has_spread"),
    [
        (lambda position, text: 0.75 - position / 2, -0.5, True),
        (lambda position, text: len(text) / 8, 0.0, False),
        (lambda position, text: len(text) / 20 + position / 4, 0.25, True),
    ],
)
def test_the_position_bias_of_a_group_judge(tmp_path, grade, bias, has_spread):
    rows = group_rows(grade)
    recipe = {"recipe": "ruler", "settings": {"orders": 4}}
    [report] = calibrated(tmp_path, rows, recipe=RecipeSpec.of(recipe)).orders
    assert (report.component, report.texts) == ("group", 9)  # equal responses count once
    assert report.position_bias.value == pytest.approx(bias)
    spreads = [max(v) - min(v) for v in orders_by_text(rows).values()]
    assert report.spread.value == pytest.approx(sum(spreads) / 9)
    assert (report.spread.value > 0) == has_spread


def orders_by_text(rows):
    return {(row["group"], row["response"]): row["verdicts"]["group"]["orders"] for row in rows}


def test_orders_of_another_group_do_not_count(tmp_path):
    rows = group_rows(lambda position, text: position)
    rows[0]["response"] = "delta"
    [report] = calibrated(tmp_path, rows, recipe=RecipeSpec.of("ruler")).orders
    assert report.texts == 6
