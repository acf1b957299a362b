"""The adapter of verl without verl: settings, rows, the plain function and the plugin."""

from __future__ import annotations

import importlib
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rag_rewards_adapters.reading import last_turn, response_text
from rag_rewards_adapters.verl import ComputeScore, compute_score, grpo_clip_std
from rag_rewards_adapters.verl.config import RewardOptions
from rag_rewards_adapters.verl.credit import TurnCredit
from rag_rewards_adapters.verl.rows import extra_numbers, row_fields
from rag_rewards_adapters.verl_plugin import AfterImport, loaded

from rag_rewards.errors import DataError, UsageError
from rag_rewards.rollout import Score
from rag_rewards.scorer import Scorer
from rag_rewards.training.advantages import group_advantages

RIGHT = "<think>…</think><answer>Seine</answer>"


def test_the_plugin_imports_neither_this_package_nor_a_trainer() -> None:
    code = (
        "import sys, rag_rewards_adapters.verl_plugin; "
        "print([m for m in sys.modules if m.split('.')[0] in ('torch', 'verl', 'rag_rewards')])"
    )
    command = [sys.executable, "-c", code]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"


def test_gold_fields_take_precedence_over_extra_information() -> None:
    extra = {"index": 4, "answers": ["old"], "question": "?", "url": "…", "supporting": [2]}
    original = dict(extra)
    fields = row_fields({"answers": ["new"], "supporting": None}, extra)
    assert fields == {"id": 4, "answers": ["new"], "question": "?", "supporting": [2]}
    assert extra == original
    assert row_fields("new", {"id": "a", "index": 4}, None)["id"] == "a"


def test_an_invalid_label_names_its_row() -> None:
    with pytest.raises(DataError, match=r"row 4: reward_model.ground_truth: .*none of the fields"):
        compute_score("qa", RIGHT, {"target": "x"}, {"index": 4}, recipe="naive-grpo")


def test_the_plain_function_returns_equal_keys_for_all_samples() -> None:
    first, second = (
        compute_score("qa", text, "Seine", recipe="naive-grpo") for text in (RIGHT, "")
    )
    assert first == {"score": 2.0, "format": 1.0, "accuracy": 1.0, "acc": 1.0}
    assert list(first) == list(second)
    assert {type(value) for value in (*first.values(), *second.values())} == {float}
    numbers = extra_numbers(Score(1.0, {"x": None}), Scorer.load("naive-grpo"))
    assert numbers.keys() == {"x", "acc"}
    assert all(map(math.isnan, numbers.values()))


def test_an_unscored_rollout_raises() -> None:
    with pytest.raises(DataError, match="row 9: answers: missing"):
        compute_score("qa", RIGHT, None, {"index": 9}, recipe="naive-grpo")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recipe": "ctrl-rag"}, "ctrl-rag compares.*default_agent_loop=rag_group"),
        (
            {"stages": [{"recipe": "naive-grpo", "until_step": 9}, {"recipe": "arena"}]},
            "training step.*reward_manager.name=rag_rewards.*rag_group",
        ),
        ({"recipe": "lear", "model": "/models/qwen"}, "would be loaded by every reward worker"),
        ({"recipe": "arena", "bonus": 5}, "unknown option 'bonus'"),
        ({}, "no recipe is given"),
        ({"recipe": "json:nothing"}, "json has no object 'nothing'"),
        ({"recipe": "json:dumps", "hardened": True}, "without settings"),
    ],
)
def test_invalid_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        compute_score("qa", RIGHT, "Seine", **options)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("binary-rar", 'the kind judge: set judge="http.*judge_model="NAME"'),
        ("ctrl-rag-clr", "the kind policy: use .*default_agent_loop=rag_group.*, or set model="),
    ],
)
def test_a_missing_model_is_named(recipe: str, message: str) -> None:
    row = {"question": "Which?", "documents": [{"text": "The Seine."}], "supporting": [1]}
    with pytest.raises(UsageError, match=message):
        compute_score("qa", RIGHT, "Seine", row, recipe=recipe)


def test_a_weight_of_gdpo_that_is_no_number() -> None:
    keys = {"gdpo_reward_keys": ["outcome", "format"], "gdpo_reward_weights": [1, "high"]}
    with pytest.raises(UsageError, match=r"gdpo_reward_weights\[1\]=high: set a finite number"):
        TurnCredit.of({"adv_estimator": "rag_gdpo", **keys})


