"""`rag-rewards init TRAINER`: a start script with a recipe's published training side.

Every value stands under a comment that says where it comes from, or that its paper does not state
it. Where the trainer is installed, its own code reads what was written.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from rag_rewards.commands.doctor import installed, run_apart
from rag_rewards.errors import UsageError
from rag_rewards.grading import ModelOptions
from rag_rewards.scoring import Plan
from rag_rewards.settings import did_you_mean
from rag_rewards.training.published import Stated, Training, training_of

Line = tuple[str, str | tuple[str, ...]]
"""A comment, and what stands below it: an assignment, or a flag and its values."""

OWN = "of this package"
_ONCE = "{}: one update a step"
_FILES = f"{OWN}: the columns that prepare writes"
_LOGGED = f"{OWN}: a group without a score is replaced, components are logged"
_SCALED = "{}: the reward brings the scale"
_DIVIDE = "a prompt's rollouts at a time; on several devices divide the next by their number"
_VERL_KL = {"k2": "mse", "k3": "low_var_kl"}
YOURS = "yours"
_HERE = "$PWD/"


@dataclass(frozen=True)
class Start:
    """What a script is written for."""

    plan: Plan
    models: ModelOptions
    training: Training
    model: str
    data: str
    validation: str | None = None

    @property
    def name(self) -> str:
        return self.plan.recipe or "curriculum"

    @property
    def group(self) -> bool:
        return self.plan.build().scope == "group"

    @property
    def asks_policy(self) -> bool:
        """Likelihoods or masked answers of the policy in training."""
        named = {self.plan.recipe, *(stage.get("recipe") for stage in self.plan.stages)}
        return bool(named & {"ctrl-rag", "ctrl-rag-clr", "lear"}) and self.models.model is None

    @property
    def options(self) -> dict[str, Any]:
        """The recipe and its models, as every adapter takes them by name."""
        said: dict[str, Any] = {}
        for name in ("recipe", "settings", "hardened", "stages"):
            if value := getattr(self.plan, name):
                said[name] = value
        default = ModelOptions()
        for name in default.__dataclass_fields__:
            value = getattr(self.models, name)
            if value != getattr(default, name):
                said[name] = value
        return said


def write(trainer: str, start: Start, folder: Path) -> list[Path]:
    """Write the files. UsageError rather than over what stands there, or for an unknown trainer."""
    if trainer not in WRITERS:
        raise UsageError(f"no trainer {trainer!r}{did_you_mean(trainer, WRITERS)}")
    made = {folder / name: text for name, text in WRITERS[trainer](start).items()}
    if there := [path for path in made if path.exists()]:
        raise UsageError(f"{there[0]} is there already: choose another folder with -o")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in made.items():
        path.write_text(text, "utf-8")
        if path.suffix == ".sh":
            path.chmod(0o755)
    return list(made)


def check(trainer: str, folder: Path) -> str:
    """What the installed trainer's own code does not know of the files; "" where all is well, or
    where there is none to ask."""
    package, code = CHECKS[trainer]
    if installed(package) is None:
        return ""
    told, why = run_apart(f"folder = {str(folder.resolve())!r}\n{code}")
    if told is None:
        return why
    return ", ".join(told["unknown"])


# --- common parts ------------------------------------------------------------------------------


def _of(key: str, stated: Stated[Any], render: Callable[[Any], str] = str) -> Line:
    return stated.source, f"{key}{render(stated.value)}"


def _array(lines: Iterable[Line]) -> Iterator[str]:
    """Entries of an array of the shell; a comment once for neighbours that share it."""
    last = None
    for comment, entry in lines:
        if comment != last:
            yield f"    # {comment}"
        last = comment
        yield f"    {' '.join(map(_word, [entry] if isinstance(entry, str) else entry))}"


def _word(text: str) -> str:
    """A word of the shell; the script's own folder is the shell's to fill in."""
    return f'"{text}"' if text.startswith(_HERE) else shlex.quote(text)


def _flag(name: str, *values: Any) -> tuple[str, ...]:
    return (name, *map(str, values))


def _flag_of(name: str, stated: Stated[Any]) -> Line:
    return stated.source, _flag(name, stated.value)


def _script(start: Start, what: str, lines: Iterable[Line], run: str, before: str = "") -> str:
    body = "\n".join(_array(lines))
    return (
        f"#!/usr/bin/env bash\n# {what}, with the reward {start.name}. Further settings on the "
        'command line stand over these.\nset -euo pipefail\ncd "$(dirname "$0")"\n'
        f'{before}\nsettings=(\n{body}\n)\n{run} "${{settings[@]}}" "$@"\n'
    )


def _python(options: dict[str, Any]) -> str:
    """Keyword arguments, as one would write them."""
    return ", ".join(f"{name}={_quoted(value)}" for name, value in options.items())


def _quoted(value: Any) -> str:
    """A value in Python, text in double quotes."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


