"""SkyRL: its generator, trainer and environment, with stand-ins for the classes of SkyRL.

The stand-ins have the calls and the fields of NovaSky-AI/SkyRL at a956457:
`skyrl-gym/skyrl_gym/envs/base_text_env.py`, `skyrl/train/generators/skyrl_gym_generator.py`
(agent_loop, generate) and `skyrl/train/trainer.py` (compute_advantages_and_returns). SkyRL itself
was not run.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rag_rewards_adapters.skyrl import SkyRLRecipe, check_generator, experiment

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "trainers"))
from turn_groups import ENVIRONMENT, GROUPS, GROUPS_BY_NAME, SEARCHES, TurnGroup

from rag_rewards import Score, custom
from rag_rewards.errors import UsageError
from rag_rewards.training.credit import METHODS, gigpo

torch = pytest.importorskip("torch")
OWN, OTHER = 2, 3
REGISTRY: dict[str, str] = {}
RETURN = GROUPS_BY_NAME["return"]


@dataclass
class TrajectoryID:
    instance_id: str
    repetition_id: int


class BaseTextEnv:
    def __init__(self) -> None:
        self.turns = 0
        self.max_turns = 1

    def init(self, prompt: Any) -> tuple[Any, dict[str, Any]]:
        return prompt, {}


class SkyRLGymGenerator:
    """Plays given policies in environments, with tokens of fixed numbers for each message."""

    def __init__(self, **arguments: Any) -> None:
        self.generator_cfg = arguments["generator_cfg"]
        self.tokenizer = arguments["tokenizer"]
        self.policies = arguments["inference_engine_client"]

    def _setup_env_extras(self, env_class: str, env_extras: Any, *_: Any) -> dict[str, Any]:
        return env_extras

    async def generate(self, input_batch: Any, disable_tqdm: bool = False) -> dict[str, Any]:
        responses, masks, metrics = [], [], []
        extras = input_batch["env_extras"]
        for i, actions in enumerate(self.policies):
            mine = self._setup_env_extras("rag", extras[i], None, None)
            environment = mine["environment"](extras=mine)
            environment.init(input_batch["prompts"][i])
            mask: list[int] = []
            for action in actions:
                step = environment.step(action)
                assert step["reward"] == 0.0
                mask += [1] * OWN + [0] * OTHER * bool(step["observations"])
                if step["done"]:
                    break
            responses.append([7] * len(mask))
            masks.append(mask)
            metrics.append(environment.get_metrics())
        return {
            "prompt_token_ids": [[4]] * len(masks),
            "response_ids": responses,
            "rewards": [[0.0] * len(mask) for mask in masks],
            "loss_masks": masks,
            "stop_reasons": ["stop"] * len(masks),
            "trajectory_ids": None,
            "env_metrics": metrics,
        }


class RayPPOTrainer:
    def __init__(self, **arguments: Any) -> None:
        self.cfg = arguments["cfg"]

    def convert_to_training_input(self, generator_output: Any, uids: Any) -> Any:
        """Tensors end with the responses, and the last row is that of the padding of a batch."""
        lists = {
            "rewards": generator_output["rewards"],
            "loss_mask": generator_output["loss_masks"],
        }
        lists["response_mask"] = [[1] * len(mask) for mask in lists["loss_mask"]]
        return Batch({"uids": uids}, **{name: padded([*rows, []]) for name, rows in lists.items()})

    def compute_advantages_and_returns(self, data: Any) -> Any:
        data["advantages"] = data["returns"] = torch.zeros_like(data["rewards"])
        data.metadata["metrics"] = {"avg_final_rewards": 1.0}
        return data


class Batch(dict[str, Any]):
    def __init__(self, metadata: dict[str, Any], **tensors: Any) -> None:
        super().__init__(tensors)
        self.metadata = metadata


@pytest.fixture(autouse=True)
def _skyrl(monkeypatch: Any) -> None:
    modules = {
        "skyrl_gym.envs.base_text_env": {
            "BaseTextEnv": BaseTextEnv,
            "BaseTextEnvStepOutput": dict,
        },
        "skyrl_gym.envs.registration": {
            "registry": REGISTRY,
            "register": lambda name, entry_point: REGISTRY.setdefault(name, entry_point),
        },
        "skyrl.train.entrypoints.main_base": {
            "BasePPOExp": object,
            "resolve_policy_model_name": lambda cfg: "policy",
        },
        "skyrl.train.generators.skyrl_gym_generator": {"SkyRLGymGenerator": SkyRLGymGenerator},
        "skyrl.train.trainer": {"RayPPOTrainer": RayPPOTrainer},
    }
    for name, content in modules.items():
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            path = ".".join(parts[:count])
            if path not in sys.modules:
                monkeypatch.setitem(sys.modules, path, ModuleType(path))
        vars(sys.modules[name]).update(content)
        parent = sys.modules[".".join(parts[:-1])]
        setattr(parent, parts[-1], sys.modules[name])
    monkeypatch.delitem(sys.modules, "rag_rewards_adapters.skyrl.environments", raising=False)


def config(**generator: Any) -> SimpleNamespace:
    return SimpleNamespace(
        generator=SimpleNamespace(**generator),
        environment=SimpleNamespace(skyrl_gym={}),
        trainer=SimpleNamespace(algorithm=SimpleNamespace(advantage_batch_normalize=False)),
    )


def output_of(groups: list[tuple[tuple[float, ...], ...]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a batch of these groups, and the output of a generator for it."""
    members = [(str(g), entries) for g, group in enumerate(groups) for entries in group]
    masks = [([1] * OWN + [0] * OTHER) * (len(e) - 1) + [1] * OWN for _, e in members]
    batch = {
        "prompts": [[{"role": "user", "content": "Which river?"}]] * len(members),
        "env_extras": [{"reward_spec": {"ground_truth": {"target": ["Seine"]}}}] * len(members),
        "trajectory_ids": [TrajectoryID(uid, i) for i, (uid, _) in enumerate(members)],
    }
    output = {
        "prompt_token_ids": [[4]] * len(members),
        "response_ids": [[7] * len(mask) for mask in masks],
        "rewards": [0.0] * len(members),
        "loss_masks": masks,
        "stop_reasons": None,
        "env_metrics": [
            {"rag_turns": [{"text": f"turn {t}", "reward": r} for t, r in enumerate(entries)]}
            for _, entries in members
        ],
    }
    return batch, output


