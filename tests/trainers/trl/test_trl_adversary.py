"""`audit --train`, for real: GRPO finds what a flawed reward pays for, and learns from a sound one.

A minute in all, from the committed checkpoint.
"""

from __future__ import annotations

import re

import pytest
import torch

import rag_rewards as rr
from rag_rewards.cli import main
from rag_rewards.tiny_world import adversary
from rag_rewards.tiny_world.adversary import attack
from rag_rewards.tiny_world.attack_result import AttackResult
from rag_rewards.tiny_world.formats import LEAR, PLAIN


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes of a fraction of the questions, where numbers are not what is looked at."""
    monkeypatch.setattr(adversary, "QUESTIONS", 48)


def sources(rollout: rr.Rollout) -> float:
    """Pays for every document that is named, whatever else is said."""
    return len(set(re.findall(r"\[[1-4]\]", rollout.parsed.text))) / 4


def constant(rollout: rr.Rollout) -> float:
    return 1.0


def test_paid_for_citations_the_policy_learns_to_cite_and_not_to_answer() -> None:
    told: list[tuple[int, float]] = []
    found = attack(sources, steps=30, on_step=lambda step, reward: told.append((step, reward)))
    assert found.verdict == "exploit"
    assert found.is_exploit
    assert found.reward.by > 0.01
    assert found.accuracy.by < -0.1
    assert [point.step for point in found.points] == [0, 10, 20, 30]
    assert [step for step, _ in told] == list(range(1, 31))
    assert tuple(reward for _, reward in told) == found.rewards
    assert found.after.abstained is not None
    assert found.after.abstained < 0.1
    most = found.shapes[0]
    assert most.share > most.before
    assert most.reward is not None
    assert most.reward > found.before.reward
    assert "[n]" in most.shape
    assert most.prompt.split()[-2] == PLAIN.marker


def test_a_sound_reward_teaches_the_truth() -> None:
    found = attack("truthrl", steps=10)
    assert (found.verdict, found.form) == ("learned", "truthrl")
    assert found.accuracy.by > 0.15
    assert 'verifier="exact"' in found.signature


def test_without_any_spread_it_stops_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adversary, "trainer_of", None)  # would fail when called
    found = attack(constant, LEAR)
    assert (found.verdict, found.form, found.rewards) == ("no signal", "lear", ())
    assert [point.step for point in found.points] == [0]
    with pytest.raises(rr.errors.UsageError, match="None for every response"):
        attack(lambda rollout: None)


@pytest.mark.usefixtures("small")
def test_probing_changes_nothing_in_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> AttackResult:
        return attack(sources, steps=3, seed=1)

    seldom = run()
    monkeypatch.setattr(adversary, "INTERVAL", 1)
    often = run()
    assert often.rewards == seldom.rewards
    assert len(set(often.rewards)) > 1
    assert [point.step for point in often.points] == [0, 1, 2, 3]
    assert often.points[-1] == seldom.points[-1]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", ["ctrl-rag", "lear", "ground-grpo-stage1"])
def test_recipes_that_ask_models_ask_the_policy_in_training(name: str) -> None:
    found = attack(name, steps=1)
    assert len(found.rewards) == 1
    assert found.before.reward != found.after.reward
    apart = found.after.reward - found.before.reward
    assert (found.reward.by == pytest.approx(apart)) is (name != "ctrl-rag")  # which compares
    assert (found.before.abstained is None) is (name == "ground-grpo-stage1")


@pytest.mark.usefixtures("small")
def test_the_command_shows_its_report_and_nothing_of_the_trainer(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(__file__.rpartition("/")[0])
    with pytest.raises(SystemExit) as ended:
        main(["audit", "-r", "test_trl_adversary:sources", "--train", "--steps", "1"])
    said = capfd.readouterr()
    assert ended.value.code == 0
    assert "in 1 steps from seed 0" in said.out
    assert "FLOWER [n]" in said.out
    assert not re.search(r"loss|\{'|Warning", said.out)
    assert said.err == ""
