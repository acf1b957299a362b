"""`rag-rewards init`: scripts with the source of each value."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from processes import WAIT_SECONDS

import rag_rewards as rr
from rag_rewards.loading import import_object
from rag_rewards.recipe_object import custom
from rag_rewards.recipes import RECIPES
from rag_rewards.recipes.sample import models_needed
from rag_rewards.scripts import BASELINES, PUBLISHED, SCRIPTS, model_types
from rag_rewards.tiny_world.model import CHECKPOINT
from rag_rewards.tiny_world.trial import FORMS
from rag_rewards.trainers import TRAINERS
from rag_rewards.training.settings import NOT_STATED

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

NO_CREDIT = ("openrlhf", "ms-swift", "nemo-gym", "openenv")
SUM = {name: {"igpo": "credit.method=group"} for name in NO_CREDIT}
"""By trainer and recipe: the setting without which `init` refuses to train on a sum of turns."""


WITH_SCRIPT = {name: TRAINERS[name] for name in SCRIPTS if name not in BASELINES}
NO_POLICY = [name for name, trainer in WITH_SCRIPT.items() if not trainer.passes_model]
"""Trainers that pass no model to a reward, so that `init` requires `--model`."""
NO_TOOLS = [name for name, trainer in WITH_SCRIPT.items() if trainer.search == "none"]
"""Trainers whose script generates one response without tools."""
SEARCHES = (
    "search-r1",
    "autorefine",
    "ikea",
    "stepsearch",
    "igpo",
    "carr",
    "dr-tulu",
    "rag-env",
    "hiprag",
    "s3",
)
"""The recipes whose policy searches."""
PARSERS = {
    ".py": lambda text: compile(text, "file", "exec"),
    ".toml": tomllib.loads,
    ".yaml": yaml.safe_load,
}


def settings_of(trainer: str, recipe: str) -> tuple[str, ...]:
    setting = SUM.get(trainer, {}).get(recipe)
    settings = ("--set", setting) if setting else ()
    if trainer in NO_POLICY and {"policy", "generator"} & models_needed(rr.recipe(recipe)):
        settings += ("--model", "http://127.0.0.1:9", "--backend", "vllm")
    return settings


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def read(folder: Path) -> str:
    return "\n".join(path.read_text("utf-8") for path in files_of(folder))


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("trainer", WITH_SCRIPT)
def test_every_recipe_for_every_trainer(
    cli: Any, tmp_path: Path, trainer: str, recipe: str
) -> None:
    folder = tmp_path / "run"
    settings = settings_of(trainer, recipe)
    if TRAINERS[trainer].one_rollout and rr.recipe(recipe).scope == "group":
        refused = cli("init", trainer, "-r", recipe, *settings, "-o", folder, code=2)
        assert "compares the rollouts of a group" in refused.err
        return
    if trainer in NO_TOOLS and recipe in SEARCHES:
        refused = cli("init", trainer, "-r", recipe, *settings, "-o", folder, code=2)
        assert "without tools: train with trl, verl" in refused.err.replace("\n", " ")
        return
    output = cli("init", trainer, "-r", recipe, *settings, "-o", folder, code=0).out.split()
    assert sorted(map(Path, output)) == files_of(folder)
    text = read(folder).replace(".0e-", "e-")  # YAML needs the point
    message = RECIPES[recipe].training
    for value in (message.learning_rate.value, message.group.value, message.temperature.value):
        assert str(value) in text
    assert message.learning_rate.source in text
    for path in folder.rglob("*.py"):
        compile(path.read_text("utf-8"), path.name, "exec")
    for path in folder.glob("*.sh"):
        subprocess.run(["bash", "-n", path], check=True, timeout=WAIT_SECONDS)  # it parses
    assert len([*folder.rglob("search.py")]) == (recipe in SEARCHES)


@pytest.mark.parametrize("trainer", SCRIPTS)
@pytest.mark.parametrize("name", ['say "x"', "a: b", "two\nlines", "back\\slash"])
def test_every_name_of_a_reward(cli: Any, tmp_path: Path, trainer: str, name: str) -> None:
    own = tmp_path / "own.py"
    own.write_text(f"import rag_rewards as rr\nOWN = rr.custom({name!r}, len)\n")
    cli("init", trainer, "-r", f"{own}:OWN", "-o", tmp_path / "run", code=0)
    for path in files_of(tmp_path / "run"):
        if path.suffix == ".sh":
            subprocess.run(["bash", "-n", path], check=True, timeout=WAIT_SECONDS)
        elif path.suffix in PARSERS:
            PARSERS[path.suffix](path.read_text("utf-8"))
    if trainer in BASELINES:
        assert json.dumps(f"{name}-{trainer}") in read(tmp_path / "run")


# --- search agents -------------------------------------------------------------------------------

CORPUS = [
    {"id": "a", "title": "Paris", "text": "Paris lies on the Seine."},
    {"id": "b", "title": "Lyon", "text": "Lyon lies on the Rhône."},
]


def searches(cli: Any, trainer: str, folder: Path, *options: str) -> Path:
    """Return the file with the search engine of a script."""
    cli("init", trainer, "-r", "search-r1", *options, "-o", folder, code=0)
    [path] = folder.rglob("search.py")
    return path


def run_script(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, path], capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
    )


@pytest.mark.parametrize("trainer", [name for name in WITH_SCRIPT if name not in NO_TOOLS])
def test_a_search_engine_is_required_before_the_start(
    cli: Any, tmp_path: Path, trainer: str
) -> None:
    path = searches(cli, trainer, tmp_path / "run")
    ran = run_script(path)
    assert ran.returncode == 1
    assert f"the policy has no search engine: edit {path}" in ran.stderr.splitlines()[-1]
    if trainer not in ("trl", "openenv"):  # train.py and server/app.py import the file
        script = (tmp_path / "run" / "train.sh").read_text()
        assert "python3 search.py" in script[script.index("\n)\n") :].splitlines()[2]
    if trainer not in ("trl", "openenv", "slime", "nemo-gym"):  # they need the trainer's sources
        programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        started = subprocess.run(
            ["bash", tmp_path / "run" / "train.sh"],
            env=os.environ | {"PATH": programs},
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        )
        assert started.returncode == 1
        assert "the policy has no search engine: edit " in started.stderr.splitlines()[-1]


def test_the_example_of_a_search_engine_needs_one_edit(cli: Any, tmp_path: Path) -> None:
    path = searches(cli, "trl", tmp_path / "run")
    corpus = "".join(f"{json.dumps(document)}\n" for document in CORPUS)
    (path.parent / "corpus.jsonl").write_text(corpus, "utf-8")
    path.write_text(path.read_text().replace('CORPUS = ""', 'CORPUS = "corpus.jsonl"'))
    assert run_script(path).returncode == 0
    search = import_object(f"{path}:search")
    assert search("Which river runs through Lyon?")[0] == CORPUS[1]
    assert search("Seine") == CORPUS[:1]


@pytest.mark.parametrize(
    ("trainer", "dialect", "other"),
    [
        ("trl", "tools", "search-r1"),
        ("verl", "tools", "search-r1"),
        ("nemo-gym", "tools", "research"),
        ("skyrl", "search-r1", "tools"),
        ("openrlhf", "search-r1", "tools"),
        ("ms-swift", "search-r1", "tools"),
    ],
)
def test_the_reward_reads_the_dialect_of_the_environment(
    cli: Any, tmp_path: Path, trainer: str, dialect: str, other: str
) -> None:
    path = searches(cli, trainer, tmp_path / "run")
    text = read(tmp_path / "run")
    assert re.search(rf"\bdialect\W*[=:] ?['\"]?{dialect}", text)
    assert f"in the dialect {dialect}" in path.read_text()
    options = ("-r", "search-r1", "--set", f"dialect={other}", "-o", tmp_path / "other")
    refused = cli("init", trainer, *options, code=2).err.replace("\n", " ")
    assert f"set dialect={dialect}" in refused


@pytest.mark.parametrize(
    ("trainer", "dialect"), [("trl", "tools"), ("verl", "tools"), ("skyrl", "search-r1")]
)
def test_the_dialect_of_a_curriculum(cli: Any, tmp_path: Path, trainer: str, dialect: str) -> None:
    stages = tmp_path / "stages.yaml"
    stages.write_text("stages: [{recipe: search-r1, until_step: 9}, {recipe: search-r1}]")
    cli("init", trainer, "--config", stages, "-o", tmp_path / "run", code=0)
    text = (tmp_path / "run" / "search.py").read_text("utf-8")
    assert f"`rag-rewards prepare --prompt {dialect}`" in text


def test_a_policy_that_searches_has_tokens_for_all_turns(cli: Any, tmp_path: Path) -> None:
    for recipe, tokens in (("search-r1", 4096), ("carr", 65536)):
        cli("init", "verl", "-r", recipe, "-o", tmp_path / recipe, code=0)
        assert f"data.max_response_length={tokens}\n" in read(tmp_path / recipe)


@pytest.mark.parametrize("trainer", NO_POLICY)
def test_log_probabilities_need_a_model(cli: Any, tmp_path: Path, trainer: str) -> None:
    refused = cli("init", trainer, "-r", "ctrl-rag-clr", "-o", tmp_path / "a", code=2)
    assert "use --model URL --backend vllm" in refused.err.replace("\n", " ")
    command = ("init", trainer, "-r", "canoe", "-o", tmp_path / "b")
    refused = cli(*command, code=2).err.replace("\n", " ")
    assert "use --set models.generator=PATH or --model URL" in refused
    cli(*command, "--set", "models.generator=http://host:1", code=0)


@pytest.mark.parametrize("trainer", [name for name in WITH_SCRIPT if name not in NO_POLICY])
@pytest.mark.parametrize(
    ("options", "is_hint"),
    [
        (["s3"], True),
        (["canoe"], True),
        (["s3", "--set", "models.generator=path"], False),
        (["s3", "--model", "path"], False),
        (["ctrl-rag-clr"], False),
    ],
)
def test_a_script_states_that_the_generator_is_trained(
    cli: Any, tmp_path: Path, trainer: str, options: list[str], is_hint: bool
) -> None:
    cli("init", trainer, "-o", tmp_path / "run", "-r", *options, code=0)
    assert ("--set models.generator=PATH" in read(tmp_path / "run")) == is_hint


def test_every_published_recipe_has_training_settings() -> None:
    without = {"rubric", "ruler", "rag-env"}  # no paper describes a training with them
    for name, definition in RECIPES.items():
        stated = [each for _, each in definition.training.items() if each.source != NOT_STATED]
        assert bool(stated) == (name not in without)
    assert all(stated.source == NOT_STATED for _, stated in custom("own", len).training.items())


def test_scripts_of_verl_validate_only_with_validation_rows(cli: Any, tmp_path: Path) -> None:
    cli("init", "verl", "-r", "arena", "-o", tmp_path / "a", code=0)
    cli("init", "verl", "-r", "arena", "--validation", "v.parquet", "-o", tmp_path / "b", code=0)
    without, with_rows = read(tmp_path / "a"), read(tmp_path / "b")
    assert "trainer.val_before_train=False" in without
    assert "trainer.test_freq=-1" in without
    assert "val_before_train" not in with_rows
    assert "data.val_files=v.parquet" in with_rows
    assert "trainer.test_freq=20" in with_rows
    assert all("trainer.save_freq=20" in text for text in (without, with_rows))


@pytest.mark.parametrize("target", ["trl", "sft", "dpo"])
def test_scripts_of_trl_evaluate_and_write_beside_the_script(
    cli: Any, tmp_path: Path, target: str
) -> None:
    cli("init", target, "-r", "truthrl", "-o", tmp_path / "a", code=0)
    cli("init", target, "-r", "truthrl", "--validation", "v.jsonl", "-o", tmp_path / "b", code=0)
    assert "eval_strategy" not in read(tmp_path / "a")
    assert 'eval_strategy="steps",' in read(tmp_path / "b")
    assert "output_dir=str(Path(__file__).resolve().parent / " in read(tmp_path / "a")
    assert "bf16=torch.cuda.is_available()," in read(tmp_path / "a")


def test_scripts_of_openrlhf_have_a_reward_for_a_failed_judge(cli: Any, tmp_path: Path) -> None:
    cli("init", "openrlhf", "-r", "truthrl", "-o", tmp_path / "a", code=0)
    cli("init", "openrlhf", "-r", "arena", "-o", tmp_path / "b", code=0)
    assert "error_value=0.0" in read(tmp_path / "a")
    assert "error_value" not in read(tmp_path / "b")


def test_scale_of_lear_and_groups_of_ctrl_rag(cli: Any, tmp_path: Path) -> None:
    cli("init", "trl", "-r", "lear", "-o", tmp_path / "a", code=0)
    assert 'scale_rewards="none"' in read(tmp_path / "a")
    assert "std_floor=0.1" in read(tmp_path / "a")
    cli("init", "verl", "-r", "ctrl-rag", "-o", tmp_path / "b", code=0)
    assert "default_agent_loop=rag_group" in read(tmp_path / "b")
    assert "use_kl_loss=False" in read(tmp_path / "b")


def test_scripts_of_skyrl_and_slime(cli: Any, tmp_path: Path) -> None:
    for trainer in ("skyrl", "slime"):
        lear = ("lear", "--model", "http://127.0.0.1:9", "--backend", "vllm")
        cli("init", trainer, "-r", *lear, "--validation", "v.jsonl", "-o", tmp_path / trainer)
        cli("init", trainer, "-r", "stepsearch", "-o", tmp_path / f"{trainer}-turns")
    lear, turns = read(tmp_path / "skyrl"), read(tmp_path / "skyrl-turns")
    assert 'SkyRLRecipe("lear", model="http' in lear
    assert "std_floor=0.1)" in lear
    assert "grpo_norm_by_std=false" in lear
    assert "data.val_data=['v.jsonl']" in lear.replace("'\"'\"'", "'").replace("''", "'")
    assert "environment.env_class=rag\n" in lear
    assert '"trainer.ckpt_path=$PWD/lear"' in lear
    assert "environment.env_class=rag-search" in turns
    assert "trainer.eval_before_train=false" in turns
    assert "'retriever': 'search:search', 'dialect': 'search-r1'" in turns
    lear, turns = read(tmp_path / "slime"), read(tmp_path / "slime-turns")
    assert "--disable-grpo-std-normalization" in lear
    assert "--eval-prompt-data validation v.jsonl" in lear
    assert "post-process" not in lear
    assert "--custom-advantage-function-path rag_slime.advantages" in turns
    assert "--custom-generate-function-path search.generate" in turns


def test_the_command_of_verifiers_is_local(cli: Any, tmp_path: Path) -> None:
    """The defaults of `vf-eval` 0.4.0 are a sandbox and models of its provider, and an upload."""
    cli("init", "verifiers", "-r", "arena", "-o", tmp_path / "run", code=0)
    [command] = re.findall(r"^ +(vf-eval .+)$", read(tmp_path / "run"), re.MULTILINE)
    words = shlex.split(command)
    assert "--no-push" in words
    assert words[words.index("--env.agent.runtime.type") + 1] == "subprocess"
    assert words[words.index("--client.base-url") + 1].startswith("http://localhost:")


def test_a_package_of_verifiers_scores_a_group_in_one_episode(cli: Any, tmp_path: Path) -> None:
    """A judge can fail for one attempt, so that all of them have to be scored together."""
    for recipe, is_group in (("ruler", True), ("truthrl", True), ("arena", False)):
        folder, module = tmp_path / recipe, f"rag_{recipe}"
        cli("init", "verifiers", "-r", recipe, "-o", folder, code=0)
        code = (folder / module / "__init__.py").read_text()
        assert [f'EpisodeReward("{recipe}")' in code, "BestOfNEnv)" in code] == [is_group] * 2
        assert ("@vf.reward" in code) != is_group
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        assert project["dependencies"][1] == "verifiers>=0.4"
        orchestrator = tomllib.loads((folder / "configs/rl.toml").read_text())["orchestrator"]
        [source] = orchestrator["train"]["source"]
        size = source["env"].get("n", orchestrator["group_size"])
        assert size == rr.recipe(recipe).training.group.value
        assert (orchestrator["group_size"] == 1) == is_group


def test_the_server_of_nemo_gym(cli: Any, tmp_path: Path) -> None:
    options = ("--set", "bonus.value=5", "--validation", "v.jsonl")
    cli("init", "nemo-gym", "-r", "arena", *options, "-o", tmp_path / "run", code=0)
    folder = tmp_path / "run" / "resources_servers" / "rag_rewards"
    assert (folder / "requirements.txt").read_text() == "rag-rewards\n"
    written = yaml.safe_load((folder / "configs" / "rag_rewards.yaml").read_text())
    server = written["rag_rewards"]["resources_servers"]["rag_rewards"]
    assert server["reward"] == {"recipe": "arena", "settings": {"bonus.value": 5}}
    agent = written["rag_rewards_simple_agent"]["responses_api_agents"]["simple_agent"]
    assert [data["jsonl_fpath"] for data in agent["datasets"]] == ["train.jsonl", "v.jsonl"]
    script = (tmp_path / "run" / "train.sh").read_text()
    assert "loss_fn.reference_policy_kl_type=k2" in script
    assert '"data.train.data_path=$PWD/train.jsonl"' in script
    assert "group_size" not in server


@pytest.mark.parametrize(
    ("recipe", "std_floor"), [("ctrl-rag", None), ("lear", 0.1), ("truthrl", None)]
)
def test_the_groups_of_nemo_gym(
    cli: Any, tmp_path: Path, recipe: str, std_floor: float | None
) -> None:
    """A model can fail, so its rewards are those of whole groups."""
    model = ("--model", "http://127.0.0.1:9", "--backend", "vllm")
    if recipe == "truthrl":
        model = ("--judge", "http://127.0.0.1:9/v1", "--judge-model", "any")
    cli("init", "nemo-gym", "-r", recipe, *model, "-o", tmp_path, code=0)
    folder = tmp_path / "resources_servers" / "rag_rewards"
    written = yaml.safe_load((folder / "configs" / "rag_rewards.yaml").read_text())
    server = written["rag_rewards"]["resources_servers"]["rag_rewards"]
    group = RECIPES[recipe].training.group.value
    assert (server["group_size"], server.get("std_floor")) == (group, std_floor)
    script = (tmp_path / "train.sh").read_text()
    assert f"grpo.val_num_generations_per_prompt={group}" in script
    assert f"grpo.normalize_rewards={'true' if std_floor is None else 'false'}" in script


@pytest.mark.parametrize("trainer", ["slime", "nemo-gym"])
def test_a_trainer_without_steps_refuses_a_curriculum(
    cli: Any, tmp_path: Path, trainer: str
) -> None:
    stages = tmp_path / "stages.yaml"
    stages.write_text(
        "stages: [{recipe: ground-grpo-stage1, until_step: 20}, {recipe: ground-grpo}]"
    )
    refused = cli("init", trainer, "--config", stages, "-o", tmp_path / "run", code=2)
    assert "does not pass the training step" in refused.err


def test_turn_credit_in_trl_and_verl(cli: Any, tmp_path: Path) -> None:
    cli("init", "trl", "-r", "igpo", "-o", tmp_path / "a", code=0)
    script = read(tmp_path / "a")
    assert "trainer = TurnGRPOTrainer(" in script
    assert 'scale_rewards="none"' in script
    settings = ("--set", "credit.norm=separate", "--set", "credit.std_floor=0.1")
    cli("init", "verl", "-r", "igpo", *settings, "-o", tmp_path / "b", code=0)
    script = read(tmp_path / "b")
    assert "algorithm.adv_estimator=rag_turn_igpo" in script
    assert "+algorithm.rag_turn.std_floor=0.1" in script
    assert "+algorithm.rag_turn.norm=separate" in script
    assert "default_agent_loop=rag_group" in script


COMPONENTS = {
    "trl": (
        'reward.components("outcome", "format")',
        'multi_objective_aggregation="normalize_then_sum"',
        "reward_weights=[1.0, 0.2]",
    ),
    "verl": (
        "algorithm.adv_estimator=rag_gdpo",
        "+algorithm.gdpo_reward_keys=[outcome,format]",
        "+algorithm.gdpo_reward_weights=[1.0,0.2]",
        "default_agent_loop=rag_group",
    ),
    "ms-swift": (
        "components=['outcome', 'format']",
        "--reward_funcs search-r1/outcome search-r1/format",
        "--reward_weights 1.0 0.2",
        "--scale_rewards gdpo",
    ),
}
"""By trainer: the settings of a script whose components are normalized one by one."""


@pytest.mark.parametrize("trainer", WITH_SCRIPT)
def test_components_that_the_trainer_normalizes(cli: Any, tmp_path: Path, trainer: str) -> None:
    options = ("-r", "search-r1", "--components", "outcome, format=0.2", "-o", tmp_path / "run")
    if trainer not in COMPONENTS:
        assert f"{trainer} does not normalize components" in cli("init", trainer, *options).err
        assert not (tmp_path / "run").exists()
        return
    cli("init", trainer, *options, code=0)
    text = read(tmp_path / "run")
    for setting in COMPONENTS[trainer]:
        assert setting in text


def test_components_replace_turn_credit(cli: Any, tmp_path: Path) -> None:
    for trainer in COMPONENTS:
        folder = tmp_path / trainer
        components = ("--components", "answer,gain")
        cli("init", trainer, "-r", "stepsearch", *components, "-o", folder, code=0)
        text = read(folder)
        assert "TurnGRPOTrainer" not in text
        assert "rag_turn" not in text


@pytest.mark.parametrize(
    ("recipe", "components", "why"),
    [
        ("search-r1", "outcom", "no component 'outcom'; did you mean 'outcome'"),
        ("search-r1", "outcome=x", "write NAME=WEIGHT,NAME=WEIGHT"),
        ("search-r1", "outcome,outcome", "write NAME=WEIGHT,NAME=WEIGHT"),
        ("search-r1", "", "write NAME=WEIGHT,NAME=WEIGHT"),
        ("lear", "answer", "normalizes its reward itself"),
    ],
)
def test_wrong_components(cli: Any, tmp_path: Path, recipe: str, components: str, why: str) -> None:
    options = ("-r", recipe, "--components", components, "-o", tmp_path / "run")
    assert why in cli("init", "trl", *options, code=2).err.replace("\n", " ")


@pytest.mark.parametrize("trainer", SUM)
def test_a_sum_of_information_gains_is_refused(cli: Any, tmp_path: Path, trainer: str) -> None:
    refused = cli("init", trainer, "-r", "igpo", "-o", tmp_path / "a", code=2)
    assert "set credit.method=group to train on this sum" in refused.err
    model = ("--model", "http://127.0.0.1:9", "--backend", "vllm") if trainer in NO_POLICY else ()
    empty = ("--set", "gain.baseline=empty", *model)
    cli("init", trainer, "-r", "igpo", *empty, "-o", tmp_path / "b", code=0)


def test_the_fine_tuning_of_truthrl(cli: Any, tmp_path: Path) -> None:
    """SFT, RFT and R-Tuning: 5e-6, 16, cosine, 3%. DPO: 3e-6, 32 (TruthRL, appendix A)."""
    for method in ("sft", "dpo"):
        cli("init", method, "-r", "truthrl", "-o", tmp_path / method, code=0)
        compile(read(tmp_path / method), "train.py", "exec")
    paper = "    # TruthRL, appendix A\n"
    sft, dpo = read(tmp_path / "sft"), read(tmp_path / "dpo")
    assert (
        f"{paper}    gradient_accumulation_steps=16,\n    learning_rate=5e-06,\n"
        '    lr_scheduler_type="cosine",\n' in sft
    )
    assert "warmup_steps=0.03," in sft
    assert f"{paper}    gradient_accumulation_steps=32,\n    learning_rate=3e-06,\n" in dpo
    assert "    # not stated\n    beta=0.1,\n" in dpo
    assert "beta" not in sft
    for text in (sft, dpo):
        assert f"{paper}    num_train_epochs=1,\n" in text
        assert f"{paper}    max_length=16384,\n" in text


def test_the_context_of_truthrl_contains_the_response(cli: Any, tmp_path: Path) -> None:
    """16,384 tokens in total, 2 GPUs of an engine, and 0.8 of their memory (appendix A)."""
    for trainer in ("openrlhf", "verl"):
        cli("init", trainer, "-r", "truthrl", "-o", tmp_path / trainer, code=0)
    assert "--data.max_len 16384\n" in read(tmp_path / "openrlhf")
    verl = read(tmp_path / "verl")
    for setting in (
        "data.max_prompt_length=14336",
        "data.max_response_length=2048",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=2",
        "actor_rollout_ref.rollout.gpu_memory_utilization=0.8",
    ):
        assert f"    {setting}\n" in verl
    cli("init", "verl", "-r", "arena", "-o", tmp_path / "arena", code=0)
    assert "gpu_memory_utilization" not in read(tmp_path / "arena")


def test_the_fine_tuning_of_arena_is_that_of_its_code(cli: Any, tmp_path: Path) -> None:
    cli("init", "sft", "-r", "arena", "-o", tmp_path / "sft", code=0)
    text = read(tmp_path / "sft")
    assert "gradient_accumulation_steps=256,\n    learning_rate=1e-05,\n" in text
    assert 'lr_scheduler_type="linear",' in text
    assert "max_grad_norm=0.3," in text
    assert "    # prompt and response; TRL truncates longer rows\n    max_length=4352,\n" in text


def test_the_fine_tuning_of_ground_grpo_is_that_of_trust_align(cli: Any, tmp_path: Path) -> None:
    """SFT: 2e-5, 2 x 18 x 2 rows. DPO: 5e-7, 2 x 16 x 2 rows, beta 0.5. Both: 2 epochs."""
    for method in ("sft", "dpo"):
        cli("init", method, "-r", "ground-grpo", "-o", tmp_path / method, code=0)
    sft, dpo = read(tmp_path / "sft"), read(tmp_path / "dpo")
    assert "gradient_accumulation_steps=72,\n" in sft
    assert "learning_rate=2e-05,\n" in sft
    assert "gradient_accumulation_steps=64,\n" in dpo
    assert "learning_rate=5e-07,\n" in dpo
    assert "beta=0.5,\n" in dpo
    for text, kind in ((sft, "trust-sft"), (dpo, "trust-dpo")):
        assert kind in text
        for value in ("warmup_steps=0.1", "num_train_epochs=2", "max_length=2048"):
            assert f"{value},\n" in text


def test_the_fine_tuning_of_lear_is_a_lora(cli: Any, tmp_path: Path) -> None:
    cli("init", "sft", "-r", "lear", "-o", tmp_path / "sft", code=0)
    text = read(tmp_path / "sft")
    assert "    # LEAR, section 2.2\n    num_train_epochs=3,\n" in text
    assert "        # LEAR, section 2.2\n        peft_config=LoraConfig(r=16),\n" in text


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("method", ["sft", "dpo"])
def test_every_recipe_has_fine_tuning_values(
    cli: Any, tmp_path: Path, recipe: str, method: str
) -> None:
    cli("init", method, "-r", recipe, "--validation", "v.jsonl", "-o", tmp_path / "r", code=0)
    text = read(tmp_path / "r")
    assert 'eval_dataset=load("v.jsonl")' in text
    assert max(map(len, text.splitlines())) <= 160


def test_fine_tuning_has_no_reward(cli: Any, tmp_path: Path) -> None:
    message = cli("init", "sft", "-r", "truthrl", "--nli", "m", "-o", tmp_path, code=2).err
    assert "sft has no reward: omit the options of models" in message


def test_the_kl_penalty_in_trl(cli: Any, tmp_path: Path) -> None:
    recipes = ("arena", "truthrl", "ctrl-rag", "naive-grpo")
    for recipe in recipes:
        cli("init", "trl", "-r", recipe, "-o", tmp_path / recipe, code=0)
    arena, truthrl, ctrl_rag, naive = (read(tmp_path / name) for name in recipes)
    assert "    trainer = K2Trainer(\n" in arena
    assert "beta=0.04,\n" in arena
    assert "    trainer = GRPOTrainer(\n" in truthrl
    assert "beta=0.001,\n" in truthrl
    for text in (arena, truthrl):
        assert "use_bias_correction_kl=False,\n" in text  # no paper weights the penalty
    assert "beta=0.0,\n" in ctrl_rag
    assert "K2Trainer" not in truthrl + ctrl_rag + naive
    assert "penalty k3 (ARENA, section 4.3: the original GRPO)" in naive


def test_the_penalty_k2_with_an_advantage_for_each_turn(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(
        "from dataclasses import replace\n"
        "from rag_rewards.recipes.stepsearch import STEPSEARCH\n"
        "from rag_rewards.training.settings import Stated\n"
        'training = replace(STEPSEARCH.training, kl=Stated("k2", "a test"))\n'
        'OWN = replace(STEPSEARCH, name="mine", training=training)\n'
    )
    monkeypatch.chdir(tmp_path)
    cli("init", "trl", "-r", "mine.py:OWN", "-o", "run", code=0)
    text = (tmp_path / "run" / "train.py").read_text()
    assert "    trainer = K2TurnTrainer(\n" in text
    assert "from rag_rewards_adapters.trl_k2_trainer import K2TurnTrainer\n" in text
    assert "    # a test\n    beta=" in text or "the penalty k2 (a test)" in text


def test_the_plugin_of_ms_swift_selects_the_penalty_k2(cli: Any, tmp_path: Path) -> None:
    for recipe in ("arena", "truthrl"):
        cli("init", "ms-swift", "-r", recipe, "-o", tmp_path / recipe, code=0)
    assert (tmp_path / "arena" / "plugin.py").read_text().endswith("\nuse_k2_penalty()\n")
    assert "k2" not in (tmp_path / "truthrl" / "plugin.py").read_text()


AGGREGATIONS = {
    "trl": ('loss_type="grpo",', 'loss_type="dapo",'),
    "verl": ("loss_agg_mode=seq-mean-token-mean", "loss_agg_mode=token-mean"),
    "openrlhf": ("--actor.loss_agg_mode seq-mean-token-mean", "--actor.loss_agg_mode token-mean"),
    "ms-swift": ("--loss_type grpo", "--loss_type dapo"),
}
"""The setting of the mean over responses, and of the mean over tokens."""


@pytest.mark.parametrize("trainer", AGGREGATIONS)
def test_the_loss_aggregation_of_each_paper(cli: Any, tmp_path: Path, trainer: str) -> None:
    response, token = (f"{line}\n" for line in AGGREGATIONS[trainer])
    for recipe in RECIPES:
        settings = settings_of(trainer, recipe)
        cli("init", trainer, "-r", recipe, *settings, "-o", tmp_path / recipe, code=0)
        text, by_token = read(tmp_path / recipe), recipe in ("arena", "naive-grpo")
        assert (response in text, token in text) == (not by_token, by_token), recipe
    assert "    # CTRL-RAG, Eq. 5\n" in read(tmp_path / "ctrl-rag")
    assert "    # TruthRL, section 3.2\n" in read(tmp_path / "truthrl")


@pytest.mark.parametrize(
    ("trainer", "setting"),
    [
        ("trl", "entropy_coef=0.0"),
        ("verl", "entropy_coeff=0.0"),
        ("openrlhf", "--actor.entropy_coef 0.0"),
        ("ms-swift", "--log_entropy true"),
    ],
)
def test_the_entropy_regularization_of_ctrl_rag(
    cli: Any, tmp_path: Path, trainer: str, setting: str
) -> None:
    for recipe in ("ctrl-rag", "truthrl"):
        cli("init", trainer, "-r", recipe, "-o", tmp_path / recipe, code=0)
    before, found, _ = read(tmp_path / "ctrl-rag").partition(setting)
    assert found
    assert "the paper does not state its form and weight" in before.splitlines()[-2]
    assert "entropy" not in read(tmp_path / "truthrl")


def test_settings_and_models_in_the_script(cli: Any, tmp_path: Path) -> None:
    options = ["--set", "accuracy.metric=f1", "--hardened", "--nli", "a model's folder"]
    cli("init", "verl", "-r", "arena", *options, "-o", tmp_path / "v", code=0)
    text = read(tmp_path / "v")
    assert "reward_kwargs.settings.accuracy.metric=f1" in text
    assert "reward_kwargs.hardened=true" in text
    words = shlex.split(text[text.index("settings=(") : text.index("\n)\n")], comments=True)
    assert r"+reward.custom_reward_function.reward_kwargs.nli='a model\'s folder'" in words


def test_existing_paths_are_absolute(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"input": [{"role": "user", "content": "Which?"}]}')
    (tmp_path / "some model").mkdir()
    arguments = ["--data", "rows.jsonl", "--validation", "later.jsonl", "--policy", "some model"]
    cli("init", "openrlhf", "-r", "lear", *arguments, "-o", "run", code=0)
    text = (tmp_path / "run" / "train.sh").read_text("utf-8")
    assert f"--data.prompt_dataset {tmp_path}/rows.jsonl\n" in text
    assert f"--actor.model_name_or_path '{tmp_path}/some model'\n" in text
    assert "--eval.dataset later.jsonl\n" in text
    assert '--train.agent_func_path "$PWD/agent.py"\n' in text
    assert "std_floor=0.1" in (tmp_path / "run" / "agent.py").read_text("utf-8")


def test_the_file_of_a_recipe_has_an_absolute_path(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def brief(rollout):\n    return 1.0\n")
    cli("init", "trl", "-r", "mine.py:brief", "-o", "run", code=0)
    assert f"{tmp_path}/mine.py:brief" in read(tmp_path / "run")


def test_openrlhf_supports_no_curriculum(cli: Any, tmp_path: Path) -> None:
    cli("init", "openrlhf", "-r", "arena", "-o", tmp_path / "a", code=0)
    text = read(tmp_path / "a")
    assert "--vllm.num_engines 8" in text
    assert '--reward.remote_url "$PWD/rewards.py"' in text
    config = tmp_path / "stages.yaml"
    config.write_text(
        "stages:\n- {recipe: ground-grpo-stage1, until_step: 9}\n- {recipe: ground-grpo}\n"
    )
    message = cli("init", "openrlhf", "--config", config, "-o", tmp_path / "b", code=2)
    assert "does not pass the training step" in message.err


def test_a_stage_with_a_policy_uses_groups(cli: Any, tmp_path: Path) -> None:
    stages = tmp_path / "stages.yaml"
    stages.write_text("stages: [{recipe: naive-grpo, until_step: 9}, {recipe: lear}]")
    cli("init", "verl", "--config", stages, "-o", tmp_path / "v", code=0)
    assert "default_agent_loop=rag_group" in read(tmp_path / "v")


@pytest.mark.parametrize("trainer", ["trl", "verl", "openrlhf", "ms-swift"])
def test_a_dump_has_an_absolute_path(
    cli: Any, tmp_path: Path, trainer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ("--dump", "rollouts.jsonl", "--dump-mb", "64")
    cli("init", trainer, "-r", "arena", "-o", "run", *options, code=0)
    text = "".join(path.read_text("utf-8") for path in (tmp_path / "run").iterdir())
    for setting in (f"dump={tmp_path}/rollouts.jsonl", "dump_mb=64"):
        assert setting in text.replace('"', "")
    assert "dump_files" not in text
    assert not (tmp_path / "rollouts.jsonl").exists()


def test_an_invalid_dump_writes_no_script(cli: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    error = cli("init", "trl", "-r", "arena", "-o", folder, "--dump", "a.parquet", code=2).err
    assert "--dump" in error
    assert "must end in .jsonl" in error
    assert not folder.exists()


def test_existing_files_are_not_overwritten(cli: Any, tmp_path: Path) -> None:
    cli("init", "trl", "-r", "arena", "-o", tmp_path, code=0)
    assert "already exists" in cli("init", "trl", "-r", "truthrl", "-o", tmp_path, code=2).err


def test_ms_swift_gets_the_types_of_a_folder(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tests/trainers/ms_swift` finds them with the installed ms-swift, which these tests lack."""
    policy, types = tmp_path / "policy", {"--model_type": "qwen2", "--template": "qwen2_5"}
    policy.mkdir()
    (policy / "config.json").write_text("{}")
    cli("init", "ms-swift", "-r", "arena", "--policy", "owner/name", "-o", tmp_path / "hub", code=0)
    assert "--model_type" not in read(tmp_path / "hub")
    monkeypatch.setattr(model_types, "installed_version", lambda _: None)
    cli("init", "ms-swift", "-r", "arena", "--policy", policy, "-o", tmp_path / "absent", code=0)
    script = read(tmp_path / "absent")
    assert "# add --model_type and --template" in script
    assert not re.search(r"^ +--model_type", script, re.MULTILINE)
    monkeypatch.setattr(model_types, "installed_version", lambda _: "4.6.0")
    monkeypatch.setattr(model_types, "run_isolated", lambda code: (types, ""))
    model_types.model_types.cache_clear()
    cli("init", "ms-swift", "-r", "arena", "--policy", policy, "-o", tmp_path / "known", code=0)
    script = read(tmp_path / "known")
    assert "    --model_type qwen2\n    --template qwen2_5\n" in script
    assert "# add --model_type" not in script


