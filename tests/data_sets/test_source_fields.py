"""Source fields, such as hops and domain, in the prepared rows of each data set and trainer."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import yaml
from constructed_rows import CRAG, HOTPOTQA, MUSIQUE, NQ, WIKI

from rag_rewards.cli import main
from rag_rewards.datasets.catalog import data_set
from rag_rewards.datasets.gold import SOURCE_FIELDS
from rag_rewards.datasets.gold_rows import read_gold
from rag_rewards.datasets.records import Records
from rag_rewards.preparation.options import PrepareOptions
from rag_rewards.preparation.prepare import prepare
from rag_rewards.rollout import Rollout

REAL = {
    "hotpotqa": (
        "hotpotqa/distractor_row_trimmed.json",
        {"hops": 2, "type": "bridge", "level": "hard"},
    ),
    "2wikimultihopqa": ("2wikimultihopqa/rows.json", {"hops": 4, "type": "bridge_comparison"}),
    "musique": ("musique/musique_ans_row.json", {"hops": 2}),
    "crag": (
        "crag/dev_data_sample10.jsonl",
        {"domain": "open", "question_type": "comparison", "static_or_dynamic": "static"},
    ),
    "nq": ("nq/nq_open_oracle_first25.jsonl", {}),
}
CONSTRUCTED = {
    "hotpotqa": ([HOTPOTQA], {"hops": 2, "type": "bridge", "level": "hard"}),
    "2wikimultihopqa": (WIKI, {"hops": 2, "type": "compositional"}),
    "musique": ([MUSIQUE], {"hops": 3}),
    "crag": (
        CRAG,
        {"domain": "open", "question_type": "comparison", "static_or_dynamic": "static"},
    ),
    "nq": ([NQ], {}),
}
TRAINERS = ("verl", "openrlhf", "trl", "ms-swift", "skyrl", "slime", "nemo-gym", "none")


def source_of(tmp_path, name):
    """Return a file with the constructed rows of a data set."""
    path = tmp_path / "source.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in CONSTRUCTED[name][0]))
    return path


def run(*words):
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code or 0


def first_row(path: Path, trainer: str):
    """Return the fields of the first row, as a user of the file reads them."""
    if trainer == "verl":
        pq = pytest.importorskip("pyarrow.parquet")
        return json.loads(pq.read_table(path).to_pylist()[0]["extra_info"]["source_fields"])
    row = json.loads(path.read_bytes().splitlines()[0])
    match trainer:
        case "openrlhf" | "slime":
            return json.loads(row["label"])
        case "skyrl":
            return json.loads(row["reward_spec"]["ground_truth"])
        case "nemo-gym":
            return row["verifier_metadata"]
    return json.loads(row["source_fields"]) if trainer in ("trl", "ms-swift") else row


def source_fields(source: Path, name: str, trainer: str, folder: Path) -> dict:
    """Return the source fields of the first row that `prepare` writes for a trainer."""
    path = folder / f"out.{'parquet' if trainer == 'verl' else 'jsonl'}"
    prepare(PrepareOptions(name, str(source), str(path), "truthrl", trainer))
    row = first_row(path, trainer)
    return {field: row[field] for field in SOURCE_FIELDS if field in row}


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("name", CONSTRUCTED)
def test_source_fields(tmp_path, name, trainer):
    source = source_of(tmp_path, name)
    assert source_fields(source, name, trainer, tmp_path) == CONSTRUCTED[name][1]


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("name", REAL)
def test_the_source_fields_of_real_rows(tmp_path, shared, name, trainer):
    file, expected = REAL[name]
    assert source_fields(shared / "data" / file, name, trainer, tmp_path) == expected


def check_values_of_a_field(source, name, field, values, folder):
    """Run the documented commands: prepare a file, add responses, and split a metric by a field."""
    prepared, answered = folder / "test.jsonl", folder / "rows.jsonl"
    assert run("prepare", name, source, "-o", prepared, "-r", "truthrl", "-t", "none") == 0
    rows = [json.loads(line) for line in prepared.read_text("utf-8").splitlines()]
    for row in rows:
        row["response"] = f"<think>x</think>\\boxed{{{row['answers'][0][0]}}}"
    answered.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = folder / "report.json"
    assert run("evaluate", answered, "-m", "em", "--by", field, "-o", report) == 0
    by = json.loads(report.read_text("utf-8"))["runs"][0]["by"][field]
    assert sorted(by) == values
    for metrics in by.values():
        assert metrics[0]["values"]["em"]["value"] == 1.0


@pytest.mark.parametrize(
    ("name", "field", "values"),
    [
        ("hotpotqa", "level", ["hard"]),
        ("2wikimultihopqa", "hops", ["2", "4"]),
        ("2wikimultihopqa", "type", ["bridge_comparison", "comparison", "compositional"]),
        ("musique", "hops", ["3"]),
        ("crag", "question_type", ["comparison", "simple"]),
        ("crag", "domain", ["movie", "open", "sports"]),
        ("crag", "static_or_dynamic", ["slow-changing", "static"]),
    ],
)
def test_evaluate_by_a_source_field(tmp_path, name, field, values):
    check_values_of_a_field(source_of(tmp_path, name), name, field, values, tmp_path)


@pytest.mark.parametrize(
    ("name", "field", "values"),
    [
        ("hotpotqa", "hops", ["2"]),
        ("hotpotqa", "level", ["hard"]),
        ("2wikimultihopqa", "type", ["bridge_comparison", "compositional"]),
        ("musique", "hops", ["2"]),
        ("crag", "domain", ["finance", "movie", "open", "sports"]),
        ("crag", "static_or_dynamic", ["fast-changing", "real-time", "slow-changing", "static"]),
    ],
)
def test_evaluate_real_rows_by_a_source_field(tmp_path, shared, name, field, values):
    check_values_of_a_field(shared / "data" / REAL[name][0], name, field, values, tmp_path)


def test_the_card_counts_the_hops(tmp_path):
    """As Table 2 of ARENA does."""
    path, source = tmp_path / "out.jsonl", source_of(tmp_path, "2wikimultihopqa")
    prepare(PrepareOptions("2wikimultihopqa", str(source), str(path), "truthrl", "none"))
    hops = Counter(json.loads(line)["hops"] for line in path.read_text("utf-8").splitlines())
    card = yaml.safe_load(Path(f"{path}.card.md").read_text("utf-8").split("---\n")[1])
    assert card["counts"]["rows by hops"] == hops == {2: 2, 4: 1}


def test_prepared_rows_keep_their_source_fields(tmp_path, shared):
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    source = str(shared / "data/hotpotqa/distractor_row_trimmed.json")
    prepare(PrepareOptions("hotpotqa", source, str(first), "arena", "none"))
    prepare(PrepareOptions("rows", str(first), str(second), "arena", "none"))
    assert first.read_bytes() == second.read_bytes()


def test_source_fields_that_are_no_text_and_no_number_are_ignored(tmp_path):
    row = {"question": "?", "documents": [{"text": "d"}], "answers": "x"}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row | {"type": {"a": 1}, "level": "", "hops": 3, "year": None}))
    with Records(str(path)) as records:
        [(_, gold)] = read_gold(data_set("rows"), records)
    assert gold.source_fields == {"hops": 3}


def test_a_source_field_is_no_other_field():
    assert not set(SOURCE_FIELDS) & set(Rollout.__struct_fields__)