def padded(rows: list[list[Any]]) -> Any:
    length = max(map(len, rows))
    return torch.tensor([[*[0] * (length - len(row)), *row] for row in rows], dtype=torch.float32)


def advantages_of(recipe: SkyRLRecipe, output: dict[str, Any]) -> list[list[float]]:
    """Return the advantages of the tokens of each response, by the trainer."""
    trainer = experiment(recipe)().get_trainer(cfg=config())
    data = trainer.convert_to_training_input(output, [])
    data = trainer.compute_advantages_and_returns(data)
    assert torch.equal(data["returns"], data["advantages"])
    assert data.metadata == {"uids": [], "metrics": {"avg_final_rewards": 1.0}}
    *rows, padding = data["advantages"].tolist()
    assert not any(padding)
    lengths = list(map(len, output["loss_masks"]))
    assert not any(any(row[:-n]) for row, n in zip(rows, lengths, strict=True))
    return [row[-n:] for row, n in zip(rows, lengths, strict=True)]


def by_turn(row: list[float], turns: int) -> list[float]:
    """Return the advantage of each turn. Its own tokens have it, and the others have 0."""
    values = [row[t * (OWN + OTHER)] for t in range(turns)]
    expected = [t for value in values for t in [value] * OWN + [0.0] * OTHER]
    assert row == expected[: len(row)]
    return values


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_golden_groups_pass_through_the_generator_and_the_trainer(group: TurnGroup) -> None:
    recipe = SkyRLRecipe(ENVIRONMENT, credit=group.method, credit_options=group.options)
    batch, output = output_of([group.rewards, ((5.0, 7.0), (1.0,))])
    output = asyncio.run(recipe.score(batch, output))
    for row, entries in zip(output["rewards"], group.rewards, strict=False):
        ends = [t * (OWN + OTHER) + OWN - 1 for t in range(len(entries))]
        assert [row[end] for end in ends] == pytest.approx(entries)
        assert sum(row) == pytest.approx(sum(entries))
    rows = advantages_of(recipe, output)
    for row, golden in zip(rows, group.advantages, strict=False):
        assert by_turn(row, len(golden)) == pytest.approx(golden, abs=group.tolerance)


