"""The committed checkpoint: it loads, it binds and cites, and E tells grounding from memory."""

from __future__ import annotations

import json
import shutil
from statistics import fmean

import pytest
import torch

import rag_rewards as rr
from rag_rewards.backends.transformers import TransformersPolicy
from rag_rewards.errors import UsageError
from rag_rewards.evidence.protocols import Models
from rag_rewards.rollout import Score
from rag_rewards.scorer import Scorer
from rag_rewards.tiny_world.formats import FORMATS, LEAR, PLAIN, TRUTHRL
from rag_rewards.tiny_world.generation import rollouts
from rag_rewards.tiny_world.measures import measure
from rag_rewards.tiny_world.model import CHECKPOINT, load, new_tokenizer
from rag_rewards.tiny_world.pretrain import Lesson, pretrain
from rag_rewards.tiny_world.world import Question, questions

COUNT = 300


@pytest.fixture(scope="module")
def loaded():
    torch.set_num_threads(1)
    return load()


@pytest.fixture(scope="module")
def contributions(loaded):
    """E of what grounding and what memory would say, on the same questions, by kind."""
    policy = TransformersPolicy(*loaded)
    known = list(questions(3 * COUNT, "contributions", 0.0))
    against = [each for each in known if each.answer != each.memorized_answer][:COUNT]
    alike = [each for each in known if each.answer == each.memorized_answer][:COUNT]
    said = {
        "grounded": [(each, each.answer) for each in against],
        "known by heart": [(each, each.answer) for each in alike],
        "memory": [(each, each.memorized_answer) for each in against],
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
        for name, pairs in said.items()
    }


def auc(higher, lower):
    """The chance that one of `higher` is above one of `lower`; ties count half."""
    above = sum((a > b) + 0.5 * (a == b) for a in higher for b in lower)
    return above / (len(higher) * len(lower))


@pytest.mark.slow
def test_contribution_tells_grounding_from_memory(contributions):
    assert len(contributions["grounded"]) == COUNT
    assert auc(contributions["grounded"], contributions["memory"]) >= 0.95


def test_what_is_known_by_heart_earns_less_than_what_had_to_be_read(contributions):
    means = {name: fmean(values) for name, values in contributions.items()}
    assert means["grounded"] > means["known by heart"] + 1 > means["memory"] + 1


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_the_base_binds_and_has_bad_habits(loaded, form):
    asked = questions(200, "base")
    greedy = measure(*loaded, form, asked)
    sampled = measure(*loaded, form, asked, temperature=1.0)
    answer = "answerable right" if form is TRUTHRL else "answer"
    assert greedy[answer] > 0.85
    assert 0.4 < sampled[answer] < 0.85  # there is something left to teach
    assert sampled.get("abstains", sampled.get("abstention")) < 0.4


def test_the_same_seed_gives_the_same_responses(loaded):
    asked = questions(20, "twice")
    first, second, other = (
        [each.response for each in rollouts(*loaded, LEAR, asked, temperature=1.0, seed=seed)]
        for seed in (3, 3, 4)
    )
    assert first == second != other


@pytest.mark.slow
def test_pretraining_is_reproducible(tmp_path, monkeypatch):
    short = (Lesson("short", 3, FORMATS, 0.4, noisy=True),)
    monkeypatch.setattr("rag_rewards.tiny_world.pretrain.FIRST", short)
    monkeypatch.setattr("rag_rewards.tiny_world.pretrain.SECOND", short)
    for name in ("one", "two"):
        pretrain(5, tmp_path / name, verbose=False)
    one, two = (tmp_path / name / "model.safetensors" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    assert json.loads((tmp_path / "one" / "made.json").read_text())["seed"] == 5
    load(tmp_path / "one")


def test_the_checkpoint_is_small():
    assert sum(file.stat().st_size for file in CHECKPOINT.iterdir()) < 2_200_000


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(
        UsageError, match=r"not contain a model; create one with python -m rag_rewards\.tiny_world"
    ):
        load(tmp_path)


def test_a_checkpoint_of_other_words_is_refused(tmp_path):
    shutil.copytree(CHECKPOINT, tmp_path / "other")
    words = new_tokenizer()
    words.add_tokens(["peony"])
    words.save_pretrained(tmp_path / "other")
    with pytest.raises(UsageError, match="the vocabulary is not that of the tiny world"):
        load(tmp_path / "other")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"hidden_size": 64}, "cannot load the model"),
        ({"layer_types": ["conv"] * 5, "num_hidden_layers": 5}, "is missing or unexpected"),
    ],
    ids=["other shapes", "another layer"],
)
def test_a_checkpoint_of_another_model_is_refused(tmp_path, changes, why):
    shutil.copytree(CHECKPOINT, tmp_path / "other")
    file = tmp_path / "other" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    with pytest.raises(UsageError, match=why):
        load(tmp_path / "other")


def test_scores_do_not_depend_on_who_sits_beside(loaded):
    asked = [Question((("Ada", "rose"), ("Ben", "lily")), "Ben", "lily")] * 3
    said = [
        rr.decode_row({**PLAIN.row(each), "response": text, "group": "g"})
        for each, text in zip(asked, ("lily [2]", "rose [1]", "lily [1]"), strict=True)
    ]
    recipe = rr.recipe("ctrl-rag-clr")
    scorer = Scorer(recipe, Models(policy=TransformersPolicy(*loaded)), prompt=PLAIN.prompt)
    together = scorer.score_each(said)
    alone = [scorer.score_each([each])[0] for each in said]
    for one, other in zip(together, alone, strict=True):
        assert isinstance(one, Score)
        assert one.value == pytest.approx(other.value, abs=1e-4)
