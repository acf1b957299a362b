"""`score` returns every kind of table with its scores."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import datasets
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import rag_rewards as rr
from rag_rewards.evidence.protocols import Models
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.testing import TableEntailment

RIGHT = {"id": "a", "response": "<think>x</think><answer>Paris</answer>", "answers": ["Paris"]}
WRONG = {"id": "b", "response": "<think>x</think><answer>Rome</answer>", "answers": ["Paris"]}
BROKEN = {"id": "c", "response": "<answer>Rome</answer>", "answers": None}
ROWS: list[dict[str, Any]] = [RIGHT, WRONG, BROKEN]

TABLES = {
    "rows": lambda rows: list(rows),
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "arrow": pa.Table.from_pylist,
    "datasets": datasets.Dataset.from_list,
}


def rows_of(table: Any) -> list[dict[str, Any]]:
    if isinstance(table, list):
        return table
    if isinstance(table, datasets.Dataset):
        return list(table)
    rows = nw.from_native(table).rows(named=True)
    return [{k: None if v is np.nan or v != v else v for k, v in row.items()} for row in rows]


@pytest.fixture(params=TABLES)
def make(request: pytest.FixtureRequest) -> Any:
    return TABLES[request.param]


def test_scores_are_new_columns(make: Any) -> None:
    data = make(ROWS)
    before = copy.deepcopy(data)
    scored = rr.score(data, "naive-grpo")
    assert type(scored) is type(data)
    rows = rows_of(scored)
    assert [row["reward"] for row in rows] == [2.0, 1.0, None]
    assert [row["correct"] for row in rows] == [1.0, 0.0, None]
    assert [row["components"] for row in rows] == [
        {"format": 1.0, "accuracy": 1.0},
        {"format": 1.0, "accuracy": 0.0},
        None,
    ]
    assert [row["error"] for row in rows] == [None, None, "row c: answers: missing"]
    assert rows_of(data) == rows_of(before)  # the input is not changed


def test_the_scores_are_those_of_rollouts(make: Any) -> None:
    rollouts = [rr.decode_row(RIGHT), rr.decode_row(WRONG)]
    scores = rr.score(rollouts, "naive-grpo")
    assert scores == rr.recipe("naive-grpo")(rollouts)
    rewards = [row["reward"] for row in rows_of(rr.score(make(ROWS[:2]), "naive-grpo"))]
    assert rewards == [score.value for score in scores]


def test_an_unscored_rollout_keeps_its_error() -> None:
    [good, bad] = rr.score([rr.decode_row(RIGHT), rr.decode_row(BROKEN)], "naive-grpo")
    assert good.value == 2.0
    assert isinstance(bad, rr.DataError)


def test_columns_of_other_names(make: Any) -> None:
    rows = [{"completion": row["response"], "gold": "Paris"} for row in ROWS[:2]]
    names = {"response": "completion", "answers": "gold"}
    scored = rr.score(make(rows), "naive-grpo", columns=names)
    assert [row["reward"] for row in rows_of(scored)] == [2.0, 1.0]


def test_the_columns_of_a_log_of_trl(make: Any) -> None:
    """The preset finds the column of the reward function by the end of its name."""
    log = [{"completion": row["response"], "arena/gold": ["Paris"]} for row in ROWS[:2]]
    scored = rr.score(make(log), "naive-grpo", columns="trl")
    assert [row["reward"] for row in rows_of(scored)] == [2.0, 1.0]


def test_a_prefix_compares_recipes(make: Any) -> None:
    once = rr.score(make(ROWS[:2]), "naive-grpo", prefix="naive_")
    rows = rows_of(rr.score(once, "truthrl", {"verifier": "exact"}, prefix="truthrl_"))
    assert [row["naive_reward"] for row in rows] == [2.0, 1.0]
    assert [row["truthrl_reward"] for row in rows] == [-1.0, -1.0]


def test_an_earlier_scoring_is_replaced(make: Any) -> None:
    once = rr.score(make(ROWS), "truthrl", {"verifier": "exact"})
    assert rows_of(rr.score(once, "naive-grpo")) == rows_of(rr.score(make(ROWS), "naive-grpo"))


@pytest.mark.parametrize("column", ["reward", "correct", "error", "components"])
def test_a_column_of_the_user_is_not_replaced(make: Any, column: str) -> None:
    data = make([{**RIGHT, column: "mine"}])
    with pytest.raises(rr.UsageError, match=f"a column '{column}'.*prefix="):
        rr.score(data, "naive-grpo")
    assert rows_of(rr.score(data, "naive-grpo", prefix="rag_"))[0][column] == "mine"


def test_documents_can_be_texts(make: Any) -> None:
    response = "<relevance>1</relevance><analysis>x</analysis><answer>Paris</answer>"
    row = RIGHT | {"response": response, "documents": ["Paris.", "Rome."], "supporting": [1]}
    [scored] = rows_of(rr.score(make([row]), "arena"))
    as_objects = row | {"documents": [{"text": "Paris."}, {"text": "Rome."}]}
    assert scored["reward"] == rr.recipe("arena")([rr.decode_row(as_objects)])[0].value


def test_groups(make: Any) -> None:
    """A recipe that compares rollouts sees whole groups, and an error fails its group."""
    rows = [row | {"group": key} for key, row in zip("xyxy", [*ROWS, RIGHT], strict=True)]

    recipe = rr.custom("relative", rr.GroupMinMax(rr.recipe("naive-grpo").total))
    scored = rows_of(rr.score(make(rows), recipe))
    assert [row["reward"] for row in scored] == [None, 0.0, None, pytest.approx(1)]
    assert "the group contains a row in error" in scored[0]["error"]
    adjacent = rows_of(rr.score(make([RIGHT, WRONG, WRONG, WRONG]), recipe, group_size=2))
    assert [row["reward"] for row in adjacent] == [pytest.approx(1), 0.0, 0.0, 0.0]
    with pytest.raises(rr.GroupError, match="not a multiple"):
        rr.score(make([RIGHT, WRONG, WRONG]), recipe, group_size=2)


def test_turns_have_rewards(make: Any) -> None:
    turns = [
        {"text": "<think>a</think><search>x</search>", "results": [{"text": "Paris"}]},
        {"text": "<think>b</think><answer>Paris</answer>"},
    ]
    [row] = rows_of(rr.score(make([{"turns": turns, "answers": ["Paris"]}]), "search-r1"))
    assert list(row["turn_rewards"]) == [None, 1.0]
    assert row["reward"] == 1.0


def test_no_rows(make: Any) -> None:
    assert rows_of(rr.score(make([]), "naive-grpo")) == []


# --- data frames -------------------------------------------------------------------------------


def test_an_index_with_duplicates_stays() -> None:
    frame = pd.DataFrame(ROWS, index=[7, 7, 3])
    scored = rr.score(frame, "naive-grpo")
    assert scored.index.tolist() == [7, 7, 3]
    assert scored["reward"].tolist()[:2] == [2.0, 1.0]


def test_missing_values_of_pandas() -> None:
    frame = pd.DataFrame(
        {
            "response": [RIGHT["response"], RIGHT["response"], None],
            "answers": ["Paris", np.nan, "Paris"],
            "question": [pd.NA, "Which?", pd.NaT],
            "step": [1, None, None],
            "documents": [np.array([{"text": "a", "title": np.nan}]), None, None],
        }
    )
    scored = rr.score(frame, "naive-grpo")
    assert scored["reward"].tolist()[0] == 2.0
    assert scored["error"].tolist()[1:] == ["answers: missing", "response: missing"]


def test_parquet_files_with_arrays(tmp_path: Any) -> None:
    """pandas reads lists of Parquet as arrays."""
    pd.DataFrame(ROWS[:2]).to_parquet(tmp_path / "rows.parquet")
    frame = pd.read_parquet(tmp_path / "rows.parquet")
    assert isinstance(frame["answers"][0], np.ndarray)
    assert rr.score(frame, "naive-grpo")["reward"].tolist() == [2.0, 1.0]


def test_a_selection_of_a_data_set() -> None:
    data = datasets.Dataset.from_list(ROWS).select([1, 0]).with_format("numpy")
    assert rr.score(data, "naive-grpo").with_format(None)["reward"][:] == [1.0, 2.0]


def test_more_rows_than_are_scored_together(make: Any) -> None:
    rows = [ROWS[i % 2] for i in range(5000)]
    scored = rows_of(rr.score(make(rows), "naive-grpo"))
    assert [row["reward"] for row in scored] == [2.0, 1.0] * 2500


# --- other data --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (RIGHT, "put the row into a list"),
        (rr.decode_row(RIGHT), "put it into a list"),
        ("rows.jsonl", "rag-rewards score FILE"),
        (7, "int is no table"),
        ([RIGHT, 7], "found \\['dict', 'int'\\]"),
        (pl.DataFrame(ROWS).lazy(), "call collect"),
        (datasets.DatasetDict(train=datasets.Dataset.from_list(ROWS)), "several splits"),
        (datasets.Dataset.from_list(ROWS).to_iterable_dataset(), "streaming"),
        (
            pd.DataFrame({"completion": ["a"]}),
            "completion\\? Set the option columns to response=comp",
        ),
        (pd.DataFrame({"text": ["a"]}), "set the option columns to response=NAME .columns: text"),
    ],
)
def test_data_that_is_no_table(data: Any, message: str) -> None:
    with pytest.raises(rr.UsageError, match=message):
        rr.score(data, "naive-grpo")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"respons": "completion"}, "no field 'respons'; did you mean 'response'"),
        ({"response": "completions"}, "no column 'completions'; did you mean 'completion'"),
    ],
)
def test_wrong_names_of_columns(columns: dict[str, str], message: str) -> None:
    with pytest.raises(rr.UsageError, match=message):
        rr.score([{"completion": "a"}], "naive-grpo", columns=columns)


@pytest.mark.parametrize("data", [pd.DataFrame(ROWS), ROWS, RIGHT, "text", rr.decode_row(RIGHT)])
def test_a_recipe_names_the_function_for_other_data(data: Any) -> None:
    with pytest.raises(rr.UsageError, match=r"rag_rewards\.score\(data, recipe\)"):
        rr.recipe("naive-grpo")(data)


def test_a_scorer_has_its_own_settings() -> None:
    scorer = rr.Scorer.load("naive-grpo")
    assert rr.score([RIGHT], scorer)[0]["reward"] == 2.0
    with pytest.raises(rr.UsageError, match="belong to the Scorer"):
        rr.score([RIGHT], scorer, hardened=True)


def test_options_of_models() -> None:
    with pytest.raises(rr.UsageError, match="judge_model"):
        rr.score([RIGHT], "truthrl", models={"judge": "http://localhost:1/v1"})
    with pytest.raises(rr.UsageError, match="no_model"):
        rr.score([RIGHT], "truthrl", models={"no_model": "x"})


def test_narwhals_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "narwhals", None)
    with pytest.raises(rr.MissingExtraError, match=r"rag-rewards\[tables\]"):
        rr.score(pd.DataFrame(ROWS), "naive-grpo")


def test_a_missing_value_is_read_from_the_next_column_of_a_preset(make: Any) -> None:
    data = make(
        [
            {"response": RIGHT["response"], "reference": None, "ground_truth": "Paris"},
            {"response": RIGHT["response"], "reference": "Rome", "ground_truth": None},
        ]
    )
    scored = rows_of(rr.score(data, "naive-grpo", columns="ragas"))
    assert [row["correct"] for row in scored] == [1.0, 0.0]


def test_whole_numbers_are_answers_in_a_column_with_missing_values() -> None:
    response = "<think>x</think><answer>3</answer>"
    frame = pd.DataFrame({"response": [response, response], "answers": [3, None]})
    assert frame["answers"].dtype == float  # what pandas makes of a missing value
    scored = rr.score(frame, "naive-grpo")
    assert scored["correct"][0] == 1.0
    assert scored["error"][1] == "answers: missing"


@pytest.mark.parametrize(
    "data",
    [
        pd.DataFrame([["a", "b", "c"]], columns=["response", "answers", "answers"]),
        pa.table([["a"], ["b"], ["c"]], names=["response", "answers", "answers"]),
    ],
    ids=["pandas", "arrow"],
)
def test_columns_of_the_same_name(data: Any) -> None:
    with pytest.raises(rr.UsageError, match=r"same name \('answers'\): rename or drop"):
        rr.score(data, "naive-grpo")


def test_names_of_columns_that_are_no_text() -> None:
    frame = pd.DataFrame([[RIGHT["response"], "Paris"]])
    scored = rr.score(frame, "naive-grpo", columns={"response": "0", "answers": "1"})
    assert list(scored.columns[:3]) == [0, 1, "reward"]
    assert scored["reward"][0] == 2.0


@pytest.mark.parametrize("kind", ["polars", "arrow", "datasets"])
def test_the_column_of_errors_is_text_if_there_are_none(kind: str) -> None:
    scored = rr.score(TABLES[kind]([RIGHT]), "naive-grpo")
    if kind == "datasets":
        scored = scored.with_format("arrow")[:]
    assert nw.from_native(scored).schema["error"] == nw.String()


def test_a_data_set_without_rows_gets_the_new_columns() -> None:
    data = datasets.Dataset.from_dict({"response": [], "answers": []})
    assert rr.score(data, "naive-grpo").column_names[2:] == [
        "reward",
        "components",
        "correct",
        "error",
    ]


@pytest.mark.parametrize("size", [0, -1, 1.5, "2"])
def test_a_group_size_is_a_whole_number(size: Any) -> None:
    with pytest.raises(rr.UsageError, match="group_size: expected a whole number"):
        rr.score(ROWS, "ctrl-rag", group_size=size)


@pytest.mark.parametrize("columns", [["completion"], {"response": 0}, {"response": None}])
def test_columns_of_another_type(columns: Any) -> None:
    with pytest.raises(rr.UsageError, match=r"columns: .* found"):
        rr.score(ROWS, "naive-grpo", columns=columns)


@pytest.mark.parametrize("data", [pd.DataFrame(ROWS), pl.DataFrame(ROWS), ROWS, (RIGHT,)])
def test_swapped_arguments(data: Any) -> None:
    with pytest.raises(rr.UsageError, match="recipe: found data") as raised:
        rr.score("naive-grpo", data)
    assert "Paris" not in str(raised.value)


def test_an_object_that_is_no_recipe_is_not_printed_in_full() -> None:
    with pytest.raises(rr.UsageError, match="neither a reward") as raised:
        rr.as_reward({"text": "x" * 1000})
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize("rows", [ROWS[:2], ROWS, ROWS[2:], []], ids=["all", "some", "none", "no"])
@pytest.mark.parametrize("kind", ["polars", "arrow", "datasets", "pandas"])
def test_the_types_of_new_columns_do_not_depend_on_the_rows(
    kind: str, rows: list[dict[str, Any]]
) -> None:
    data = TABLES[kind](rows or ROWS)
    if not rows:
        data = datasets.Dataset.from_dict({"response": []}) if kind == "datasets" else data[:0]
    scored = rr.score(data, "naive-grpo")
    if kind == "datasets":
        scored = scored.with_format("arrow")[:]
    schema = nw.from_native(scored).schema
    components = nw.Struct({"format": nw.Float64(), "accuracy": nw.Float64()})
    if kind == "pandas":
        assert scored["components"].dtype == object
    else:
        assert schema["components"] == components
    assert (schema["reward"], schema["correct"]) == (nw.Float64(), nw.Float64())
    assert schema["error"] == nw.String()


@pytest.mark.parametrize("answers", [[float("nan")], ["Paris", float("nan")], [[float("nan")]]])
def test_a_missing_value_in_a_list_is_no_answer(answers: Any) -> None:
    row = {"response": "<think>x</think><answer>nan</answer>", "answers": answers}
    [scored] = rr.score([row], "naive-grpo")
    assert scored["reward"] is None
    assert "found null" in scored["error"]


def test_a_mapped_column_is_no_suggestion() -> None:
    frame = pd.DataFrame({"response": ["Paris"], "reference": [None], "label": ["Paris"]})
    error = rr.score(frame, "naive-grpo", columns="ragas")["error"][0]
    assert error == "answers: missing; did you mean label? Set the option columns to answers=label"


@pytest.mark.parametrize("has_event_loop", [False, True])
def test_loaded_models_are_closed(monkeypatch: pytest.MonkeyPatch, has_event_loop: bool) -> None:
    """Models from options are closed, also in a notebook. Models of the caller stay open."""
    nli = TableEntailment({})
    models = Models(entailment=nli)
    monkeypatch.setattr(ModelOptions, "load", lambda options: models)

    def is_closed(function: Any, given: Any) -> bool:
        nli.closed = False
        function([RIGHT], "naive-grpo", models=given)
        return nli.closed

    async def with_loop(function: Any, given: Any) -> bool:
        return is_closed(function, given)

    for function in (rr.score, rr.explain, rr.explain_group):
        for given, expected in ((models, False), ({"nli": "folder"}, True)):
            result = with_loop(function, given) if has_event_loop else None
            found = is_closed(function, given) if result is None else asyncio.run(result)
            assert found == expected
