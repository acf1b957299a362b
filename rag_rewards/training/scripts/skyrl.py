"""Training scripts of SkyRL: a shell script with settings, and an entry point with the reward."""

from __future__ import annotations

from collections.abc import Iterator

from rag_rewards.training.scripts.start import SEARCH_TURNS, Start
from rag_rewards.training.scripts.writer import (
    FOR_REWARD,
    HERE,
    NO_SCALING,
    READ_SHELL_SETTINGS,
    SEARCH_CHECK,
    SEARCH_MODULE,
    TAG_DIALECTS,
    YOUR_SETUP,
    Line,
    ScriptWriter,
    assignment,
    python_call,
    search_module,
    shell_script,
)
from rag_rewards.training.settings import NOT_STATED, Training
from rag_rewards.turns.dialects import ANSWER, DIALECTS, SEARCH_R1, Dialect

_ALGORITHM, _POLICY = "trainer.algorithm", "trainer.policy"
_SCHEDULES = {"constant": "constant_with_warmup"}
"""The names of the schedules in SkyRL, where they differ."""
_AGGREGATIONS = {"response": "sequence_mean", "token": "token_mean"}
"""The names of the aggregations in SkyRL."""
_NO_VALIDATION = f"{YOUR_SETUP}: without a validation file, no validation"
_SEARCH = f"{FOR_REWARD}: an environment with a search engine"
_WARMUP = "# The warm-up is {} of the steps ({}): set {}.optimizer_config.num_warmup_steps.\n"

_MAIN = '''"""Train with SkyRL, with the reward {name}."""

import sys

import ray
from rag_rewards_adapters.skyrl import SkyRLRecipe, experiment
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.utils import initialize_ray, validate_cfg


@ray.remote(num_cpus=1)
def train(config: SkyRLTrainConfig) -> None:
    recipe = {recipe}
    experiment(recipe)(config).run()


if __name__ == "__main__":
    config = SkyRLTrainConfig.from_cli_overrides(sys.argv[1:])
    validate_cfg(config)
    initialize_ray(config)
    ray.get(train.remote(config))
'''


def write(start: Start) -> dict[str, str]:
    """Return the script and the entry point, with the search engine if the policy searches.

    Raise UsageError if a model is missing, and for a dialect without tags.
    """
    start.check_model("SkyRL")
    start = start.for_dialect("SkyRL", TAG_DIALECTS)
    options = start.advantage_options
    command, files = "python3 main.py", {}
    if start.searches:
        environment = {"retriever": "search:search", "dialect": _dialect(start).name}
        options = options | {"environment": environment}
        command, files = SEARCH_CHECK + command, {SEARCH_MODULE: search_module(start)}
    call = python_call("SkyRLRecipe", options, first="recipe")
    script = shell_script(start, "SkyRL", _lines(start), command, _note(start.training))
    return {"train.sh": script, "main.py": _MAIN.format(name=start.name, recipe=call), **files}


def _note(training: Training) -> str:
    warmup = training.warmup
    return _WARMUP.format(warmup.value, warmup.source, _POLICY) if warmup.value else ""


def _lines(start: Start) -> Iterator[Line]:
    training = start.training
    yield YOUR_SETUP, (f"{_POLICY}.model.path={start.policy}",)
    yield YOUR_SETUP, (f"data.train_data=[{_quoted(start.data)}]",)
    yield from _validation(start)
    for role in ("policy", "ref"):
        yield YOUR_SETUP, (f"trainer.placement.{role}_num_gpus_per_node=8",)
    yield YOUR_SETUP, ("generator.inference_engine.num_engines=8",)
    yield YOUR_SETUP, ("generator.inference_engine.gpu_memory_utilization=0.6",)
    yield YOUR_SETUP, ("trainer.logger=console",)
    yield YOUR_SETUP, (f"trainer.run_name={start.name}",)
    yield YOUR_SETUP, (f"trainer.ckpt_path={HERE}{start.name}",)
    yield YOUR_SETUP, (f"trainer.export_path={HERE}{start.name}/exports",)
    yield from _environment(start)
    yield from _sampling(training)
    yield assignment(f"{_POLICY}.optimizer_config.lr", training.learning_rate)
    yield assignment(f"{_POLICY}.optimizer_config.scheduler", training.schedule, _schedule)
    yield assignment("trainer.update_epochs_per_batch", training.iterations)
    yield assignment("trainer.epochs", training.epochs)
    yield assignment(f"{_ALGORITHM}.eps_clip_low", training.clip)
    yield assignment(f"{_ALGORITHM}.eps_clip_high", training.clip)
    yield assignment(
        f"{_ALGORITHM}.loss_reduction", training.loss_aggregation, _AGGREGATIONS.__getitem__
    )
    if training.entropy_weight.source != NOT_STATED:
        yield training.entropy_weight.source, (f"{_ALGORITHM}.use_entropy_loss=true",)
        yield assignment(f"{_ALGORITHM}.entropy_loss_coef", training.entropy_weight)
    yield from _kl(training)
    yield FOR_REWARD, (f"{_ALGORITHM}.advantage_estimator=grpo",)
    if training.std_floor.value is not None:
        comment = NO_SCALING.format(training.std_floor.source)
        yield comment, (f"{_ALGORITHM}.grpo_norm_by_std=false",)