@pytest.mark.parametrize("trainer", WITH_SCRIPT)
def test_a_trial_has_a_tiny_model_and_its_rows(cli: Any, tmp_path: Path, trainer: str) -> None:
    if trainer == "verl":
        pytest.importorskip("pyarrow")
    folder = tmp_path / "run"
    cli("init", trainer, "-r", "arena", "--tiny", "-o", folder, code=0)
    data = folder / f"train.{'parquet' if trainer == 'verl' else 'jsonl'}"
    for file in CHECKPOINT.iterdir():
        assert (folder / "model" / file.name).read_bytes() == file.read_bytes()
    assert "content" in (folder / "model" / "chat_template.jinja").read_text()
    rows = data.read_bytes()
    assert b" . ?arena " in rows
    scripts = [path for path in files_of(folder) if path.suffix in (".py", ".sh", ".yaml", ".toml")]
    text = "\n".join(path.read_text("utf-8") for path in scripts)
    assert str(folder / "model") in text
    if trainer in PUBLISHED:
        copies = [path for path in files_of(folder) if path.name == data.name]
        assert {path.read_bytes() for path in copies} == {rows}
        assert str(data) not in text
    else:
        assert str(data) in text
    assert "path/to/model" not in text
    again = cli("init", trainer, "-r", "arena", "--tiny", "-o", folder, code=2).err
    assert "already exists" in again
    assert data.read_bytes() == rows