def test_the_environment_and_the_generator_together(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "corpus.py").write_text(
        "def search(query):\n"
        "    if query == 'down':\n"
        "        raise TimeoutError('no reply')\n"
        "    if query == 'empty':\n"
        "        return [{'title': 'Paris'}]\n"
        "    return [{'title': 'Paris', 'text': f'About {query}.'}]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    environment = importlib.import_module("rag_rewards_adapters.skyrl.environments").RagSearchEnv
    policies = [
        ["<search>river</search>", "<answer>Seine</answer>"],
        ["<answer>Rhone</answer>"],
        ["<search>river</search>"] * 3,
    ]
    extras = {
        "environment": environment,
        "max_turns": 2,
        "reward_spec": {"ground_truth": {"target": ["Seine"]}},
    }
    recipe = SkyRLRecipe(
        SEARCHES, credit="return", environment={"retriever": "corpus:search", "max_turns": 9}
    )
    generator = experiment(recipe)().get_generator(config(), None, policies)
    batch = {
        "prompts": [[{"role": "user", "content": "Which river?"}]] * 3,
        "env_extras": [extras] * 3,
        "trajectory_ids": [TrajectoryID("q", i) for i in range(3)],
    }
    output = asyncio.run(generator.generate(batch))
    assert output["rewards"] == [
        [0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 1.0],
        [0.0, 0.0],
        [0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0],
    ]
    turns = output["env_metrics"][0]["rag_turns"]
    assert turns[0]["queries"] == ["river"]
    assert output["rollout_metrics"]["searches/not_scored"] == 0.0
    assert REGISTRY["rag-search"] == "rag_rewards_adapters.skyrl.environments:RagSearchEnv"
    assert "Doc 1(Title: Paris) About river." in turns[0]["observation"]
    assert output["env_metrics"][0]["searches"] == 1

    no_text = (
        "UsageError: the retriever corpus:search returns a document without the key 'text' (its "
        "keys: title): return {'text': …} for each"
    )
    for query, error in (("down", "TimeoutError: no reply"), ("empty", no_text)):
        generator.policies = [[f"<search>{query}</search>"], *policies[1:]]
        output = asyncio.run(generator.generate(batch))
        assert output["env_metrics"][0]["rag_turns"][0]["error"] == error
        assert output["loss_masks"][0] == [0] * OWN
        assert output["rewards"][0] == [0.0] * OWN


def test_a_search_in_the_last_turn_ends_with_max_turns() -> None:
    seen: list[Any] = []

    def keep(rollout: Any) -> float:
        seen.append(rollout)
        return 0.0

    recipe = SkyRLRecipe(custom("keep", keep), credit="return")
    batch, output = output_of([((0.0, 1.0), (0.0, 1.0))])
    output["env_metrics"][0]["rag_finish_reason"] = "max_turns"
    asyncio.run(recipe.score(batch, output))
    assert [rollout.finish_reason for rollout in seen] == ["max_turns", "stop"]
    environment = importlib.import_module("rag_rewards_adapters.skyrl.environments").RagSearchEnv
    extras = {"retriever": "builtins:list", "max_turns": 1}
    for action, reason in (("<search>river</search>", "max_turns"), ("<answer>a</answer>", None)):
        played = environment(extras=extras)
        assert played.step(action)["done"]
        assert played.get_metrics().get("rag_finish_reason") == reason


def test_the_advantages_of_gigpo_read_the_observations() -> None:
    """The members share their first state, and the third has the observation of the first."""
    rewards = ((0.0, 1.0), (0.0, 0.0), (0.0, 0.0))
    batch, output = output_of([rewards])
    observations = ("seen", "other", "seen")
    for metrics, observation in zip(output["env_metrics"], observations, strict=True):
        metrics["rag_turns"][0]["observation"] = observation
    recipe = SkyRLRecipe(ENVIRONMENT, credit="gigpo")
    golden = gigpo(rewards, [["", observation] for observation in observations]).advantages
    scored = asyncio.run(recipe.score(batch, output))
    rows = advantages_of(recipe, scored)
    for row, own in zip(rows, golden, strict=True):
        assert by_turn(row, 2) == pytest.approx(own)
    # by hand: 1 − 1/3 with 1 − 1/2 in the shared state; −1/3 alone; −1/3 with 0 − 1/2
    assert [row[-1] for row in rows] == pytest.approx([7 / 6, -1 / 3, -5 / 6])
    assert [sum(row) for row in scored["rewards"]] == pytest.approx([1.0, 0.0, 0.0])

    evaluation = {**batch, "batch_metadata": SimpleNamespace(training_phase="eval")}
    assert "rag_advantages" not in asyncio.run(recipe.score(evaluation, output))


def test_an_unscored_trajectory_has_no_effect_on_its_group() -> None:
    def fails(rollout: Any) -> Any:
        first = rollout.steps()[0].reward
        return None if first == 99.0 else ENVIRONMENT([rollout])[0]

    options = {"scale": "none"}
    recipe = SkyRLRecipe(custom("fails", fails), credit="return", credit_options=options)
    asyncio.run(recipe.score(*output_of([RETURN.rewards])))
    output = asyncio.run(recipe.score(*output_of([(*RETURN.rewards, (99.0, 1.0))])))
    rows = advantages_of(recipe, output)
    assert rows[0][0] == pytest.approx(1.55)
    assert not any(rows[2])


@pytest.mark.parametrize("method", ["igpo", "mt_grpo", "gdpo", "return"])
def test_a_turn_without_a_reward_differs_from_the_reward_0(method: str) -> None:
    """None is not part of a pool, and tensors of rewards cannot contain it."""

    def negative_is_none(rollout: Any) -> Score:
        *process, last = [turn.reward for turn in rollout.steps()]
        entries = (*(None if entry < 0 else entry for entry in process), last)
        return Score(sum(entry or 0.0 for entry in entries), turns=entries)

    given = ((-1.0, 0.5, 1.0), (0.0, -1.0, 0.0), (0.25, 0.0))
    group: list[list[float | None]] = [[None, 0.5, 1.0], [0.0, None, 0.0], [0.25, 0.0]]
    recipe = SkyRLRecipe(custom("negative", negative_is_none), credit=method)
    output = asyncio.run(recipe.score(*output_of([given])))
    assert output["rewards"][1] == [0.0] * (3 * OWN + 2 * OTHER)
    for row, expected in zip(advantages_of(recipe, output), METHODS[method](group), strict=True):
        assert by_turn(row, len(expected)) == pytest.approx(expected, abs=1e-6)


def test_without_a_credit_method_the_trainer_computes_the_advantages() -> None:
    environment = importlib.import_module("rag_rewards_adapters.skyrl.environments").RagEnv
    recipe = SkyRLRecipe("search-r1")
    extras = {"environment": environment, "reward_spec": {"ground_truth": '{"answers": "Seine"}'}}
    policies = [["<answer>Seine</answer>", "never"], ["<answer>Rhone</answer>"]]
    experimenter = experiment(recipe)()
    generator = experimenter.get_generator(config(), None, policies)
    batch = {
        "prompts": [[{"role": "user", "content": "Which river?"}]] * 2,
        "env_extras": [extras] * 2,
        "trajectory_ids": [TrajectoryID("q", i) for i in range(2)],
    }
    output = asyncio.run(generator.generate(batch))
    assert output["rewards"] == [1.0, 0.0]
    assert output["rollout_metrics"]["search-r1/outcome"] == 0.5
    trainer = experimenter.get_trainer(cfg=config())
    data = Batch({}, rewards=torch.ones(2, 3))
    assert trainer.compute_advantages_and_returns(data)["advantages"].tolist() == [[0.0] * 3] * 2


def test_an_unscored_trajectory_gets_the_mean_of_its_group(caplog: Any) -> None:
    recipe = SkyRLRecipe("search-r1")
    recipe._unscored.handle([])
    batch, output = output_of([((1.0,), (1.0,), (1.0,))])
    for metrics, answer in zip(output["env_metrics"], ("Seine", "Rhone", ""), strict=True):
        metrics["rag_turns"] = [{"text": f"<answer>{answer}</answer>"}]
    output["env_metrics"][2] = {}
    output = asyncio.run(recipe.score(batch, output))
    assert output["rewards"] == [1.0, 0.0, 0.5]
    assert [any(mask) for mask in output["loss_masks"]] == [True, True, False]
    assert output["rollout_metrics"]["search-r1/not_scored"] == 1.0


@pytest.mark.parametrize(
    "changes",
    [
        {"step_wise_trajectories": True},
        {"batched": True},
        {"zero_reward_on_non_stop": True},
        {"chat_template": SimpleNamespace(name_or_path="template.jinja")},
    ],
)
def test_settings_that_change_rewards_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="generator"):
        check_generator(config(**changes).generator)


def test_contradictions_are_refused(monkeypatch: Any) -> None:
    recipe = SkyRLRecipe(ENVIRONMENT, credit="return")
    trainer = experiment(recipe)().get_trainer(cfg=config())
    for name in ("advantage_batch_normalize", "use_kl_in_reward"):
        trainer.cfg.trainer.algorithm = SimpleNamespace(**{name: True})
        with pytest.raises(UsageError, match=name):
            trainer.compute_advantages_and_returns(Batch({}))
    environment = importlib.import_module("rag_rewards_adapters.skyrl.environments").RagSearchEnv
    with pytest.raises(UsageError, match="retriever"):
        environment(extras={})
    with pytest.raises(UsageError, match="choose search-r1"):
        environment(extras={"dialect": "tools", "retriever": "builtins:list"})
