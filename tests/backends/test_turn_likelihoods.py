"""Likelihoods of answers after turns: equal to naive scoring, with the tokens of the formula."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import tiny_models
import torch

from rag_rewards import decode_row, recipe
from rag_rewards.backends.transformers import TransformersPolicy
from rag_rewards.backends.trie import build_trie, forward_tokens, naive_tokens, walk
from rag_rewards.evidence.answer_template import before_answer
from rag_rewards.evidence.gather import Gatherer
from rag_rewards.evidence.protocols import Models, ScoreRequest

torch.set_num_threads(1)
TOKENIZER = tiny_models.make_tokenizer()
FAMILIES = sorted(tiny_models.configurations())
TEMPLATE = tuple(TOKENIZER.encode(before_answer("igpo"), add_special_tokens=False))
ANSWERS = ["river", "Paris"]
ALIASES = [tuple(TOKENIZER.encode(alias, add_special_tokens=False)) for alias in ANSWERS]
OWN, REPLY = "<think>a</think><search>the river</search>", "<information>{}</information>"


def tokens(count, seed):
    draw = random.Random(seed)
    return [draw.randrange(3, tiny_models.VOCABULARY) for _ in range(count)]


def rollout(at, turns, prompt):
    """Return a rollout of token ids, with searches of 7 own tokens and replies of 9 to 12."""
    ids, given = [], []
    for t in range(turns):
        start = len(ids)
        ids += tokens(7, 100 * at + t)
        turn = {"text": OWN, "token_span": [start, len(ids)], "results": [{"text": "x"}]}
        if t == turns - 1:
            turn = {"text": "<answer>Paris</answer>", "token_span": [start, len(ids)]}
        else:
            ids += tokens(9 + at, 100 * at + 50 + t)
        given.append(turn)
    fields = {"prompt_token_ids": prompt, "response_token_ids": ids, "turns": given}
    return decode_row(fields | {"id": at, "group": "g", "answers": ANSWERS})


def group():
    prompt = tokens(20, 1)
    return [rollout(0, 3, prompt), rollout(1, 4, prompt), rollout(2, 1, prompt)]


def gather(policy, rows, **settings):
    reward = recipe("igpo", settings)
    gatherer = Gatherer(Models(policy=policy), prompt=reward.prompt, selfcheck=False)
    results = gatherer.gather_sync(reward, rows)
    assert not any(isinstance(each, Exception) for each in results), results
    return results


def naive(model, context, answer):
    ids = torch.tensor([context + answer])
    with torch.no_grad():
        rows = torch.log_softmax(model(ids).logits[0].float(), -1)
    return [rows[len(context) - 1 + t, y].item() for t, y in enumerate(answer)]


def contexts_of(row):
    starts = [turn.token_span[0] for turn in row.turns]
    return [row.prompt_token_ids + row.response_token_ids[:start] for start in starts]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_values_of_naive_scoring(family):
    policy = TransformersPolicy(tiny_models.make_model(family), TOKENIZER, prefill=16, rows=8)
    results = gather(policy, group(), **{"gain.alias": "best"})
    # Linear attention sums in another order when it continues from a state.
    tolerance = 5e-4 if family == "qwen3-next" else 1e-4
    for row in results[:2]:
        given = (row.turn_logprobs.prior, *row.turn_logprobs.after)
        for context, per_alias in zip(contexts_of(row), given, strict=True):
            for answer, values in zip(ALIASES, per_alias, strict=True):
                expected = naive(policy.model, context + TEMPLATE, answer)
                assert values == pytest.approx(expected, abs=tolerance)
    assert results[2].turn_logprobs is None  # one turn needs no likelihood


def test_the_tokens_of_the_formula():
    policy = TransformersPolicy(tiny_models.make_model("qwen2"), TOKENIZER)
    gather(policy, group()[:1])  # the first call chooses the method of scoring
    before = policy.usage.computed, policy.usage.rows
    rows = group()[:2]
    gather(policy, rows, **{"gain.alias": "best"})
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
    prompt, template, answer = (tuple(tokens(n, n)) for n in (200, 14, 4))
    contexts = {prompt + template: None}
    count = 0
    for g in range(8):
        whole = (*prompt, 1000 + g, *tokens(1679, 7 + g))
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
