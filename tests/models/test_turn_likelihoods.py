"""Likelihoods of answers after turns: equal to naive scoring, with the tokens of the formula."""

from __future__ import annotations

from functools import partial

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import tiny_models
import torch
import turn_rollouts
from turn_rollouts import ANSWERS, token_ids

from rag_rewards.evidence.needs import before_answer
from rag_rewards.evidence.protocols import ScoreRequest
from rag_rewards.models.transformers import TransformersPolicy
from rag_rewards.models.trie import build_trie, forward_tokens, naive_tokens, walk

torch.set_num_threads(1)
TOKENIZER = tiny_models.make_tokenizer()
FAMILIES = sorted(tiny_models.configurations())
ENCODE = partial(TOKENIZER.encode, add_special_tokens=False)
TEMPLATE = tuple(ENCODE(before_answer("igpo")))
ALIASES = [tuple(ENCODE(alias)) for alias in ANSWERS]


def group():
    return turn_rollouts.group(tiny_models.VOCABULARY)


def naive(model, context, answer):
    ids = torch.tensor([context + answer])
    with torch.no_grad():
        rows = torch.log_softmax(model(ids).logits[0].float(), -1)
    return [rows[len(context) - 1 + t, y].item() for t, y in enumerate(answer)]


def contexts_of(row):
    starts = [turn.token_span[0] for turn in row.turns]
    return [row.prompt_token_ids + row.response_token_ids[:start] for start in starts]


def check(model, rows):
    for row in rows[:2]:
        expected = turn_rollouts.naive_turn_logprobs(row, ENCODE, partial(naive, model))
        given = turn_rollouts.turn_logprobs_of(row)
        assert turn_rollouts.largest_difference(given, expected) < 1e-4
    assert rows[2].turn_logprobs is None  # one turn needs no likelihood


@pytest.mark.parametrize("family", FAMILIES)
def test_the_values_of_naive_scoring(family):
    policy = TransformersPolicy(tiny_models.make_model(family), TOKENIZER, prefill=16, rows=8)
    check(policy.model, turn_rollouts.with_turn_logprobs(policy, group()))


def test_few_rows_of_logits_at_a_time():
    policy = TransformersPolicy(tiny_models.make_model("qwen2"), TOKENIZER, rows=1)
    check(policy.model, turn_rollouts.with_turn_logprobs(policy, group()))


def test_new_weights_give_new_values():
    model = tiny_models.make_model("qwen2")
    policy = TransformersPolicy(model, TOKENIZER)
    before = turn_rollouts.with_turn_logprobs(policy, group())
    policy.refresh(tiny_models.make_model("qwen2", seed=1).state_dict(), 1)
    after = turn_rollouts.with_turn_logprobs(policy, group())
    check(model, after)
    pair = map(turn_rollouts.turn_logprobs_of, (before[0], after[0]))
    assert turn_rollouts.largest_difference(*pair) > 0.1


def test_the_tokens_of_the_formula():
    policy = TransformersPolicy(tiny_models.make_model("qwen2"), TOKENIZER)
    turn_rollouts.with_turn_logprobs(
        policy, group()[:1]
    )  # the first call chooses the method of scoring
    before = policy.usage.computed, policy.usage.rows
    rows = group()[:2]
    turn_rollouts.with_turn_logprobs(policy, rows)
    lengths = [list(map(len, contexts_of(row))) for row in rows]
    searches = sum(len(row.turns) - 1 for row in rows)
    alias_tokens = sum(len(alias) - 1 for alias in ALIASES)
    prompt = lengths[0][0]
    formula = prompt + sum(each[-1] - prompt for each in lengths)
    formula += (1 + searches) * (len(TEMPLATE) + alias_tokens)
    assert policy.usage.computed - before[0] == formula
    # One row predicts the first tokens of all aliases.
    assert policy.usage.rows - before[1] == (1 + searches) * (1 + alias_tokens)


def test_the_example_of_the_documentation():
    """c = 200, 760, 1,320, 1,880, h = 14, one alias of 4 tokens, 8 rollouts."""
    prompt, template, answer = (tuple(token_ids(n, n, 320)) for n in (200, 14, 4))
    contexts = {prompt + template: None}
    count = 0
    for g in range(8):
        whole = (*prompt, 1000 + g, *token_ids(1679, 7 + g, 320))
        for length in (200, 760, 1320, 1880):
            contexts[whole[:length] + template] = None
            count += length + len(template) + len(answer) - 1
    request = ScoreRequest(tuple(contexts), (answer,))
    assert forward_tokens(request) == 14_065
    assert count == 33_824
    assert naive_tokens(request) == count - 7 * (200 + 14 + 3)  # the prompt of each rollout


def test_ten_thousand_turns_do_not_recurse():
    contexts = [tuple(range(n)) for n in range(1, 2_000)]
    root = build_trie(contexts, range(len(contexts)))
    assert sum(len(node.tokens) for node in walk(root)) == 1_999
    assert sum(1 for _ in walk(root)) == 1_999