def _validation(start: Start) -> Iterator[Line]:
    if start.validation:
        yield YOUR_SETUP, (f"data.val_data=[{_quoted(start.validation)}]",)
        yield YOUR_SETUP, ("trainer.eval_interval=20",)
        return
    yield _NO_VALIDATION, ("data.val_data=[]",)
    yield _NO_VALIDATION, ("trainer.eval_interval=-1",)
    yield _NO_VALIDATION, ("trainer.eval_before_train=false",)


def _environment(start: Start) -> Iterator[Line]:
    if not start.searches:
        yield FOR_REWARD, ("environment.env_class=rag",)
        yield FOR_REWARD, ("generator.max_turns=1",)
        return
    prompt, response = start.training.prompt_tokens.value, start.training.response_tokens.value
    yield _SEARCH, ("environment.env_class=rag-search",)
    yield _SEARCH, ("generator.use_conversation_multi_turn=false",)
    stops = ",".join(_quoted(tag) for tag in _stop_tags(start))
    yield _SEARCH, (f"generator.sampling_params.stop=[{stops}]",)
    yield YOUR_SETUP, (f"generator.max_turns={SEARCH_TURNS}",)
    yield YOUR_SETUP, (f"generator.max_input_length={prompt + SEARCH_TURNS * response}",)


def _dialect(start: Start) -> Dialect:
    return DIALECTS.get(start.dialect, SEARCH_R1)


def _stop_tags(start: Start) -> tuple[str, str]:
    """Return the tags that end a turn, in the dialect of the recipe or else that of Search-R1."""
    query = _dialect(start).query
    return (query[1] if query else "", ANSWER[1])


def _sampling(training: Training) -> Iterator[Line]:
    prompts = training.prompts
    yield assignment("trainer.train_batch_size", prompts)
    comment = f"{prompts.source}: one update per step"
    yield comment, (f"trainer.policy_mini_batch_size={prompts.value}",)
    yield assignment("generator.n_samples_per_prompt", training.group)
    yield assignment("trainer.max_prompt_length", training.prompt_tokens)
    yield assignment("generator.sampling_params.max_generate_length", training.response_tokens)
    yield assignment("generator.sampling_params.temperature", training.temperature)
    yield assignment("generator.sampling_params.top_p", training.top_p)


def _kl(training: Training) -> Iterator[Line]:
    kl = training.kl
    if kl.value == "none":
        yield kl.source, (f"{_ALGORITHM}.use_kl_loss=false",)
        return
    yield kl.source, (f"{_ALGORITHM}.use_kl_loss=true",)
    yield assignment(f"{_ALGORITHM}.kl_estimator_type", kl)
    yield assignment(f"{_ALGORITHM}.kl_loss_coef", training.kl_weight)


def _schedule(name: str) -> str:
    return _SCHEDULES.get(name, name)


def _quoted(text: str) -> str:
    """Return a text in the quotation marks of YAML."""
    return "'" + text.replace("'", "''") + "'"


_CHECK = (
    READ_SHELL_SETTINGS
    + """
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.utils import validate_cfg
validate_cfg(SkyRLTrainConfig.from_cli_overrides(words))
print("\\n" + json.dumps({"unknown": []}))
"""
)

WRITER = ScriptWriter(write, "skyrl", _CHECK)
