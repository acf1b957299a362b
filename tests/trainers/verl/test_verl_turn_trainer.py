"""Advantages of turns in verl's V1 trainer: a step of its tool agent, under Ray."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pytest
import ray
import v1_trainer as v1

import rag_rewards as rr
from rag_rewards.training.credit import credit_of_groups, gdpo, spread, whiten
from rag_rewards.training.credit.gigpo import anchors_of

DOCUMENTS = {
    "first": {"id": "a", "title": "First", "text": "The town is on the river of the second page."},
    "second": {"id": "b", "title": "Second", "text": "The river of the second page is the Seine."},
}
TOOLS = f'''
import json
from verl.tools.function_tool import function_tool

DOCUMENTS = {DOCUMENTS!r}


@function_tool
def search(query: str) -> str:
    """Search the documents.

    Args:
        query: What to look for.
    """
    return json.dumps([DOCUMENTS[query]] if query in DOCUMENTS else [])
'''
GOLD = {"answers": ["Seine"], "supporting": ["a", "b"]}
SETTINGS = {"process": "coverage", "coverage.of": "all", "dialect": "tools"}
NAMES = ["Paris", "Rouen"]
GROUP = 4
GIVEN = "algorithm.adv_estimator=rag_turn_given"
RETURN = "algorithm.adv_estimator=rag_turn_return"
CREDITS = {
    "return": [RETURN],
    "gigpo": [GIVEN, "+algorithm.rag_turn.method=gigpo"],
    "gdpo": [
        "algorithm.adv_estimator=rag_gdpo",
        "+algorithm.gdpo_reward_keys=[answer,gain]",
        "+algorithm.gdpo_reward_weights=[1.0,0.5]",
    ],
}
"""The settings of verl for each credit method."""
LENGTHS = {"complete": 1800, "cut": 372}
"""The number of tokens of a response: enough for all turns, or too few for a third turn."""
RUNS = [*((method, "complete") for method in CREDITS), ("return", "cut")]
CALL = re.compile("<tool_call>(.*?)</tool_call>")


def call(query: str) -> str:
    arguments = json.dumps({"name": "search", "arguments": {"query": query}})
    return f"<think>Look.</think><tool_call>{arguments}</tool_call>"


REPLIES = {
    **{name: [call("first"), call("second"), "Rhone"] for name in NAMES},
    DOCUMENTS["first"]["text"]: [call("second"), call("nothing"), "Seine"],
    DOCUMENTS["second"]["text"]: ["Seine", call("first"), "Rhone", "Seine"],
}


def question(name):
    row = v1.question(name)
    del row["extra_info"]["documents"]
    row["reward_model"]["ground_truth"] = json.dumps(GOLD)
    return row


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Start Ray, and return the model and the data of all trainings."""
    path = tmp_path_factory.mktemp("turns")
    rows = v1.write(path / "train.parquet", [question(name) for name in NAMES])
    with v1.cluster():
        yield SimpleNamespace(path=path, folder=v1.save(path / "model"), rows=rows)


@pytest.fixture(scope="module", params=RUNS, ids="-".join)
def trained(request, start):
    """Return the credit method, whether a limit cuts responses, and the batch of a step."""
    method, responses = request.param
    lengths = v1.LENGTHS | {"response_length": LENGTHS[responses], "max_model_len": 2800}
    rollout = "actor_rollout_ref.rollout"
    settings = "+reward.custom_reward_function.reward_kwargs.settings"
    config = v1.configuration(
        start.folder,
        "stepsearch",
        *(f"{settings}.{name}={value}" for name, value in SETTINGS.items()),
        *v1.tool_overrides(start.path, TOOLS),
        *v1.trainer_overrides(start.rows, start.rows),
        *(f"{rollout}.{name}={value}" for name, value in lengths.items()),
        f"data.max_response_length={lengths['response_length']}",
        f"{rollout}.n={GROUP}",
        "trainer.total_training_steps=1",
        "trainer.val_before_train=False",
        "trainer.test_freq=-1",
        *CREDITS[method],
    )
    server = ray.remote(v1.Engine).remote(start.folder, REPLIES, lengths["max_model_len"])
    (batch,) = v1.train(config, server, start.path / f"{method}-{responses}.jsonl").batches
    return SimpleNamespace(
        folder=start.folder, method=method, is_cut=responses == "cut", batch=batch
    )


