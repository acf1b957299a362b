"""Random columns, labels and completions, as verl, OpenRLHF, TRL and others pass them."""

from __future__ import annotations

import json
import math
from functools import cache
from types import SimpleNamespace

import numpy as np
from fuzz_checks import outcome, unchanged
from fuzz_rows import ROWS_OF_RECIPES, changed, python_values, values
from fuzz_texts import any_texts, texts
from hypothesis import given
from hypothesis import strategies as st
from properties import budget
from rag_rewards_adapters.callables import batch, each
from rag_rewards_adapters.openrlhf import reward_function
from rag_rewards_adapters.trl import RagReward
from rag_rewards_adapters.trl.batch import gold_column
from rag_rewards_adapters.verl import compute_score
from rag_rewards_adapters.verl.rows import rollout_from_row, row_fields

from rag_rewards.errors import RolloutError
from rag_rewards.rollout import Rollout
from rag_rewards.rows.columns import to_builtins

NAMES = ("arena", "naive-grpo", "binary-rar", "search-r1", "lear")
arrays = st.sampled_from(
    [
        np.array(["Paris", "Rome"], dtype=object),
        np.array([1, 2]),
        np.array(3),
        np.array([[1.0, float("nan")]]),
        np.float32("nan"),
        np.int64(7),
        np.bool_(True),
        np.array([{"text": "a"}, None], dtype=object),
        np.array([], dtype=object),
        np.str_("Paris"),
        np.datetime64("2024-01-01"),
    ]
)
columns = st.one_of(python_values, arrays)


def check_number(value):
    assert isinstance(value, float)
    assert math.isfinite(value)


@given(st.sampled_from(NAMES), any_texts, columns, columns)
@budget(40)
def test_verl(name, response, truth, extra):
    with unchanged(truth, extra):
        result = outcome(lambda: compute_score("qa", response, truth, extra, recipe=name))
    if isinstance(result, dict):
        check_number(result["score"])


@st.composite
def rows_of_recipes(draw):
    name = draw(st.sampled_from(NAMES))
    row = draw(st.sampled_from(ROWS_OF_RECIPES[name]))
    return name, draw(changed(row, columns, any_texts))


@given(rows_of_recipes())
@budget(60)
def test_rows_of_verl(given):
    name, row = given
    response = row.pop("response", "")
    with unchanged(row):
        for truth, extra in ((row, None), (None, row), (row.get("answers"), row)):
            result = outcome(
                lambda truth=truth, extra=extra: compute_score(
                    "qa", response, truth, extra, recipe=name
                )
            )
            if isinstance(result, dict):
                check_number(result["score"])
        outcome(lambda: row_fields(row, row, None, "x"))
        data = {"reward_model": {"ground_truth": row}, "extra_info": row, "global_steps": row}
        assert isinstance(rollout_from_row(data, response=response), (Rollout, RolloutError))


@cache
def openrlhf_reward(name):
    return reward_function(recipe=name, error_value=0.0)


@given(
    st.sampled_from(["arena", "naive-grpo"]),
    st.lists(
        st.tuples(any_texts, any_texts, st.one_of(columns, values.map(json.dumps))),
        min_size=1,
        max_size=3,
    ),
)
@budget(40)
def test_openrlhf(name, samples):
    prompts = [prompt for prompt, _, _ in samples]
    queries = [prompt + response for prompt, response, _ in samples]
    labels = [label for _, _, label in samples]
    with unchanged(labels):
        result = outcome(lambda: openrlhf_reward(name)(queries, prompts, labels))
    if isinstance(result, dict):
        rewards = result["rewards"]
        for value in rewards if isinstance(rewards, list) else [rewards]:
            check_number(value)


@cache
def function(kind, name):
    return kind(name)


@given(st.one_of(rows_of_recipes(), st.tuples(st.sampled_from(NAMES), columns)))
@budget(60)
def test_plain_functions(given):
    name, row = given
    with unchanged(row):
        value = outcome(lambda: function(each, name)(row))
        if not isinstance(value, str):
            check_number(value)
        for value in function(batch, name)([row, row]):
            if value is not None:
                check_number(value)


contents = st.one_of(texts, any_texts, st.none())
completions = st.one_of(
    any_texts,
    st.lists(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["assistant", "tool", "user"])},
            optional={
                "content": contents,
                "tool_calls": values,
                "thinking": contents,
                "reasoning_content": contents,
                "name": values,
            },
        ),
        max_size=3,
    ),
)
prompts = st.one_of(
    any_texts,
    st.lists(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "system", "assistant"]), "content": contents}
        ),
        max_size=2,
    ),
)
COLUMNS = (
    "answers documents supporting answerable question id search_keys gold_documents turns "
    "token_span response_mask prompt_token_ids query_time out_of_knowledge url"
).split()


@st.composite
def batches(draw):
    count = draw(st.integers(1, 2))

    def column(strategy):
        return draw(st.lists(strategy, min_size=count, max_size=count))

    fields = {
        name: column(columns) for name in draw(st.lists(st.sampled_from(COLUMNS), max_size=4))
    }
    return {
        "prompts": column(prompts),
        "completions": column(completions),
        "completion_ids": column(st.lists(st.integers(0, 9), max_size=4)),
        "trainer_state": SimpleNamespace(global_step=0),
        "log_extra": lambda name, values: json.dumps(values),
        "log_metric": lambda name, value: check_number(value),
        **fields,
    }


@cache
def trl_reward(name):
    return RagReward(name, models=None, patience=10**9)


@given(st.sampled_from(["naive-grpo", "search-r1", "arena"]), batches())
@budget(60)
def test_trl(name, given):
    with unchanged(given):
        values = outcome(lambda: trl_reward(name)(**given))
    if isinstance(values, list):
        assert len(values) == len(given["prompts"])
        for value in values:
            if value is not None:
                check_number(value)
    outcome(lambda: gold_column({name: given[name] for name in given if name in COLUMNS}))


@given(columns)
@budget(40)
def test_values_of_arrays(value):
    with unchanged(value):
        repr(to_builtins(value))