def test_only_the_sampler_of_this_package_reads_its_own_filter() -> None:
    def check(path: str) -> None:
        sampler = {"custom_sampler": {"path": path}}
        algorithm = {"filter_groups": {"enable": True, "metric": "acc"}}
        trainer = {"v1": {"sampler": sampler}}
        TurnCredit("grpo").check_config(SimpleNamespace(algorithm=algorithm, trainer=trainer))

    check("/home/me/rag_rewards_runs/sampler.py")
    with pytest.raises(UsageError, match="filter_groups_metric=reward"):
        check("pkg://rag_rewards_adapters.verl_sampler")


def test_scorers_are_cached_by_their_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded_options: list[Any] = []

    def counted(options: Any) -> Any:
        loaded_options.append(options)
        return read(options)

    read = RewardOptions.of
    monkeypatch.setattr(RewardOptions, "of", counted)
    compute = ComputeScore(max_scorers=2)
    options = {"recipe": "arena", "settings": {"bonus": {"value": 5}}}

    def scorer(_: int) -> Any:
        return compute.scorer(dict(reversed(options.items())))

    with ThreadPoolExecutor(8) as pool:
        assert len(set(map(id, pool.map(scorer, range(50))))) == 1
    assert compute.scorer(options).reward.settings["bonus.value"] == 5
    assert len(loaded_options) == 1
    for name in ("lear", "truthrl"):
        compute.scorer({"recipe": name})
    compute.scorer(options)
    assert len(loaded_options) == 4


def test_end_tokens_are_removed_and_other_special_tokens_stay() -> None:
    class Tokenizer:
        eos_token_id, pad_token_id = 2, 0

        def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
            assert not skip_special_tokens
            return " ".join(map(str, ids))

    assert response_text(Tokenizer(), [5, 2, 6, 2, 0, 0]) == "5 2 6"
    assert response_text(Tokenizer(), [2, 2]) == ""


def test_the_last_turn_follows_the_last_header() -> None:
    assert last_turn("a<h>tool<h>b", "<h>") == "b"
    with pytest.raises(DataError, match=r"does not contain '<h>'.*rag_group"):
        last_turn("a b", "<h>")


def test_the_advantage_of_lear_matches_its_definition() -> None:
    torch = pytest.importorskip("torch")
    rewards = torch.tensor([[0.0, 0.5], [0.52, 0.0], [0.0, 2.0], [0.0, -1.0], [0.0, 7.0]])
    mask = torch.tensor([[1, 1], [1, 0], [0, 1], [1, 1], [1, 1]])
    prompts = ["a", "a", "b", "b", "c"]
    for config, floor in ((None, 0.1), ({"std_floor": 2}, 2.0)):
        values, returns = grpo_clip_std(
            rewards, mask, index=prompts, config=config, reward_baselines=None
        )
        expected = [
            *group_advantages([0.5, 0.52], std_floor=floor),
            *group_advantages([2.0, -1.0], std_floor=floor),
            0.0,
        ]
        for row, value, token_mask in zip(values.tolist(), expected, mask.tolist(), strict=True):
            assert row == pytest.approx([value * m for m in token_mask], abs=1e-6)
        assert torch.equal(values, returns)


def test_a_step_runs_after_the_import_of_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "after_one.py").write_text("names = ['own']\n")
    (tmp_path / "after_two.py").write_text("raise ImportError('as it is')\n")
    (tmp_path / "after_three.py").write_text("names = ['own']\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))

    def add(module: Any) -> None:
        module.names.append("ours")

    early = importlib.import_module("after_three")
    plugin = AfterImport({"after_one": add, "after_two": add, "after_three": add})
    plugin.install()
    plugin.install()
    assert sys.meta_path.count(plugin) == 1
    assert early.names == ["own", "ours"]
    module = importlib.import_module("after_one")
    assert module.names == ["own", "ours"]
    assert importlib.reload(module).names == ["own", "ours"]
    assert "exec_module" not in vars(module.__spec__.loader)
    with pytest.raises(ImportError, match="as it is"):
        importlib.import_module("after_two")
    assert plugin.done == {"after_one": "registered", "after_three": "registered"}
    assert plugin.find_spec("json", None) is None


def test_a_failing_step_is_logged_and_does_not_stop_the_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "after_four.py").write_text("names = ()\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    plugin = AfterImport({"after_four": lambda module: module.names.append("ours")})
    plugin.install()
    assert importlib.import_module("after_four").names == ()
    assert "AttributeError" in plugin.done["after_four"]
    assert "after_four" in caplog.text


def test_the_state_of_each_registration() -> None:
    turns = {f"rag_turn_{method}" for method in ("igpo", "mt_grpo", "return", "given")}
    assert loaded().keys() == {"rag_rewards", "rag_group", "rag_grpo_clip_std", "rag_gdpo", *turns}
