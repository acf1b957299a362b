"""The committed checkpoint finds and cites documents; E separates grounded answers from memory."""

from __future__ import annotations

import json
import shutil
from statistics import fmean

import pytest
import torch
from tiny_search.pretrain import Lesson, pretrain

import rag_rewards as rr
from rag_rewards.errors import UsageError
from rag_rewards.evidence.protocols import Models
from rag_rewards.models.transformers import TransformersPolicy
from rag_rewards.rollout import Score
from rag_rewards.scorer import Scorer
from rag_rewards.tiny_world.formats import FORMATS, LEAR, PLAIN, TRUTHRL
from rag_rewards.tiny_world.generation import rollouts
from rag_rewards.tiny_world.measures import measure
from rag_rewards.tiny_world.model import CHECKPOINT, load, new_tokenizer
from rag_rewards.tiny_world.world import WorldQuestion, questions

COUNT = 300


@pytest.fixture(scope="module")
def loaded():
    torch.set_num_threads(1)
    return load()


@pytest.fixture(scope="module")
def contributions(loaded):
    """Return E of grounded and of memorized answers to the same questions, by kind."""
    policy = TransformersPolicy(*loaded)
    answerable = list(questions(3 * COUNT, "contributions", 0.0))
    differ = [each for each in answerable if each.answer != each.memorized_answer][:COUNT]
    agree = [each for each in answerable if each.answer == each.memorized_answer][:COUNT]
    answers = {
        "grounded": [(each, each.answer) for each in differ],
        "grounded and memorized": [(each, each.answer) for each in agree],
        "memorized": [(each, each.memorized_answer) for each in differ],
    }
    scorer = Scorer(rr.recipe("ctrl-rag-clr"), Models(policy=policy), prompt=PLAIN.prompt)
    return {
        name: [
            score.components["evidential_contribution"]
            for score in scorer.score_each(
                [
                    rr.decode_row(
                        {
                            **PLAIN.row(each),
                            "response": PLAIN.write(each.person, flower, each.support),
                        }
                    )
                    for each, flower in pairs
                ]
            )
        ]
        for name, pairs in answers.items()
    }


def auc(higher, lower):
    """Return the probability that a value of `higher` is above one of `lower`; ties count half."""
    above = sum((a > b) + 0.5 * (a == b) for a in higher for b in lower)
    return above / (len(higher) * len(lower))


@pytest.mark.slow
def test_contribution_separates_grounded_from_memorized_answers(contributions):
    assert len(contributions["grounded"]) == COUNT
    assert auc(contributions["grounded"], contributions["memorized"]) >= 0.95


@pytest.mark.slow
def test_memorized_answers_have_a_smaller_contribution(contributions):
    means = {name: fmean(values) for name, values in contributions.items()}
    assert means["grounded"] > means["grounded and memorized"] + 1 > means["memorized"] + 1


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_the_base_model_finds_documents_and_makes_mistakes(loaded, form):
    base_questions = questions(200, "base")
    greedy = measure(*loaded, form, base_questions)
    sampled = measure(*loaded, form, base_questions, temperature=1.0)
    answer = "answerable right" if form is TRUTHRL else "answer"
    assert greedy[answer] > 0.85
    assert 0.4 < sampled[answer] < 0.85  # the reward can still improve the model
    assert sampled.get("abstains", sampled.get("abstention")) < 0.4


def test_the_same_seed_gives_the_same_responses(loaded):
    fixed = questions(20, "twice")
    first, second, other = (
        [each.response for each in rollouts(*loaded, LEAR, fixed, temperature=1.0, seed=seed)]
        for seed in (3, 3, 4)
    )
    assert first == second != other


@pytest.mark.slow
def test_pretraining_is_reproducible(tmp_path, monkeypatch):
    short = (Lesson("short", 3, FORMATS, 0.4, noisy=True),)
    monkeypatch.setattr("tiny_search.pretrain.FIRST", short)
    monkeypatch.setattr("tiny_search.pretrain.SECOND", short)
    for name in ("one", "two"):
        pretrain(5, tmp_path / name, verbose=False)
    one, two = (tmp_path / name / "model.safetensors" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    assert json.loads((tmp_path / "one" / "made.json").read_text())["seed"] == 5
    load(tmp_path / "one")


def test_the_checkpoint_is_small():
    assert sum(file.stat().st_size for file in CHECKPOINT.iterdir()) < 2_200_000


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"not contain a model; docs/tiny-world\.md explains"):
        load(tmp_path)


def test_a_checkpoint_with_another_vocabulary_is_refused(tmp_path):
    shutil.copytree(CHECKPOINT, tmp_path / "other")
    tokenizer = new_tokenizer()
    tokenizer.add_tokens(["peony"])
    tokenizer.save_pretrained(tmp_path / "other")
    with pytest.raises(UsageError, match="the vocabulary is not that of the tiny world"):
        load(tmp_path / "other")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 64}, "cannot load the model"),
        ({"layer_types": ["conv"] * 5, "num_hidden_layers": 5}, "is missing or unexpected"),
    ],
    ids=["other shapes", "another layer"],
)
def test_a_checkpoint_of_another_model_is_refused(tmp_path, changes, message):
    shutil.copytree(CHECKPOINT, tmp_path / "other")
    file = tmp_path / "other" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    with pytest.raises(UsageError, match=message):
        load(tmp_path / "other")


def test_scores_do_not_depend_on_other_rollouts_of_the_batch(loaded):
    same_questions = [WorldQuestion((("Ada", "rose"), ("Ben", "lily")), "Ben", "lily")] * 3
    rows = [
        rr.decode_row({**PLAIN.row(each), "response": text, "group": "g"})
        for each, text in zip(same_questions, ("lily [2]", "rose [1]", "lily [1]"), strict=True)
    ]
    recipe = rr.recipe("ctrl-rag-clr")
    scorer = Scorer(recipe, Models(policy=TransformersPolicy(*loaded)), prompt=PLAIN.prompt)
    together = scorer.score_each(rows)
    alone = [scorer.score_each([each])[0] for each in rows]
    for one, other in zip(together, alone, strict=True):
        assert isinstance(one, Score)
        assert one.value == pytest.approx(other.value, abs=1e-4)
