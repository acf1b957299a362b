"""Questions of other types: their answers against an independent solver, and their responses."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks" / "teaches"))

from question_types import FORMS, KINDS, LESSONS, example, noisy, questions, right
from supervised import separate_copy
from tiny_search.pretrain import batch

from rag_rewards.rows import decode_row
from rag_rewards.tiny_world.formats import ARENA, GROUND, TRUTHRL
from rag_rewards.tiny_world.generation import MAX_TOKENS
from rag_rewards.tiny_world.measures import ground_measures, score_all, truthrl_measures
from rag_rewards.tiny_world.model import load, new_tokenizer
from rag_rewards.tiny_world.world import FLOWERS


def solve(prompt: str) -> str | None:
    """Return the answer of a prompt, or None if its documents do not contain it."""
    context, _, asked = prompt.partition(" ?truthrl ")
    facts = dict(document.split()[:2] for document in context.split(" . "))
    words = asked.split()
    if words[-1] in FLOWERS:
        return next((who for who in words[:2] if facts.get(who) == words[2]), None)
    flowers = [facts.get(facts.get(who), facts.get(who)) for who in words]
    return " ".join(flowers) if set(flowers) <= set(FLOWERS) else None


@pytest.mark.parametrize("kind", KINDS)
def test_answers_against_a_naive_solver(kind):
    drawn = questions(300, 1, (kind,), 0.5)
    assert {each.answerable for each in drawn} == {True, False}
    for each in drawn:
        answer = solve(TRUTHRL.row(each)["prompt"])
        assert answer == (each.answer if each.answerable else None)
        assert len(each.steps) == each.answerable * (2 if kind in ("hop", "both") else 1)


@pytest.mark.parametrize("kind", KINDS)
def test_right_responses_earn_the_whole_reward(kind):
    drawn = questions(60, 2, (kind,))

    def samples(form):
        return [decode_row({**form.row(q), "response": right(q).write(form)}) for q in drawn]

    assert truthrl_measures(samples(TRUTHRL))["hallucination"] == 0
    scores = score_all("arena", samples(ARENA), {"relevance.notation": "any"})
    assert {score.value for score in scores} == {13.0}
    grounded = ground_measures(samples(GROUND))
    assert grounded["format"] == grounded["f1_gr"] == 1.0
    if kind != "both":  # the documents of one answer do not entail both
        assert grounded["trust-score"] == 1.0


def test_responses_of_one_person_have_the_known_formats():
    for each in questions(30, 3, ("one",)):
        for form in FORMS:
            expected = form.write(each.person, each.documented_answer, each.support)
            assert right(each).write(form) == expected


def test_the_model_knows_all_words_of_the_pre_training():
    rng, tokenizer = random.Random(0), new_tokenizer()
    for lesson in LESSONS:
        assert batch(tokenizer, rng, lesson)[0].shape[0] > 0
        for text, is_response in (piece for _ in range(100) for piece in example(rng, lesson)):
            ids = tokenizer.encode(text, add_special_tokens=False)
            assert tokenizer.pad_token_id not in ids
            assert not is_response or len(ids) < MAX_TOKENS


def test_a_copy_does_not_follow_a_model_whose_forward_a_trainer_has_replaced():
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    model, tokenizer = load()
    model.forward = model.forward  # as a trainer does
    copy = separate_copy(model)
    ids = torch.tensor([tokenizer.encode("Ada rose [1] . ? Ada")])
    with torch.no_grad():
        before = copy(input_ids=ids).logits
        assert torch.equal(before, model(input_ids=ids).logits)
        for weight in model.parameters():
            weight.mul_(1.5)
        assert not torch.equal(before, model(input_ids=ids).logits)
        assert torch.equal(before, copy(input_ids=ids).logits)


def test_a_noisy_model_is_sometimes_right_and_sometimes_wrong():
    rng = random.Random(1)
    for kind in KINDS:
        drawn = questions(200, 4, (kind,))
        shares = [noisy(rng, each).answer == right(each).answer for each in drawn]
        assert 0.3 < sum(shares) / len(shares) < 0.7