# --- TRL ---------------------------------------------------------------------------------------


def trl(start: Start) -> dict[str, str]:
    """One Python file."""
    said = start.training
    prompts, group = said.prompts, said.group
    floor = said.std_floor
    beta = _of("beta=", said.kl_weight)
    if said.kl.value == "k2":
        beta = (f"{said.kl_weight.source}. {said.kl.source}; TRL has k3 alone", beta[1])
    lines: list[Line] = [
        (YOURS, f"output_dir={_quoted(start.name)}"),
        _of("num_generations=", group),
        (
            _DIVIDE,
            f"per_device_train_batch_size={group.value}",
        ),
        _of("gradient_accumulation_steps=", prompts),
        _of("learning_rate=", said.learning_rate),
        _of("lr_scheduler_type=", said.schedule, _quoted),
        (f"{said.warmup.source}, as a share of the steps", f"warmup_steps={said.warmup.value}"),
        _of("num_train_epochs=", said.epochs),
        beta,
        _of("epsilon=", said.clip),
        _of("temperature=", said.temperature),
        _of("top_p=", said.top_p),
        _of("max_completion_length=", said.response_tokens),
    ]
    if floor.value is not None:
        lines.append((_SCALED.format(floor.source), 'scale_rewards="none"'))
    lines.append((OWN + ": gold columns reach the reward", "remove_unused_columns=False"))
    options = start.options | ({"std_floor": floor.value} if floor.value is not None else {})
    settings = "\n".join(_arguments(lines))
    recipe = options.pop("recipe", None)
    first = [_quoted(recipe)] if recipe else []
    reward = ", ".join([*first, *([_python(options)] if options else [])])
    validation = ""
    if start.validation:
        validation = f"        eval_dataset=load({_quoted(start.validation)}),\n"
    return {
        "train.py": f'''"""GRPO with TRL and the reward {start.name}: python train.py

Further settings of GRPOConfig on the command line stand over these: --max_steps 10.
"""

from datasets import load_dataset
from transformers import HfArgumentParser
from trl import GRPOConfig, GRPOTrainer

from rag_rewards_adapters.trl import RagReward

settings = dict(
{settings}
)
reward = RagReward({reward})


def load(path):
    return load_dataset("json", data_files=path, split="train")


if __name__ == "__main__":
    parser = HfArgumentParser(GRPOConfig)
    parser.set_defaults(**settings)
    trainer = GRPOTrainer(
        {_quoted(start.model)},
        reward_funcs=reward,
        args=parser.parse_args_into_dataclasses()[0],
        train_dataset=load({_quoted(start.data)}),
{validation}    )
    reward.bind(trainer)
    trainer.train()
'''
    }


def _arguments(lines: Iterable[Line]) -> Iterator[str]:
    last = None
    for comment, entry in lines:
        if comment != last:
            yield f"    # {comment}"
        last = comment
        yield f"    {entry},"


# --- verl --------------------------------------------------------------------------------------


