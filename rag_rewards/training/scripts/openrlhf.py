"""Training scripts of OpenRLHF: a shell script, and a file with the reward.

A reward that compares groups or needs the policy in training is an agent executor.
"""

from __future__ import annotations

from collections.abc import Iterator

from rag_rewards.errors import UsageError
from rag_rewards.training.curriculum import Curriculum
from rag_rewards.training.scripts.start import GPUS, SEARCH_TURNS, Start
from rag_rewards.training.scripts.writer import (
    FOR_REWARD,
    HERE,
    READ_SHELL_SETTINGS,
    SEARCH_CHECK,
    SEARCH_MODULE,
    TAG_DIALECTS,
    YOUR_SETUP,
    Line,
    ScriptWriter,
    flag,
    python_call,
    search_module,
    shell_script,
    stated_flag,
)
from rag_rewards.training.settings import NOT_STATED, Training

_COLUMNS = f"{FOR_REWARD}: the columns that `rag-rewards prepare` writes"
_COLOCATED = f"{YOUR_SETUP}: one engine on each GPU, in turn with training"
_AGGREGATIONS = {"response": "seq-mean-token-mean", "token": "token-mean"}
"""The names of the aggregations in OpenRLHF."""
_K2_GRADIENT = (
    "OpenRLHF limits k2 to 10, and its gradient there to 0; with the next flag, the gradient is "
    "that of k2 everywhere"
)
_ADVANTAGE_NOTE = (
    "# The agent returns the mean of the group plus the advantage as the reward; dr_grpo\n"
    "# subtracts the mean.\n"
)

_SEARCH_AGENT = """from pathlib import Path

from rag_rewards_adapters.openrlhf_agent import executor

search = f"{{Path(__file__).resolve().with_name('search.py')}}:search"
AgentExecutor = {call}, search=search, max_turns={turns})
"""


def write(start: Start) -> dict[str, str]:
    """Return the script and the reward, with the search engine if the policy searches.

    Raise UsageError for a curriculum, for a dialect without tags, and if the sum of turns is no
    reward.
    """
    start.check_sum("OpenRLHF")
    if isinstance(start.reward, Curriculum):
        raise UsageError(
            "OpenRLHF does not pass the training step to a reward: write a script for each stage"
        )
    note = "" if start.training.std_floor.value is None else _ADVANTAGE_NOTE
    command, files = "python3 -m openrlhf.cli.train_ppo_ray", {}
    start = start.for_dialect("OpenRLHF", TAG_DIALECTS)
    if start.searches:
        command, files = SEARCH_CHECK + command, {SEARCH_MODULE: search_module(start)}
    name, page = _agent(start) if _has_agent(start) else _rewards(start)
    script = shell_script(start, "OpenRLHF", _lines(start), command, note)
    return {"train.sh": script, name: page, **files}


def _has_agent(start: Start) -> bool:
    floor = start.training.std_floor.value
    needs_agent = start.scores_groups or start.needs_trained_policy or start.needs_turns
    return needs_agent or floor is not None


def _agent(start: Start) -> tuple[str, str]:
    options = start.advantage_options | _error_value(start)
    if not start.searches:
        return "agent.py", (
            "from rag_rewards_adapters.openrlhf_agent import executor\n\n"
            f"AgentExecutor = {python_call('executor', options)}\n"
        )
    call = python_call("executor", options).removesuffix(")")
    return "agent.py", _SEARCH_AGENT.format(call=call, turns=SEARCH_TURNS)


def _rewards(start: Start) -> tuple[str, str]:
    options = start.options | _error_value(start)
    return "rewards.py", (
        "from rag_rewards_adapters.openrlhf import reward_function\n\n"
        f"reward_func = {python_call('reward_function', options)}\n"
    )


def _error_value(start: Start) -> dict[str, float]:
    """Return the reward of a rollout whose judge fails, for which OpenRLHF has no value."""
    return {"error_value": 0.0} if start.needs("judge") else {}