RULES = {"truthrl": {"verifier": "exact"}, "ground-grpo": {"citation.judge_by": "gold"}}
"""The settings with which a recipe needs no model."""


@pytest.mark.parametrize("name", FORMS)
def test_rows_of_a_trial_have_what_the_recipe_reads(cli: Any, tmp_path: Path, name: str) -> None:
    form, recipe = FORMS[name], rr.recipe(name, RULES.get(name))
    cli("init", "trl", "-r", name, "--tiny", "-o", tmp_path / "run", code=0)
    lines = (tmp_path / "run" / "train.jsonl").read_text().splitlines()
    assert len(lines) >= 200
    for row in map(json.loads, lines[:40]):
        [message] = row.pop("prompt")
        assert message["content"].endswith(f"{form.marker} {row['question']}")
        flower = row["answers"][0][0] if row["answerable"] else None
        support = int(row["supporting"][0]) if row["answerable"] else None
        right = form.write(row["question"], flower, support)
        wrong = form.write(row["question"], "oak", support)
        grades = [{"verdicts": {"rubric": {"answer": each}}} for each in (1, 0)]
        responses = zip((right, wrong), grades, strict=True)
        scores = recipe([rr.decode_row(row | {"response": r} | each) for r, each in responses])
        assert scores[0].value > scores[1].value, (row, right)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("trl", "-r", "lear"), "the tiny model does not write the responses of lear"),
        (("trl", "-r", "arena", "--policy", "m"), "leave out --policy, --data and --columns"),
        (("trl", "-r", "arena", "--data", "d"), "leave out --policy, --data and --columns"),
        (("trl", "-r", "arena", "--columns", "ragas"), "leave out --policy, --data and --columns"),
        (("dpo", "-r", "truthrl"), "no trainer 'dpo'"),
    ],
)
def test_what_a_trial_refuses(
    cli: Any, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    folder = tmp_path / "run"
    assert message in cli("init", *words, "--tiny", "-o", folder, code=2).err
    assert not folder.exists()


def test_the_help_lists_the_recipes_of_a_trial(cli: Any) -> None:
    words = " ".join(cli("init", "--help", code=0).out.replace("│", " ").split())
    *first, last = FORMS
    assert f"For {', '.join(first)} and {last}." in words


def test_an_unknown_trainer_or_recipe(cli: Any, tmp_path: Path) -> None:
    assert "did you mean 'verl'" in cli("init", "verll", "-r", "arena", code=2).err
    assert "did you mean 'arena'" in cli("init", "verl", "-r", "arnea", code=2).err


def test_a_module_in_the_current_folder_is_found_from_the_folder_of_the_script(
    cli, tmp_path, monkeypatch
):
    """The scripts of some trainers change into their own folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_reward.py").write_text("def brief(rollout):\n    return 1.0\n")
    cli("init", "verl", "--data", "rows.jsonl", "-o", "start", "-r", "own_reward:brief", code=0)
    script = (tmp_path / "start" / "train.sh").read_text()
    assert f"recipe={tmp_path}/own_reward.py:brief" in script


OWN = {"query": "Which river?", "contexts": ["The Seine.", "Lyon."], "gold": "Seine"}
"""A row of a user, whose columns have other names than the fields."""
OPTION = "documents=contexts,answers=gold,question=query"


@pytest.mark.parametrize("trainer", ["trl", "ms-swift", "openrlhf"])
@pytest.mark.parametrize("recipe", ["naive-grpo", "arena", "search-r1"])
def test_rows_of_a_user_are_prepared(
    cli: Any, write: Any, tmp_path: Path, trainer: str, recipe: str
) -> None:
    rows, folder = write([OWN]), tmp_path / "run"
    arguments = ("init", trainer, "-r", recipe, "--data", rows, "--validation", rows, "-o", folder)
    result = cli(*arguments, code=2)
    assert f"Pass --columns {OPTION}" in result.err
    assert not (folder / "train.jsonl").exists()
    result = cli(*arguments, "--columns", OPTION, code=0)
    supporting = "without `supporting`, the documents with an answer support a row"
    assert (supporting in result.err) == (recipe == "arena")
    prompt = ("--prompt", "tools" if trainer == "trl" else "search-r1")
    more = {"arena": ("--find-answers",), "search-r1": prompt}.get(recipe, ())
    expected = tmp_path / "expected.jsonl"
    command = ("prepare", "rows", rows, "-r", recipe, "-t", trainer, "--columns", OPTION, *more)
    cli(*command, "-o", expected, code=0)
    script = "".join(path.read_text("utf-8") for path in files_of(folder) if path.suffix != ".md")
    for name in ("train.jsonl", "validation.jsonl"):
        assert (folder / name).read_text("utf-8") == expected.read_text("utf-8")
        assert str(folder / name) in script
    assert "already exists" in cli(*arguments, "--columns", OPTION, code=2).err
    again = ("init", trainer, "-r", recipe, "--data", expected, "-o", tmp_path / "b")
    assert not cli(*again, code=0).err


PROMPTS = {"trl": "prompt", "verl": "input", "ms-swift": "messages", "nemo-gym": "prompt"}
"""By trainer: a column with the question that has the name of a prompt."""


@pytest.mark.parametrize(("trainer", "column"), PROMPTS.items())
def test_a_question_in_a_column_of_prompts(
    cli: Any, write: Any, tmp_path: Path, trainer: str, column: str
) -> None:
    if trainer == "verl":
        pytest.importorskip("pyarrow")
    rows = write([{column: OWN["query"], "contexts": OWN["contexts"], "gold": OWN["gold"]}])
    arguments = ("init", trainer, "-r", "arena", "--data", rows, "-o", tmp_path / "run")
    error = cli(*arguments, code=2).err
    assert "question: missing" in error
    assert "Pass --columns" in error
    columns = f"question={column},answers=gold,documents=contexts"
    result = cli(*arguments, "--columns", columns, code=0)
    assert "1 of 1 rows" in result.err
    data = tmp_path / "run" / f"train.{TRAINERS[trainer].suffix}"
    assert b"<references>" in data.read_bytes()
    absent = cli(*arguments[:-1], tmp_path / "b", "--columns", "id=a", "--validation", "no.jsonl")
    assert "cannot read no.jsonl: No such file or directory" in absent.err
    assert not (tmp_path / "b").exists()
    without = ("init", trainer, "-r", "arena", "-o", tmp_path / "b", "--columns", columns)
    assert "set --data" in cli(*without, code=2).err


@pytest.mark.parametrize("trainer", PUBLISHED)
def test_a_published_folder_contains_its_rows_once_and_no_path(
    cli: Any, write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainer: str
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ("init", trainer, "-r", "arena", "-o")
    own = ("--columns", OPTION, "--data", write([OWN, {**OWN, "contexts": []}]))
    cli(*arguments, "own", *own, code=0)
    assert sorted(path.name for path in tmp_path.glob("own-*")) == [
        "own-train.jsonl.card.md",
        "own-train.jsonl.dropped.jsonl",
    ]
    [rows] = (tmp_path / "own").rglob("*.jsonl")
    (tmp_path / "train.jsonl").write_bytes(rows.read_bytes())
    cli(*arguments, "default", code=0)  # reads train.jsonl of the current folder
    cli(*arguments, "given", "--data", "train.jsonl", code=0)
    expected = {path.relative_to("own"): path.read_text() for path in files_of(Path("own"))}
    for folder in ("default", "given"):
        files = {path.relative_to(folder): path.read_text() for path in files_of(Path(folder))}
        assert files == expected
    assert str(tmp_path) not in "".join(expected.values())
    again = cli(*arguments, "given", "--data", "train.jsonl", code=2)
    assert "already exists" in again.err
    (tmp_path / "rows.json").write_text("[]")
    assert "convert it" in cli(*arguments, "b", "--data", "rows.json", code=2).err
    assert not (tmp_path / "b").exists()


def test_rows_of_a_user_that_init_does_not_prepare(cli: Any, write: Any, tmp_path: Path) -> None:
    rows, stages = write([OWN]), tmp_path / "stages.yaml"
    stages.write_text("stages: [{recipe: naive-grpo, until_step: 9}, {recipe: naive-grpo}]")
    arguments = ("--data", rows, "--columns", OPTION, "-o", tmp_path / "run")
    assert "`rag-rewards select`" in cli("init", "sft", "-r", "arena", *arguments, code=2).err
    result = cli("init", "trl", "--config", stages, *arguments, code=2)
    assert "`rag-rewards prepare rows`" in result.err
    assert not (tmp_path / "run").exists()


def test_prompts_of_data_without_the_form_of_the_hardened_profile(
    cli: Any, write: Any, tmp_path: Path
) -> None:
    rows = write([{"prompt": [{"role": "user", "content": "Which river?"}], "answers": ["Seine"]}])
    arguments = ("init", "trl", "--data", rows, "-r", "rag-total")
    assert not cli(*arguments, "-o", tmp_path / "a", code=0).err
    result = cli(*arguments, "--hardened", "-o", tmp_path / "b", code=0)
    assert result.err == (
        f"the prompts of {rows} do not request the <answer> section, which the hardened profile "
        "reads: write them with `rag-rewards prepare --hardened`\n"
    )