def verl(start: Start) -> dict[str, str]:
    """One script; settings of the recipe stand under reward_kwargs."""
    said = start.training
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    kwargs = "+reward.custom_reward_function.reward_kwargs"
    lines: list[Line] = [
        (YOURS, f"actor_rollout_ref.model.path={_hydra(start.model)}"),
        (YOURS, f"data.train_files={_hydra(start.data)}"),
        (YOURS, f"data.val_files={_hydra(start.validation or start.data)}"),
        (YOURS, "trainer.n_gpus_per_node=8"),
        (YOURS, "trainer.logger=[console]"),
        (YOURS, f"{rollout}.name=vllm"),
        (YOURS, f"{actor}.use_dynamic_bsz=True"),
        (YOURS, f"trainer.experiment_name={start.name}"),
        (OWN, "reward.reward_manager.name=rag_rewards"),
        *[(OWN, f"{kwargs}.{key}={_hydra(value)}") for key, value in _flat(start.options)],
        _of("data.train_batch_size=", said.prompts),
        (
            f"{said.prompts.source}: one update a step",
            f"{actor}.ppo_mini_batch_size={said.prompts.value}",
        ),
        _of("data.max_prompt_length=", said.prompt_tokens),
        (f"{OWN}: a prompt is whole or left out", "data.filter_overlong_prompts=True"),
        _of("data.max_response_length=", said.response_tokens),
        _of(f"{rollout}.n=", said.group),
        _of(f"{rollout}.temperature=", said.temperature),
        _of(f"{rollout}.top_p=", said.top_p),
        _of(f"{actor}.optim.lr=", said.learning_rate),
        _of(f"{actor}.optim.lr_scheduler_type=", said.schedule),
        _of(f"{actor}.optim.lr_warmup_steps_ratio=", said.warmup),
        _of(f"{actor}.clip_ratio=", said.clip),
        _of("trainer.total_epochs=", said.epochs),
        *_verl_kl(said, actor),
        *_verl_advantage(said),
    ]
    if start.group or start.asks_policy:
        lines += [
            (f"{OWN}: a group is scored together", f"{rollout}.agent.default_agent_loop=rag_group"),
            (
                _LOGGED,
                "trainer.v1.sampler.sync_refill_failed_groups=True",
            ),
            (
                _LOGGED,
                "trainer.v1.sampler.custom_sampler.path=pkg://rag_rewards_adapters.verl_sampler",
            ),
            (
                _LOGGED,
                "trainer.v1.sampler.custom_sampler.name=RagReplayBuffer",
            ),
        ]
    return {"train.sh": _script(start, "GRPO with verl", lines, "python3 -m verl.trainer.main_ppo")}


def _verl_kl(said: Training, actor: str) -> Iterator[Line]:
    if said.kl.value == "none":
        yield said.kl.source, f"{actor}.use_kl_loss=False"
        return
    yield said.kl.source, f"{actor}.use_kl_loss=True"
    # verl calls k3 low_var_kl and half a squared difference mse.
    yield (
        said.kl.source,
        f"{actor}.kl_loss_type={ {'k2': 'mse', 'k3': 'low_var_kl'}[said.kl.value] }",
    )
    yield _of(f"{actor}.kl_loss_coef=", said.kl_weight)


def _verl_advantage(said: Training) -> Iterator[Line]:
    floor = said.std_floor
    if floor.value is None:
        yield OWN, "algorithm.adv_estimator=grpo"
        return
    yield floor.source, "algorithm.adv_estimator=rag_grpo_clip_std"
    yield floor.source, f"+algorithm.std_floor={floor.value}"