def _lines(start: Start) -> Iterator[Line]:
    training = start.training
    yield flag(YOUR_SETUP, "--actor.model_name_or_path", start.policy)
    yield flag(YOUR_SETUP, "--data.prompt_dataset", start.data)
    yield flag(YOUR_SETUP, "--ckpt.output_dir", start.name)
    yield from _machine(start)
    yield flag(_COLUMNS, "--data.input_key", "input")
    yield flag(_COLUMNS, "--data.label_key", "label")
    yield flag(_COLUMNS, "--data.apply_chat_template")
    if _has_agent(start):
        yield flag(FOR_REWARD, "--train.agent_func_path", f"{HERE}agent.py")
    else:
        yield flag(FOR_REWARD, "--reward.remote_url", f"{HERE}rewards.py")
    yield from _sampling(start)
    yield stated_flag("--actor.adam.lr", training.learning_rate)
    yield stated_flag("--actor.lr_scheduler", training.schedule)
    yield stated_flag("--actor.lr_warmup_ratio", training.warmup)
    yield stated_flag("--actor.eps_clip", training.clip)
    aggregation = training.loss_aggregation
    yield flag(aggregation.source, "--actor.loss_agg_mode", _AGGREGATIONS[aggregation.value])
    if training.entropy_weight.source != NOT_STATED:
        yield stated_flag("--actor.entropy_coef", training.entropy_weight)
    yield stated_flag("--train.max_epochs", training.iterations)
    yield stated_flag("--train.num_episodes", training.epochs)
    yield _advantage(training)
    yield from _kl(training)
    yield flag(f"{FOR_REWARD}: does not clip centered rewards", "--reward.clip_range", -100, 100)


def _machine(start: Start) -> Iterator[Line]:
    """Yield the flags of the machine. The defaults do not work: they start no engine."""
    for name in ("actor", "ref"):
        yield flag(YOUR_SETUP, f"--{name}.num_gpus_per_node", GPUS)
    yield flag(_COLOCATED, "--vllm.num_engines", GPUS)
    for name in ("--train.colocate_all", "--vllm.enable_sleep", "--ds.enable_sleep"):
        yield flag(_COLOCATED, name)
    # vLLM does not reserve the memory that log-probabilities of a prompt need.
    share = 0.5 if start.needs_trained_policy else 0.6
    yield flag(YOUR_SETUP, "--vllm.gpu_memory_utilization", share)
    if start.validation:
        yield flag(YOUR_SETUP, "--eval.dataset", start.validation)
        yield flag(YOUR_SETUP, "--eval.steps", 20)
        yield flag(
            f"{FOR_REWARD}: evaluates one response per prompt", "--eval.n_samples_per_prompt", 1
        )


def _sampling(start: Start) -> Iterator[Line]:
    training = start.training
    prompts = training.prompts
    rollouts = prompts.value * training.group.value
    length = training.prompt_tokens.value + start.response_tokens.value
    comment = "prompt and response"
    if start.needs_trained_policy:
        length += 1
        comment = "prompt and response, and one token that log-probabilities require"
    yield stated_flag("--rollout.batch_size", prompts)
    yield flag(f"{prompts.source}: one update per step", "--train.batch_size", rollouts)
    yield stated_flag("--rollout.n_samples_per_prompt", training.group)
    yield stated_flag("--rollout.temperature", training.temperature)
    yield stated_flag("--rollout.top_p", training.top_p)
    yield stated_flag("--rollout.max_new_tokens", training.response_tokens)
    yield flag(comment, "--data.max_len", length)


def _advantage(training: Training) -> Line:
    floor = training.std_floor
    if floor.value is None:
        return flag(FOR_REWARD, "--algo.advantage.estimator", "group_norm")
    return flag(floor.source, "--algo.advantage.estimator", "dr_grpo")


def _kl(training: Training) -> Iterator[Line]:
    kl = training.kl
    if kl.value == "none":
        yield flag(kl.source, "--algo.kl.init_coef", "0")
        return
    yield flag(kl.source, "--algo.kl.use_loss")
    yield stated_flag("--algo.kl.estimator", kl)
    yield stated_flag("--algo.kl.init_coef", training.kl_weight)
    if kl.value == "k2":
        yield flag(_K2_GRADIENT, "--algo.kl.unbiased_gradient")


_CHECK = (
    READ_SHELL_SETTINGS
    + """
from importlib.util import find_spec
root = Path(find_spec("openrlhf").origin).parent
source = (root / "cli" / "train_ppo_ray.py").read_text()
flags = set(re.findall(r'"--([a-zA-Z0-9_.]+)"', source))
flags |= {f"actor{name}" for name in re.findall(r'f"--\\{prefix\\}([a-zA-Z0-9_.]+)"', source)}
used = [word[2:] for word in words if word.startswith("--")]
print(json.dumps({"unknown": [name for name in used if name not in flags]}))
"""
)

WRITER = ScriptWriter(write, "openrlhf", _CHECK)