def turns_of(tokenizer, rollout):
    """Return the turns of a rollout, from its tokens and the mask of verl."""
    ids, mask = rollout["responses"], [0, *rollout["response_mask"], 0]
    starts = [i for i in range(len(mask) - 1) if mask[i] < mask[i + 1]]
    ends = [i for i in range(len(mask) - 1) if mask[i] > mask[i + 1]]
    turns = []
    for start, end in zip(starts, ends, strict=True):
        text = tokenizer.decode(ids[start:end]).removesuffix(tokenizer.eos_token)
        turn = {"text": text, "token_span": [start, end]}
        if call := CALL.search(text):
            query = json.loads(call[1])["arguments"]["query"]
            turn["query"] = query
            if end < len(ids):
                turn["results"] = [DOCUMENTS[query]] if query in DOCUMENTS else []
        turns.append(turn)
    return turns


def row_of(tokenizer, rollout):
    """Return a rollout of the batch as a row.

    The tool agent ends at a limit unless the last turn is complete and has no call.
    """
    turns = turns_of(tokenizer, rollout)
    has_end = rollout["responses"][-1] == tokenizer.eos_token_id
    reason = "stop" if has_end and "query" not in turns[-1] else "length"
    return {**GOLD, "turns": turns, "finish_reason": reason}


@pytest.fixture(scope="module")
def groups(trained):
    """Return the groups of the batch, with scores that this process computes from the tokens."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(trained.folder)
    recipe = rr.recipe("stepsearch", SETTINGS)
    groups = []
    for members in v1.groups_of(trained.batch).values():
        rows = [row_of(tokenizer, member) for member in members]
        rollouts = [rr.decode_row(row) for row in rows]
        spans = [[tuple(turn["token_span"]) for turn in row["turns"]] for row in rows]
        scores = recipe(rollouts)
        groups.append(
            SimpleNamespace(members=members, rollouts=rollouts, spans=spans, scores=scores)
        )
    return groups


def test_the_rollouts_of_the_batch_differ_in_their_turns(groups):
    assert [len(group.members) for group in groups] == [GROUP] * len(NAMES)
    assert {len(spans) for group in groups for spans in group.spans} >= {1, 2, 3}
    rewards = {entry for group in groups for score in group.scores for entry in score.turns}
    assert len(rewards) > 3


def test_a_response_without_an_answer_earns_nothing_else(trained, groups):
    cut = [
        score.turns
        for group in groups
        for rollout, score in zip(group.rollouts, group.scores, strict=True)
        if rollout.finish_reason == "length"
    ]
    assert bool(cut) is trained.is_cut
    for entries in cut:
        assert entries == (*[None] * (len(entries) - 1), -1.0)


def credit_of_batch(method, groups):
    """Return the advantages of the turns of each rollout of the batch."""
    if method == "gdpo":
        members = [
            gdpo(
                [
                    {name: [score.components[name]] for name in ("answer", "gain")}
                    for score in group
                ],
                weights={"gain": 0.5},
            )
            for group in (group.scores for group in groups)
        ]
        tokens = [[sum(m["response_mask"])] for group in groups for m in group.members]
        whitened = whiten([member for group in members for member in group], tokens)
        spans = [spans for group in groups for spans in group.spans]
        return [own * len(each) for own, each in zip(whitened, spans, strict=True)]
    credit = []
    for group in groups:
        options = {}
        if method == "gigpo":
            options["anchors"] = [anchors_of(rollout.steps()) for rollout in group.rollouts]
        credit += credit_of_groups(group.scores, [range(GROUP)], method, **options)
    return credit


def test_advantages_equal_the_credit_of_the_same_rollouts(trained, groups):
    values = set()
    credit = credit_of_batch(trained.method, groups)
    members = [member for group in groups for member in group.members]
    spans = [spans for group in groups for spans in group.spans]
    for own, each, member in zip(credit, spans, members, strict=True):
        expected = spread(own, each, len(member["responses"]))
        assert member["advantages"] == pytest.approx(expected, abs=1e-5)
        values.update(expected)
    assert len(values) > 2


def test_rewards_are_at_the_last_token_of_each_turn(trained, groups):
    for group in groups:
        for score, spans, member in zip(group.scores, group.spans, group.members, strict=True):
            if trained.method != "return":  # rm_scores contains advantages
                info = member["extra_fields"]["reward_extra_info"]
                assert info["rag_value"] == pytest.approx(score.value)
                continue
            expected = [0.0] * len(member["responses"])
            for entry, (_, end) in zip(score.turns, spans, strict=True):
                expected[end - 1] = entry or 0.0
            assert member["rm_scores"] == pytest.approx(expected, abs=1e-6)