def _flat(options: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in options.items():
        if key == "settings":
            yield from ((f"settings.{name}", setting) for name, setting in value.items())
        else:
            yield key, value


def _hydra(value: Any) -> str:
    """A value as hydra's command line reads it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_hydra(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_hydra, value)) + "]"
    if isinstance(value, str) and (not _BARE.fullmatch(value) or value.lower() in _MEANINGFUL):
        return "'" + value.replace("'", "\\'") + "'"
    return str(value)


_BARE = re.compile(r"[A-Za-z_./][\w./:@+-]*")
_MEANINGFUL = {"true", "false", "null", "none", "nan", "inf"}
"""Texts that hydra reads as they stand, but for these."""


# --- OpenRLHF ----------------------------------------------------------------------------------


def openrlhf(start: Start) -> dict[str, str]:
    """A script, and a file with the reward; group recipes have an agent executor there."""
    if start.plan.stages:
        raise UsageError("OpenRLHF tells a reward no training step: write a script for each stage")
    said = start.training
    rollouts = said.prompts.value * said.group.value
    floor = said.std_floor
    way, pages = "--reward.remote_url", "rewards.py"
    if start.group or start.asks_policy or floor.value is not None:
        way, pages = "--train.agent_func_path", "agent.py"
    estimator = "group_norm" if floor.value is None else "dr_grpo"
    lines: list[Line] = [
        (YOURS, _flag("--actor.model_name_or_path", start.model)),
        (YOURS, _flag("--data.prompt_dataset", start.data)),
        (YOURS, _flag("--ckpt.output_dir", start.name)),
        *_openrlhf_machine(start),
        (_FILES, _flag("--data.input_key", "input")),
        (_FILES, _flag("--data.label_key", "label")),
        (_FILES, _flag("--data.apply_chat_template")),
        (OWN, _flag(way, _HERE + pages)),
        _flag_of("--rollout.batch_size", said.prompts),
        (_ONCE.format(said.prompts.source), _flag("--train.batch_size", rollouts)),
        _flag_of("--rollout.n_samples_per_prompt", said.group),
        _flag_of("--rollout.temperature", said.temperature),
        _flag_of("--rollout.top_p", said.top_p),
        _flag_of("--rollout.max_new_tokens", said.response_tokens),
        (
            "room for prompt and response, and a token for log-probabilities",
            _flag("--data.max_len", said.prompt_tokens.value + said.response_tokens.value + 1),
        ),
        _flag_of("--actor.adam.lr", said.learning_rate),
        _flag_of("--actor.lr_scheduler", said.schedule),
        _flag_of("--actor.lr_warmup_ratio", said.warmup),
        _flag_of("--actor.eps_clip", said.clip),
        _flag_of("--train.num_episodes", said.epochs),
        (
            floor.source if floor.value is not None else OWN,
            _flag("--algo.advantage.estimator", estimator),
        ),
        *_openrlhf_kl(said),
        (
            f"{OWN}: what is centred is not clipped",
            _flag("--reward.clip_range", -100, 100),
        ),
    ]
    before = ""
    if floor.value is not None:
        before = (
            "# The agent sends the group's advantage as the reward; dr_grpo centres it again,\n"
            "# which changes nothing.\n"
        )
    run = "python3 -m openrlhf.cli.train_ppo_ray"
    script = _script(start, "GRPO with OpenRLHF", lines, run, before)
    return {"train.sh": script, pages: _openrlhf_page(start, pages)}


def _openrlhf_machine(start: Start) -> Iterator[Line]:
    """Its flags have no useful defaults: without engines nothing generates."""
    for name in ("actor", "ref"):
        yield YOURS, _flag(f"--{name}.num_gpus_per_node", 8)
    turns = f"{YOURS}: an engine on each, in turn with training"
    yield turns, _flag("--vllm.num_engines", 8)
    for name in ("--train.colocate_all", "--vllm.enable_sleep", "--ds.enable_sleep"):
        yield turns, _flag(name)
    # What log-probabilities of a prompt need is not in the memory that vLLM plans for.
    yield YOURS, _flag("--vllm.gpu_memory_utilization", 0.5 if start.asks_policy else 0.6)
    if start.validation:
        yield YOURS, _flag("--eval.dataset", start.validation)
        yield YOURS, _flag("--eval.steps", 20)
        yield f"{OWN}: the reward of one answer", _flag("--eval.n_samples_per_prompt", 1)


def _openrlhf_kl(said: Training) -> Iterator[Line]:
    if said.kl.value == "none":
        yield said.kl.source, _flag("--algo.kl.init_coef", "0")
        return
    yield said.kl.source, _flag("--algo.kl.use_loss")
    yield said.kl.source, _flag("--algo.kl.estimator", said.kl.value)
    yield _flag_of("--algo.kl.init_coef", said.kl_weight)


def _openrlhf_page(start: Start, name: str) -> str:
    options = dict(start.options)
    if name == "rewards.py":
        return (
            "from rag_rewards_adapters.openrlhf import reward_function\n\n"
            f"reward_func = reward_function({_python(options)})\n"
        )
    if start.training.std_floor.value is not None:
        options["std_floor"] = start.training.std_floor.value
    return (
        "from rag_rewards_adapters.openrlhf_agent import executor\n\n"
        f"AgentExecutor = executor({_python(options)})\n"
    )


# --- ms-swift ----------------------------------------------------------------------------------


def ms_swift(start: Start) -> dict[str, str]:
    """A script and its plugin."""
    said = start.training
    floor = said.std_floor
    options = dict(start.options)
    recipe = options.pop("recipe", None)
    if recipe is None:
        options = {"name": start.name, **options}
    if floor.value is not None:
        options["std_floor"] = floor.value
    first = [_quoted(recipe)] if recipe else []
    register = ", ".join([*first, *([_python(options)] if options else [])])
    lines: list[Line] = [
        (YOURS, _flag("--model", start.model)),
        (YOURS, _flag("--dataset", start.data)),
        (YOURS, _flag("--output_dir", start.name)),
        *([(YOURS, _flag("--val_dataset", start.validation))] if start.validation else []),
        (OWN, _flag("--external_plugins", "plugin.py")),
        (OWN, _flag("--reward_funcs", start.name)),
        _flag_of("--num_generations", said.group),
        (
            _DIVIDE,
            _flag("--per_device_train_batch_size", said.group.value),
        ),
        _flag_of("--gradient_accumulation_steps", said.prompts),
        _flag_of("--learning_rate", said.learning_rate),
        _flag_of("--lr_scheduler_type", said.schedule),
        _flag_of("--warmup_ratio", said.warmup),
        _flag_of("--num_train_epochs", said.epochs),
        (
            said.kl_weight.source + ("; ms-swift has k3 alone" if said.kl.value == "k2" else ""),
            _flag("--beta", said.kl_weight.value),
        ),
        _flag_of("--epsilon", said.clip),
        _flag_of("--temperature", said.temperature),
        _flag_of("--top_p", said.top_p),
        _flag_of("--max_length", said.prompt_tokens),
        _flag_of("--max_completion_length", said.response_tokens),
    ]
    if floor.value is not None:
        lines.append((_SCALED.format(floor.source), _flag("--scale_rewards", "none")))
    run = "swift rlhf --rlhf_type grpo"
    return {
        "train.sh": _script(start, "GRPO with ms-swift", lines, run),
        "plugin.py": "from rag_rewards_adapters.ms_swift import register\n\n"
        f"register({register})\n",
    }


WRITERS: dict[str, Callable[[Start], dict[str, str]]] = {
    "trl": trl,
    "verl": verl,
    "openrlhf": openrlhf,
    "ms-swift": ms_swift,
}

_READ_SETTINGS = """
import json, re, shlex
from pathlib import Path
text = (Path(folder) / "train.sh").read_text()
array = text[text.index("settings=(") + len("settings=(") : text.index("\\n)\\n")]
words = shlex.split(array, comments=True)
"""
CHECKS: dict[str, tuple[str, str]] = {
    "trl": (
        "trl",
        """
import dataclasses, json, re
from pathlib import Path
from trl import GRPOConfig
known = {field.name for field in dataclasses.fields(GRPOConfig)}
text = (Path(folder) / "train.py").read_text()
array = text[text.index("settings = dict(") : text.index("\\nreward = ")]
used = re.findall(r"^    (\\w+)=", array, re.M)
print(json.dumps({"unknown": [name for name in used if name not in known]}))
""",
    ),
    "verl": (
        "verl",
        _READ_SETTINGS
        + """
import verl
from hydra import compose, initialize_config_module
with initialize_config_module("verl.trainer.config", version_base=None):
    compose("ppo_trainer", overrides=words)
print(json.dumps({"unknown": []}))
""",
    ),
    "openrlhf": (
        "openrlhf",
        _READ_SETTINGS
        + """
from importlib.util import find_spec
root = Path(find_spec("openrlhf").origin).parent
source = (root / "cli" / "train_ppo_ray.py").read_text()
known = set(re.findall(r'"--([a-zA-Z0-9_.]+)"', source))
known |= {f"actor{name}" for name in re.findall(r'f"--\\{prefix\\}([a-zA-Z0-9_.]+)"', source)}
used = [word[2:] for word in words if word.startswith("--")]
print(json.dumps({"unknown": [name for name in used if name not in known]}))
""",
    ),
    "ms-swift": (
        "ms-swift",
        _READ_SETTINGS
        + """
import dataclasses
from swift.arguments import RLHFArguments
known = {field.name for field in dataclasses.fields(RLHFArguments)}
used = [word[2:] for word in words if word.startswith("--")]
print("\\n" + json.dumps({"unknown": [name for name in used if name not in known]}))
""",
    ),
}


def start_of(
    plan: Plan, models: ModelOptions, model: str, data: str, validation: str | None
) -> Start:
    """The start of a plan; a curriculum trains as its last stage's paper did.

    Scripts run in their own folder, and workers in any: paths that there are stand there in full.
    """
    last = plan.recipe or str(plan.stages[-1].get("recipe"))
    return Start(
        plan,
        models,
        training_of(last),
        _in_full(model),
        _in_full(data),
        _in_full(validation) if validation else None,
    )


def _in_full(path: str) -> str:
    return str(Path(path).resolve()) if Path(path).exists() else path


def as_data(training: Training) -> dict[str, Any]:
    """Values and sources, for --json."""
    return {name: msgspec.to_builtins(stated) for name, stated in training.items()}
