"""A recipe inside Axolotl: its loader of rewards, its configuration and its GRPO trainer."""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from axolotl.core.trainers.grpo import GRPOStrategy
from axolotl.utils.dict import DictDefault
from axolotl.utils.schemas.config import AxolotlInputConfig
from datasets import Dataset
from rag_rewards_adapters.trl import RagReward

from rag_rewards import Rollout
from rag_rewards.cli import doctor, main
from rag_rewards.trainers import TRAINERS

TESTS = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TESTS / "trainers"), str(TESTS / "models"), str(TESTS.parent / "docs")]
from build_matrix import STD_FLOOR, cell  # noqa: E402
from golden import GOLD, GROUPS, MODELS, RECIPES, EvidenceGatherer, Group, scored  # noqa: E402
from tiny_models import make_model, make_tokenizer  # noqa: E402

PAGE = (TESTS.parent / "docs" / "axolotl.md").read_text("utf-8")
LOADED = "rewards"


def page_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language} axolotl\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def run(*words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert not ended.value.code


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder from which Axolotl imports modules."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, LOADED, raising=False)
    (tmp_path / "examples").symlink_to(TESTS.parent / "examples")
    return tmp_path


def configuration(path: Path) -> DictDefault:
    """Return a configuration after the validation by Axolotl's schema."""
    checked = AxolotlInputConfig(**yaml.safe_load(path.read_text("utf-8")))
    return DictDefault(checked.model_dump(exclude_none=True))


def trainer_of(
    folder: Path, reward_funcs: list[Any], rows: list[dict[str, Any]], **args: Any
) -> Any:
    """Return Axolotl's trainer with a tiny model."""
    defaults = {
        "output_dir": str(folder), "per_device_train_batch_size": 4, "num_generations": 4,
        "max_completion_length": 8, "max_steps": 1, "logging_steps": 1, "report_to": "none",
        "save_strategy": "no", "use_cpu": True, "bf16": False,
    }  # fmt: skip
    kind = GRPOStrategy.get_training_args_class()
    names = {field.name for field in dataclasses.fields(kind)}
    known = {name: value for name, value in (defaults | args).items() if name in names}
    return GRPOStrategy.get_trainer_class()(
        model=make_model("qwen2"),
        processing_class=make_tokenizer(),
        reward_funcs=reward_funcs,
        args=kind(**known),  # as its builder does, without the options of asynchronous training
        train_dataset=Dataset.from_list(rows),
    )


def test_the_commands_of_the_page_give_a_configuration_that_trains(folder: Path) -> None:
    """The rows, the reward and the arguments of a step are those of the written files."""
    for line in "".join(page_blocks("sh")).splitlines():
        run(*line.split()[1:])
    importlib.invalidate_caches()
    sys.path.insert(0, str(folder / "run"))
    try:
        cfg = configuration(folder / "run" / "config.yaml")
        [rewards] = GRPOStrategy.set_trainer_args(cfg)
    finally:
        sys.path.remove(str(folder / "run"))
    assert [type(reward) for reward in rewards] == [RagReward]
    assert cfg.learning_rate == 3e-6
    arguments = GRPOStrategy.set_training_args_kwargs(cfg)
    assert (arguments["num_generations"], arguments["epsilon"]) == (7, 0.2)
    rows = list(Dataset.from_json(str(folder / "train.jsonl")))
    small = {"max_completion_length": 8, "per_device_train_batch_size": 7}
    trainer = trainer_of(folder, rewards, rows, **(arguments | small))
    trainer.train()
    logged = next(line for line in trainer.state.log_history if "reward" in line)
    assert logged["rewards/arena/mean"] == pytest.approx(logged["reward"])


@pytest.mark.optimizer_step
def test_a_step_with_different_rewards_changes_weights(tmp_path: Path) -> None:
    """An untrained model gets 0 for all responses from most recipes, but not for their lengths."""
    reward = RagReward(length)
    trainer = trainer_of(tmp_path, [reward], [{"prompt": "Which river?", "answers": ["Seine"]}] * 4)
    trainer.train()
    logged = next(line for line in trainer.state.log_history if "reward" in line)
    assert logged["reward_std"] > 0


def length(rollout: Rollout) -> float:
    return float(len(rollout.response))


def test_the_loader_finds_the_reward_of_the_page(folder: Path) -> None:
    [code] = page_blocks("python")
    (folder / "rewards.py").write_text(code, "utf-8")
    reward = GRPOStrategy.get_reward_func("rewards.reward")
    right = "<think>x</think><answer>Seine</answer>"
    batch = {"prompts": ["?"] * 2, "completions": [right, "x"], "answers": [["Seine"]] * 2}
    assert reward(**batch) == [2.0, 0.0]


@lru_cache
def shared_trainer(folder: Path, size: int, scale: bool) -> Any:
    rows = [{"prompt": "Which river?", "answers": ["Seine"]}] * 2
    args = {"num_generations": max(size, 2), "per_device_train_batch_size": max(size, 2)}
    return trainer_of(folder, [RagReward("naive-grpo")], rows, **args, scale_rewards=scale)


def columns_of(group: Group) -> dict[str, list[Any]]:
    names = [*GOLD, "id", "response_prefix"]
    return {name: [row.get(name) for row in group.rows] for name in names}


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.id)
def test_the_trainer_computes_the_rewards_of_a_golden_group(
    group: Group, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """TRL's `_calculate_rewards`, which Axolotl's trainer inherits, calls the reward."""
    if not group.whole or group.case == "prefilled opening":
        return  # the first batch raises; the opening belongs to the prompt of a trainer
    trainer = shared_trainer(tmp_path_factory.getbasetemp(), 4, True)
    size = {"group_size": len(group.rows)} if group.scope == "group" else {}
    reward = RagReward(group.recipe, settings=group.settings, models=MODELS, **size)
    reward.scorer.gatherer = EvidenceGatherer(group)  # type: ignore[assignment]
    trainer.reward_funcs, trainer.reward_func_names = [reward], [reward.__name__]
    columns = columns_of(group)
    inputs = [
        {"prompt": group.rows[i]["question"], **{name: c[i] for name, c in columns.items()}}
        for i in range(len(group.rows))
    ]
    completions = [row["response"] for row in group.rows]
    prompts = [one["prompt"] for one in inputs]
    ids = [[5, 6, 7, 8]] * len(inputs)
    values = trainer._calculate_rewards(inputs, prompts, completions, ids)
    assert values[:, 0].tolist() == pytest.approx(list(group.rewards), rel=1e-6)
    assert scored(group) == pytest.approx(list(group.rewards))


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_column_of_the_matrix(recipe: str) -> None:
    entry = cell(recipe, "axolotl")
    assert entry.state == "works" or "`model=URL`" in entry.text or entry.options
    assert STD_FLOOR["axolotl"].options == {"std_floor": 0.1}


def test_the_page_names_the_tested_version() -> None:
    assert f"Axolotl {TRAINERS['axolotl'].tested}" in PAGE


# --- the installed versions ----------------------------------------------------------------------


def test_doctor_does_not_advise_to_upgrade_the_trl_of_axolotl() -> None:
    [result] = [each for each in doctor._trainers() if each.name == "TRL"]
    assert (result.state, result.fix) == ("ok", "")
    assert result.message == f"{version('trl')}, a requirement of axolotl"
    assert [each for each in doctor.examine() if each.state == "problem"] == []
