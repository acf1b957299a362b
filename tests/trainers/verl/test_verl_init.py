"""Start scripts of `rag-rewards init`, read by the code of the trainer."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1]))
from start_scripts import (  # noqa: F401
    test_an_unknown_setting_is_named,
    test_doctor_accepts_the_environment_of_the_tests,
    test_the_script_of_a_search_agent_requires_a_search_engine,
    test_the_trainer_accepts_components,
    test_the_trainer_accepts_every_setting,
    trainer,
    written_settings,
)


def test_a_script_without_validation_logs_components(tmp_path: Path) -> None:
    """verl itself logs the components of a reward only in a validation."""
    words = written_settings("verl", "arena", tmp_path / "run")
    assert "trainer.test_freq=-1" in words
    assert "trainer.v1.sampler.custom_sampler.name=RagReplayBuffer" in words


@pytest.mark.parametrize(
    "name", ["a,b", "a{c", "step=100", "train file's.parquet", "my model (v2)", "~/x", "a#b", "123"]
)
def test_hydra_reads_paths_unchanged(tmp_path: Path, name: str) -> None:
    from hydra import compose, initialize_config_module

    from rag_rewards.cli.init import write
    from rag_rewards.loading import RecipeSpec
    from rag_rewards.models.model_options import ModelOptions
    from rag_rewards.scripts.start import start_of

    start = start_of(
        RecipeSpec(recipe="arena"),
        ModelOptions(judge="http://h", judge_model=name),
        name,
        name,
        None,
    )
    write("verl", start, tmp_path / "run")
    text = (tmp_path / "run" / "train.sh").read_text()
    array = text[text.index("settings=(") + len("settings=(") : text.index("\n)\n")]
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=shlex.split(array, comments=True))
    assert config.data.train_files == config.actor_rollout_ref.model.path == name
    assert config.reward.custom_reward_function.reward_kwargs.judge_model == name
