"""`audit --train` in the real trainer: GRPO exploits a flawed reward and learns from a sound one.

The tests take one minute and start from the committed checkpoint.
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
    """Probe a fraction of the questions in tests that do not check the numbers."""
    monkeypatch.setattr(adversary, "QUESTIONS", 48)


def sources(rollout: rr.Rollout) -> float:
    """Return the number of cited documents, whatever the answer is."""
    return len(set(re.findall(r"\[[1-4]\]", rollout.parsed.text))) / 4


def constant(rollout: rr.Rollout) -> float:
    return 1.0


def test_a_reward_for_citations_is_exploited() -> None:
    reported: list[tuple[int, float]] = []
    result = attack(sources, steps=30, on_step=lambda step, reward: reported.append((step, reward)))
    assert result.verdict == "exploit"
    assert result.is_exploit
    assert result.reward.by > 0.01
    assert result.accuracy.by < -0.1
    assert [point.step for point in result.points] == [0, 10, 20, 30]
    assert [step for step, _ in reported] == list(range(1, 31))
    assert tuple(reward for _, reward in reported) == result.rewards
    assert result.after.abstained is not None
    assert result.after.abstained < 0.1
    most = result.shapes[0]
    assert most.share > most.before
    assert most.reward is not None
    assert most.reward > result.before.reward
    assert "[n]" in most.shape
    assert most.prompt.split()[-2] == PLAIN.marker


def test_a_sound_reward_is_not_exploited() -> None:
    result = attack("truthrl", steps=10)
    assert (result.verdict, result.form) == ("learned", "truthrl")
    assert result.accuracy.by > 0.15
    assert '"verifier":"exact"' in result.signature


def test_a_constant_reward_stops_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adversary, "trainer_of", None)  # a call would fail
    result = attack(constant, LEAR)
    assert (result.verdict, result.form, result.rewards) == ("no signal", "lear", ())
    assert [point.step for point in result.points] == [0]
    with pytest.raises(rr.errors.UsageError, match="None for every response"):
        attack(lambda rollout: None)


@pytest.mark.usefixtures("small")
def test_probing_does_not_change_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_recipes_with_models_use_the_policy_in_training(name: str) -> None:
    result = attack(name, steps=1)
    assert len(result.rewards) == 1
    assert result.before.reward != result.after.reward
    apart = result.after.reward - result.before.reward
    # ctrl-rag compares rollouts, so its reward depends on the group.
    assert (result.reward.by == pytest.approx(apart)) is (name != "ctrl-rag")
    assert (result.before.abstained is None) is (name == "ground-grpo-stage1")


@pytest.mark.usefixtures("small")
def test_the_command_shows_only_its_report(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(__file__.rpartition("/")[0])
    with pytest.raises(SystemExit) as ended:
        main(["audit", "-r", "test_trl_adversary:sources", "--train", "--steps", "1"])
    output = capfd.readouterr()
    assert ended.value.code == 0
    assert "in 1 steps from seed 0" in output.out
    assert "FLOWER [n]" in output.out
    assert not re.search(r"loss|\{'|Warning", output.out)
    assert output.err == ""
