"""`calibrate`: agreement with labels, thresholds, judges and claims."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from processes import finish

from rag_rewards.matching.lenient import lenient_match
from rag_rewards.metrics.agreement import Agreement

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "calibration.jsonl"
BACKENDS = ROOT / "tests" / "models"
FEW = ("--resamples", "50")


@pytest.fixture
def backends(monkeypatch):
    """Make the test servers and the tiny models importable."""
    monkeypatch.syspath_prepend(str(BACKENDS))


def calibrate_json(cli, *arguments, code=0, **options):
    return json.loads(cli("calibrate", *arguments, *FEW, "-o", "-", code=code, **options).out)


def row(score, human, **fields):
    return {"score": score, "human": human, **fields}


ROWS = [row(s, h) for s, h in ((0.9, 1), (0.8, 1), (0.8, 0), (0.6, 1), (0.4, 0), (0.4, 1))]
ROWS += [row(0.1, 0), row(0.0, 0)]
# Thresholds and their counts (true positives, false positives; 4 labels each):
# 0.9: 1, 0   0.8: 2, 1   0.6: 3, 1   0.4: 4, 2   0.1: 4, 3   0: 4, 4


def only(result):
    [report] = result["scores"]
    return report


def values(figures):
    names = ("kappa", "false_positive_rate", "false_negative_rate", "auc")
    return tuple(figures[name]["value"] for name in names)


# --- values --------------------------------------------------------------------------------------


def test_values_by_hand(cli, write):
    result = calibrate_json(cli, write(ROWS), "--label", "human", "--column", "score")
    report = only(result)
    assert (result["rows"], result["errors"]) == (8, [])
    assert result["labels"] == [{"label": "human", "yes": 4, "no": 4, "missing": 0, "errors": []}]
    # κ is 0.25, 0.25, 0.5, 0.5, 0.25 and 0. Of equal values, the higher threshold is chosen.
    assert report["threshold"] == {"value": 0.6, "rule": "best_kappa"}
    assert report["all"]["counts"] == {
        "true_positives": 3,
        "false_positives": 1,
        "false_negatives": 1,
        "true_negatives": 3,
    }
    assert values(report["all"]) == (0.5, 0.25, 0.25, 13 / 16)
    kappa = report["all"]["kappa"]
    assert -1 <= kappa["low"] < kappa["value"] < kappa["high"] <= 1
    # |0.05 − 0|·2 + |0.4 − 0.5|·2 + |0.6 − 1| + |0.8 − 0.5|·2 + |0.9 − 1|, divided by 8. The bins
    # of 0 and 0.1 are separate: |0 − 0| + |0.1 − 0|.
    assert report["reliability"]["error"] == pytest.approx((0.1 + 0.2 + 0.4 + 0.6 + 0.1) / 8)


@pytest.mark.parametrize(
    ("rate", "threshold", "counts"),
    [(0, 0.9, (1, 0)), (0.24, 0.9, (1, 0)), (0.25, 0.6, (3, 1)), (0.5, 0.4, (4, 2))],
)
def test_a_threshold_for_a_false_positive_rate(cli, write, rate, threshold, counts):
    options = ["-l", "human", "-c", "score", "--max-false-positive-rate", rate]
    report = only(calibrate_json(cli, write(ROWS), *options))
    assert report["threshold"] == {"value": threshold, "rule": "max_false_positive_rate"}
    found = report["all"]["counts"]
    assert (found["true_positives"], found["false_positives"]) == counts


def test_a_given_threshold_and_scores_at_the_threshold(cli, write):
    options = ["-l", "human", "-c", "score", "--threshold"]
    at = only(calibrate_json(cli, write(ROWS), *options, "0.8"))
    assert (at["all"]["counts"]["true_positives"], at["threshold"]["rule"]) == (2, "given")
    above = only(calibrate_json(cli, write(ROWS), *options, "0.81"))
    assert above["all"]["counts"]["true_positives"] == 1


def test_the_output_has_the_same_bytes_on_every_run(cli, write, tmp_path):
    path = write(ROWS)
    file = tmp_path / "out.json"
    options = ["-l", "human", "-c", "score", "-o", file, *FEW]
    printed = cli("calibrate", path, *options, code=0).out
    first = file.read_bytes()
    assert cli("calibrate", path, *options, code=0).out == printed
    assert file.read_bytes() == first
    assert json.loads(first) == calibrate_json(cli, path, "-l", "human", "-c", "score")


def test_scores_of_metrics_and_recipes(cli):
    options = ["-l", "human", "-m", "f1,substring", "-r", "naive-grpo", "--score", "accuracy"]
    result = calibrate_json(cli, EXAMPLE, *options, "--set", "accuracy.metric=f1")
    names = [report["score"] for report in result["scores"]]
    assert names == ["f1", "substring", "naive-grpo:accuracy"]
    f1, substring, _ = result["scores"]
    assert substring["threshold"] == {"value": 1.0, "rule": "binary"}
    assert f1["all"]["rows"] == 42
    pairs = {(pair["first"], pair["second"]) for pair in result["score_pairs"]}
    assert ("f1", "substring") in pairs
    assert '"recipe":"rag-rewards 0' in result["signature"]


def test_rewards_that_compare_a_group(cli):
    lines = (ROOT / "examples" / "ctrl-rag.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    lines = [json.dumps(r | {"human": i % 2}) for i, r in enumerate(rows)]
    options = ["-", "-l", "human", "-r", "ctrl-rag", "--score", "reward"]
    result = calibrate_json(cli, *options, stdin="\n".join(lines).encode())
    assert only(result)["all"]["rows"] == len(rows)


def test_answers_with_human_verdicts(cli, shared):
    """Real answers: the numbers are those of the definition of each matcher."""
    lines, pairs = [], []
    with (shared / "data" / "evouna" / "nq_half.jsonl").open() as file:
        for row in map(json.loads, itertools.islice(file, 150)):
            aliases = [alias.strip() for alias in row["golden_answer"].split("/")]
            response, label = row.get("answer_gpt4"), row.get("judge_gpt4")
            if response is not None and label is not None:
                fields = {"question": row["question"], "answers": aliases, "response": response}
                lines.append(json.dumps({**fields, "human": label}))
                pairs.append((bool(lenient_match(response, aliases, row["question"])), bool(label)))
    options = ["-", "-l", "human", "-m", "lenient(reads=response)"]
    report = only(calibrate_json(cli, *options, stdin="\n".join(lines).encode()))
    expected = Agreement.of(pairs)
    assert report["all"]["counts"] == vars(expected)
    assert report["all"]["kappa"]["value"] == pytest.approx(expected.kappa)
    assert expected.kappa > 0.5


# --- subsets -------------------------------------------------------------------------------------


def test_subsets_by_field_length_and_file(cli, write):
    rows = [
        row(s, h, kind=kind, response="word " * n)
        for s, h, kind, n in (
            *((0.9, 1, "a", 3), (0.1, 0, "a", 30)),
            *((0.9, 1, "b", 3), (0.8, 1, "b", 300)),
            (0.2, 0, None, 6),
        )
    ]
    one, two = write(rows, "one.jsonl"), write(rows[:2], "two.jsonl")
    options = ["-l", "human", "-c", "score", "--threshold", "0.5"]
    by = only(calibrate_json(cli, one, two, *options, "--by", "kind"))["by"]
    assert {name: {k: v["rows"] for k, v in parts.items()} for name, parts in by.items()} == {
        "file": {str(one): 5, str(two): 2},
        "kind": {"a": 4, "b": 2, "(none)": 1},
        "length": {"0-5": 3, "6-20": 1, "21-60": 2, "201+": 1},
    }
    assert values(by["kind"]["a"])[:3] == (1.0, 0.0, 0.0)
    one_class = by["kind"]["b"]
    assert one_class["kappa"] == {"value": None, "reason": "all verdicts and all labels are equal"}
    assert one_class["false_positive_rate"]["reason"] == "no row has the label no"
    assert one_class["false_negative_rate"]["value"] == 0.0
    assert one_class["auc"]["reason"] == "no row has the label no"


def test_too_many_values_of_a_field(cli, write):
    rows = [row(0.5, i % 2, kind=i) for i in range(300)]
    options = ["-l", "human", "-c", "score", "--by", "kind"]
    message = cli("calibrate", write(rows), *options, code=2).err
    assert "'kind' has more than 200 values" in message


def test_rows_of_a_parquet_file(cli, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    report = only(calibrate_json(cli, path, "-l", "human", "-c", "score"))
    assert values(report["all"]) == (0.5, 0.25, 0.25, 13 / 16)


# --- labels --------------------------------------------------------------------------------------


def test_missing_labels_are_left_out(cli, write):
    rows = [*ROWS, row(0.3, None), row(0.3, ""), {"score": 0.7}]
    result = calibrate_json(cli, write(rows), "-l", "human", "-c", "score")
    assert result["labels"][0]["missing"] == 3
    assert only(result)["all"]["rows"] == 8


def test_a_judge_gets_no_rows_without_a_label(cli, write, backends):
    pytest.importorskip("httpx")
    from judge_server import JudgeServer

    rows = [
        {"question": f"{i}?", "answers": ["Rome"], "response": f"answer {i}", "human": label}
        for i, label in enumerate([1, None, 0, "", "maybe"])
    ]
    with JudgeServer() as server:
        judge = ["--judge", server.url, "--judge-model", "m"]
        result = calibrate_json(cli, write(rows), "-l", "human", "-m", "judge", *judge, code=3)
        assert len(server.requests) == 2
    [labels] = result["labels"]
    assert (labels["missing"], labels["errors"][0]["count"], result["rows"]) == (2, 1, 5)


def test_rows_without_any_label(cli, write):
    path = write([{"score": 0.5}, {"score": 0.7, "human": None}])
    message = cli("calibrate", path, "-l", "human", "-c", "score", code=2).err
    assert "no row has a label in the column 'human': set --label" in message


def test_graded_labels(cli, write):
    path = write([row(0.9, 4), row(0.8, 3.5), row(0.2, "3"), row(0.1, 1)])
    options = ["-l", "human", "-c", "score", "--label-threshold", "3.5"]
    result = calibrate_json(cli, path, *options)
    assert (result["labels"][0]["yes"], values(only(result)["all"])[0]) == (2, 1.0)
    graded = calibrate_json(cli, path, *options[:-2])
    assert (graded["labels"][0]["grades"], graded["scores"]) == (4, [])
    assert graded["graded"][0]["scale"] == [1, 4]
    unreadable = calibrate_json(cli, write([row(0.9, 4), row(0.1, "good")]), *options, code=3)
    assert unreadable["labels"][0]["errors"][0]["first"].endswith("or a number), found 'good'")


def test_two_columns_of_labels(cli):
    options = ["-l", "human", "-l", "second_reader", "-c", "judge_score"]
    result = calibrate_json(cli, EXAMPLE, *options)
    assert [(r["score"], r["label"]) for r in result["scores"]] == [
        ("judge_score", "human"),
        ("judge_score", "second_reader"),
    ]
    [pair] = result["label_pairs"]
    assert (pair["first"], pair["second"], pair["rows"]) == ("human", "second_reader", 42)
    # 40 of 42 rows have equal labels.
    assert pair["equal"]["value"] == pytest.approx(40 / 42)
    shown = cli("calibrate", EXAMPLE, *options, *FEW, code=0).out
    assert "agreement between labels" in shown
    assert "by length, label second_reader" in shown


@pytest.mark.parametrize(("label", "missing"), [(1, "no"), (0, "yes")])
def test_one_class(cli, write, tmp_path, label, missing):
    path = write([row(0.9, label), row(0.2, label)])
    options = ["-l", "human", "-c", "score"]
    report = only(calibrate_json(cli, path, *options))
    assert report["threshold"] == {
        "value": None,
        "rule": "best_kappa",
        "reason": f"no row has the label {missing}; add rows with this label",
    }
    assert report["all"]["auc"] == {"value": None, "reason": f"no row has the label {missing}"}
    shown = cli("calibrate", path, *options, *FEW, code=0).out
    assert f"score: no AUC: no row has the label {missing}" in shown


def test_a_threshold_file_needs_both_labels(cli, write, tmp_path):
    path = write([row(0.9, 1), row(0.2, 1)])
    options = ["-l", "human", "-c", "score", "--threshold-file", tmp_path / "t.yaml"]
    for rule in ([], ["--max-false-positive-rate", "0.1"]):
        error = cli("calibrate", path, *options, *rule, code=2).err
        assert "no row has the label no; add rows with this label" in error
        assert "allow a higher" not in error
    assert not (tmp_path / "t.yaml").exists()


# --- rows in error -------------------------------------------------------------------------------


def test_invalid_rows_and_scores_are_counted(cli, write):
    rows = [*ROWS, "{", '{"score": NaN, "human": 1}', row("high", 1, id="x"), row(None, 1)]
    result = calibrate_json(cli, write(rows), "-l", "human", "-c", "score", code=3)
    assert [(e["count"], e["first"]) for e in result["errors"]] == [
        (1, "line 9: not JSON: the line ends in the middle of the row"),
        (1, "line 10: score: not a finite number: nan"),
    ]
    report = only(result)
    assert [(e["count"], e["first"]) for e in report["errors"]] == [
        (1, "line 11 (id x): score: expected a finite number as the score, found 'high'")
    ]
    assert (report["missing"], report["all"]["rows"]) == (2, 8)
    shown = cli("calibrate", write(rows), "-l", "human", "-c", "score", *FEW, code=3).out
    assert "1 row left out, the first: line 9" in shown
    assert "score: 2 rows with a label have no score" in shown


def test_rows_that_a_metric_cannot_measure(cli, write):
    rows = [row(1, 1, response="Paris", answers=["Paris"]), row(1, 0, response="Rome"), row(1, 0)]
    result = calibrate_json(cli, write(rows), "-l", "human", "-m", "em", "-c", "score", code=3)
    em = result["scores"][1]
    assert [e["first"] for e in em["errors"]] == [
        "line 2: answers: missing",
        "line 3: response: missing",
    ]
    assert em["all"]["rows"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{rows}", "-c", "score"], "label"),
        (["{rows}", "-l", "human"], "no score is given: set --column, --metrics or --recipe"),
        (["-l", "human", "-c", "score"], "no file of rows"),
        (["{rows}", "-l", "human", "-c", "judge"], "no row has a score in 'judge': set --column"),
        (["{rows}", "-l", "human", "-c", "score", "--by", "kind"], "no row has 'kind'"),
        (["{rows}", "-l", "human", "-m", "pass@2"], "pass@2 has one value per group"),
        (["{rows}", "-l", "human", "-m", "exact"], "unknown metric 'exact'"),
        (["{rows}", "-l", "human", "-r", "arena", "--score", "x"], "recipe arena has no score 'x'"),
        (["{rows}", "-l", "human", "-c", "score", "--score", "reward"], "set --recipe"),
        (["{rows}", "-l", "human", "-c", "score", "--resamples", "1"], "at least 2"),
        (["{rows}", "-l", "human", "-c", "score", "--max-false-positive-rate", "2"], "below 1"),
        (["{rows}", "-l", "human", "-c", "score", "--threshold", "nan"], "finite"),
        (["{rows}", "-l", "human", "-c", "score", "--repeat", "3"], "compare the columns with"),
        (["{rows}", "-l", "human", "-c", "score", "--svg", "a.svg"], "`scores[].reliability.bins`"),
        (["{rows}", "-l", "human", "-c", "score", "-o", "{rows}"], "would overwrite"),
        (["{rows}", "-l", "human", "-c", "score", "--set", "a=1"], "set the recipe"),
        (["{rows}", "-l", "human", "--claims", "both"], "--claims with --nli"),
        (["{rows}", "-l", "human", "--claims", "both", "-m", "em"], "leave out --metrics"),
        (["{empty}", "-l", "human", "-c", "score"], "empty.jsonl has no rows"),
        (["/no/such/file", "-l", "human", "-c", "score"], "cannot read"),
        (["-", "-", "-l", "human", "-c", "score"], "only once"),
        (
            ["{rows}", "-l", "human", "-c", "score", "-m", "em", "--threshold-file", "t.yaml"],
            "one of --column, --metrics",
        ),
    ],
)
def test_unusable_arguments(cli, write, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = {"{rows}": write(ROWS), "{empty}": write([], "empty.jsonl")}
    ran = cli("calibrate", *[paths.get(a, a) for a in arguments], code=2)
    assert message in ran.err
    assert not (tmp_path / "t.yaml").exists()


def test_control_characters_of_rows_are_not_printed(cli, write):
    path = write([row(0.9, 1, **{"k\x1b": "\x1b[31m"}), row(0.1, 0, **{"k\x1b": "b"})])
    ran = cli("calibrate", path, "-l", "human", "-c", "score", "--by", "k\x1b", *FEW, code=0)
    assert "\x1b" not in ran.out + ran.err.replace("\\u001b", "")


# --- threshold files -----------------------------------------------------------------------------


@pytest.fixture
def threshold_file(cli, tmp_path):
    def write_thresholds(*options):
        path = tmp_path / "threshold.yaml"
        cli("calibrate", EXAMPLE, "-l", "human", *options, "--threshold-file", path, *FEW, code=0)
        return path

    return write_thresholds


def test_a_threshold_of_a_recipe_decides_what_is_correct(cli, threshold_file):
    recipe = ["-r", "naive-grpo", "--set", "accuracy.metric=f1"]
    path = threshold_file(*recipe, "--max-false-positive-rate", "0.3")
    content = yaml.safe_load(path.read_text())
    assert content["recipe"] == "naive-grpo"
    assert content["accuracy.metric"] == "f1"
    threshold = content["decision"]["threshold"]
    assert content["decision"] == {"score": "correct", "threshold": threshold}
    plain = cli("score", EXAMPLE, *recipe, code=0).rows
    decided = cli("score", EXAMPLE, "--config", path, code=0).rows
    assert [r["correct"] for r in decided] == [float(r["correct"] >= threshold) for r in plain]
    assert [r["reward"] for r in decided] == [r["reward"] for r in plain]
    wrong = [r for r in decided if r["human"] is False]
    assert sum(r["correct"] for r in wrong) / len(wrong) <= 0.3
    again = only(calibrate_json(cli, EXAMPLE, "-l", "human", "--config", path))
    assert again["threshold"] == {"value": threshold, "rule": "given"}


def test_a_threshold_of_a_metric(cli, threshold_file):
    path = threshold_file("-m", "f1(normalizer=triviaqa)")
    decision = yaml.safe_load(path.read_text())["decision"]
    assert decision["metric"] == "f1(normalizer=triviaqa)"
    again = only(calibrate_json(cli, EXAMPLE, "-l", "human", "--config", path))
    assert again["score"] == decision["metric"]
    assert again["threshold"]["value"] == decision["threshold"]
    ran = cli("evaluate", EXAMPLE, "--config", path, *FEW, "-o", "-", code=0)
    [run] = json.loads(ran.out)["runs"]
    decided = f"{decision['metric']}>={decision['threshold']}"
    assert run["metrics"][0]["metric"] == decided
    compared = only(calibrate_json(cli, EXAMPLE, "-l", "human", "-m", decided))
    assert compared["all"]["kappa"] == again["all"]["kappa"]
    message = cli("score", EXAMPLE, "-r", "arena", "--config", path, code=2).err
    assert "decision.metric: 'f1(normalizer=triviaqa)' is not a score of a recipe" in message


def test_a_threshold_of_a_column(cli, threshold_file):
    path = threshold_file("-c", "judge_score")
    again = only(calibrate_json(cli, EXAMPLE, "-l", "second_reader", "--config", path))
    assert (again["score"], again["threshold"]["rule"]) == ("judge_score", "given")
    message = cli("evaluate", EXAMPLE, "--config", path, code=2).err
    assert "has no threshold of a metric" in message


def test_no_threshold_reaches_the_rate(cli, tmp_path):
    path = tmp_path / "threshold.yaml"
    options = ["-l", "human", "-m", "substring", "--max-false-positive-rate", "0.05"]
    ran = cli("calibrate", EXAMPLE, *options, "--threshold-file", path, *FEW, code=2)
    assert "no threshold file is written: the threshold 1, which is the highest score" in ran.err
    assert "agreement with labels" in ran.out
    assert not path.exists()
    report = only(calibrate_json(cli, EXAMPLE, *options))
    assert report["threshold"]["value"] is None
    assert report["all"]["kappa"]["reason"] == "there is no threshold"


# --- judges --------------------------------------------------------------------------------------


def test_a_cached_judge_has_the_same_cost(cli, write, backends, tmp_path):
    pytest.importorskip("httpx")
    from judge_server import JudgeServer

    rows = [
        {
            "question": f"Question {i}?",
            "answers": ["Rome", "Roma"],
            "response": f"answer {i}",
            "human": i % 2,
        }
        for i in range(10)
    ]
    path = write(rows)
    with JudgeServer() as server:
        options = ["--judge", server.url, "--judge-model", "m", "--judge-cache", tmp_path / "v.db"]
        first = calibrate_json(cli, path, "-l", "human", "-m", "judge", *options)
        again = calibrate_json(cli, path, "-l", "human", "-m", "judge", *options)
        assert len(server.requests) == 10
        shown = cli("calibrate", path, "-l", "human", "-m", "judge", *options, *FEW, code=0).out
    assert again == first
    # Each request has 100 prompt tokens and 10 completion tokens.
    assert first["cost_per_1000"] == {
        "requests": 1000.0,
        "prompt_tokens": 100_000.0,
        "completion_tokens": 10_000.0,
    }
    assert "judge, for 1,000 rows: 1,000 requests, 100,000 prompt tokens" in shown


# --- claims --------------------------------------------------------------------------------------


def test_claims_of_cached_scores(cli):
    claims = ROOT / "examples" / "claims.jsonl"
    options = ["-l", "supported", "--claims", "whole", "-c", "scores.large", "-c", "scores.small"]
    result = calibrate_json(cli, claims, *options)
    assert [r["score"] for r in result["scores"]] == ["scores.large", "scores.small"]
    assert all((r["all"]["rows"], r["all"]["prompts"]) == (12, 6) for r in result["scores"])


def test_claims_with_an_entailment_model(cli, write, tmp_path, backends):
    pytest.importorskip("torch")
    from test_nli import save_classifier

    from rag_rewards.metrics.agreement import ScoreCounts
    from rag_rewards.models.nli import load_entailment

    nli = save_classifier(tmp_path / "nli")
    source = "the river runs through the city . the city has a tower ."
    claims = ["The river runs. The city has a tower.", "The tower runs.", "A city.", "The river."]
    rows = [
        {"source": source, "summary": claim, "consistent": at % 2}
        for at, claim in enumerate(claims)
    ]
    path = write(rows)
    options = ["-l", "consistent", "--claims", "both", "--nli", nli]
    whole, statements = calibrate_json(cli, path, *options)["scores"]
    assert (whole["score"], statements["score"]) == ("nli of claims", "nli of statements")
    model = load_entailment(nli, device="cpu")
    parts = [["The river runs.", "The city has a tower."], *([claim] for claim in claims[1:])]
    lowest = [min(model.entail_sync([(source, part) for part in own])) for own in parts]
    best = ScoreCounts.of((score, at % 2 == 1) for at, score in enumerate(lowest)).best_kappa()
    assert statements["threshold"]["value"] == pytest.approx(best, abs=1e-5)

    file = tmp_path / "nli.yaml"
    one = ["-l", "consistent", "--claims", "statements", "--nli", nli, *FEW]
    cli("calibrate", path, *one, "--threshold-file", file, code=0)
    threshold = yaml.safe_load(file.read_text())["citation.threshold"]
    assert threshold == statements["threshold"]["value"]
    again = only(calibrate_json(cli, path, *one[:-2], "--config", file))
    assert again["threshold"] == {"value": threshold, "rule": "given"}


def test_invalid_claims_are_counted(cli, write, tmp_path, backends):
    pytest.importorskip("torch")
    from test_nli import save_classifier

    path = write([{"premise": "a b", "claim": "a", "y": 1}, {"premise": "a b", "y": 0}])
    nli = save_classifier(tmp_path / "nli")
    options = ["-l", "y", "--claims", "whole", "--nli", nli]
    result = calibrate_json(cli, path, *options, code=3)
    assert only(result)["errors"][0]["first"].startswith("line 2: claim: missing or empty")


# --- large files and interruptions ---------------------------------------------------------------


def test_a_large_file_needs_little_memory(tmp_path):
    """100,000 rows of 1 kB: memory holds a few numbers per row, not the rows."""
    path = tmp_path / "large.jsonl"
    filler = "x " * 480
    with path.open("w") as file:
        for i in range(100_000):
            score, label = (i * 37 % 1000) / 1000, i % 3 == 0
            file.write(f'{{"score": {score}, "human": {int(label)}, "text": "{filler}"}}\n')
    code = (
        "import resource; from rag_rewards.calibration import *;"
        f"o = CalibrateOptions([{str(path)!r}], ['human'], column=['score'], resamples=2);"
        "base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        "r = calibrate(o).scores[0].all;"
        "print(r.rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rows, kilobytes = map(int, ran.stdout.split())
    assert rows == 100_000
    assert kilobytes < 80_000  # the file has 97,000 kB


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_an_interrupted_run_writes_no_file(tmp_path):
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "rag_rewards", "calibrate", "-", "-l", "human", "-c", "score"]
    process = subprocess.Popen(
        [*command, "-o", str(out)],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    process.stdin.write(b'{"score": 1, "human": 1}\n' * 100_000)  # more than a pipe can hold
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    _, err = finish(process)
    assert process.returncode == 2
    assert b"interrupted" in err
    assert b"Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["-o", "--threshold-file"])
def test_an_output_that_cannot_be_written_fails_first(cli, write, tmp_path, option):
    path = tmp_path / "missing" / "out"
    arguments = ("--label", "human", "--column", "score", option, path)
    failed = cli("calibrate", write([b"no row"]), *arguments, code=2)
    assert f"cannot write {path}" in failed.err


def test_the_progress_is_not_on_standard_output(cli, write, monkeypatch):
    calibrate = import_module("rag_rewards.cli.calibrate")
    arguments = (write(ROWS), "--label", "human", "--column", "score", *FEW)
    without = cli("calibrate", *arguments, code=0).out
    monkeypatch.setattr(calibrate, "shows_progress", lambda: True)
    assert cli("calibrate", *arguments, code=0).out == without
