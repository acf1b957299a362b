"""Training scripts of slime: a shell script with flags, and a module with the reward functions."""

from __future__ import annotations

from collections.abc import Iterator

from rag_rewards.errors import UsageError
from rag_rewards.training.curriculum import Curriculum
from rag_rewards.training.scripts.start import Start
from rag_rewards.training.scripts.writer import (
    FOR_REWARD,
    NO_SCALING,
    READ_SHELL_SETTINGS,
    SEARCH_CHECK,
    SEARCH_MODULE,
    YOUR_SETUP,
    Line,
    ScriptWriter,
    flag,
    python_call,
    shell_script,
    stated_flag,
)
from rag_rewards.training.settings import NOT_STATED, Training

_COLUMNS = f"{FOR_REWARD}: the columns that `rag-rewards prepare` writes"
_CREDIT = f"{FOR_REWARD}: an advantage for each turn"
_NOTE = """
# your setup: SLIME is the folder of slime, MEGATRON that of Megatron-LM, and MODEL the name of a
# script in $SLIME/scripts/models, which sets MODEL_ARGS. CHECKPOINT is the policy as slime's tool
# convert_hf_to_torch_dist.py writes it.
: "${SLIME:?set SLIME}" "${MEGATRON:?set MEGATRON}" "${MODEL:?set MODEL}"
: "${CHECKPOINT:?set CHECKPOINT}"
source "$SLIME/scripts/models/$MODEL.sh"
export PYTHONPATH="$PWD:$SLIME:$MEGATRON" CUDA_DEVICE_MAX_CONNECTIONS=1
"""
_PASSES = "# {}: {} passes over each batch. slime has one.\n"
_COMMAND = (
    'python3 "$SLIME/train.py" "${MODEL_ARGS[@]}" --load "$CHECKPOINT" --ref-load "$CHECKPOINT"'
)
_GENERATE = f"{YOUR_SETUP}: a function that searches and keeps its turns, in {SEARCH_MODULE}"
_SEARCH = '''"""The generation with searches for the reward {name}: edit this file before you start.

slime calls `generate(args, sample, sampling_params)` for each rollout. It generates turns, answers
the queries of the policy, and keeps the turns in `sample.metadata["rag_turns"]`, in the form of the
field `turns` of a row, with a loss mask that is 1 on the tokens of the policy. The function in
`examples/search-r1/generate_with_search.py` of slime generates and searches in this way.
`rag_rewards.text.bm25.Index` searches a list of texts.
"""

from rag_rewards.errors import UsageError

raise UsageError(
    f"the policy has no search engine: edit {{__file__}}: write the function generate, and remove "
    "this error"
)
'''


def write(start: Start) -> dict[str, str]:
    """Return the script and the module.

    Raise UsageError for a curriculum and if a model is missing.
    """
    start.check_model("slime")
    if isinstance(start.reward, Curriculum):
        raise UsageError(
            "slime does not pass the training step to a reward: write a script for each stage"
        )
    note = _NOTE
    iterations = start.training.iterations
    if iterations.value > 1:
        note += _PASSES.format(iterations.source, iterations.value)
    call = python_call("SlimeRecipe", start.advantage_options, first="recipe")
    functions = "score = recipe.score\n"
    if start.credit is not None:
        functions += "post_process = recipe.post_process\nadvantages = recipe.advantages\n"
    command, files = _COMMAND, {}
    if start.searches:
        command = SEARCH_CHECK + command
        files = {SEARCH_MODULE: _SEARCH.format(name=start.name)}
    return files | {
        "train.sh": shell_script(start, "slime", _lines(start), command, note),
        "rag_slime.py": "from rag_rewards_adapters.slime import SlimeRecipe\n\n"
        f"recipe = {call}\n{functions}",
    }


def _lines(start: Start) -> Iterator[Line]:
    training = start.training
    yield flag(YOUR_SETUP, "--hf-checkpoint", start.policy)
    yield flag(YOUR_SETUP, "--prompt-data", start.data)
    yield flag(YOUR_SETUP, "--save", start.name)
    yield flag(YOUR_SETUP, "--save-interval", 20)
    yield from _machine(start)
    yield flag(_COLUMNS, "--input-key", "input")
    yield flag(_COLUMNS, "--label-key", "label")
    yield flag(_COLUMNS, "--apply-chat-template")
    yield flag(FOR_REWARD, "--group-rm")
    yield flag(FOR_REWARD, "--custom-rm-path", "rag_slime.score")
    if start.credit is not None:
        yield flag(_CREDIT, "--custom-reward-post-process-path", "rag_slime.post_process")
        yield flag(_CREDIT, "--custom-advantage-function-path", "rag_slime.advantages")
    if start.searches:
        yield flag(_GENERATE, "--custom-generate-function-path", "search.generate")
    yield from _sampling(training)
    yield stated_flag("--lr", training.learning_rate)
    yield stated_flag("--lr-decay-style", training.schedule)
    yield stated_flag("--lr-warmup-fraction", training.warmup)
    yield stated_flag("--num-epoch", training.epochs)
    yield stated_flag("--eps-clip", training.clip)
    yield stated_flag("--eps-clip-high", training.clip)
    aggregation = training.loss_aggregation
    if aggregation.value == "token":
        yield flag(aggregation.source, "--calculate-per-token-loss")
    if training.entropy_weight.source != NOT_STATED:
        yield stated_flag("--entropy-coef", training.entropy_weight)
    yield from _kl(training)
    yield flag(FOR_REWARD, "--advantage-estimator", "grpo")
    if training.std_floor.value is not None:
        yield flag(NO_SCALING.format(training.std_floor.source), "--disable-grpo-std-normalization")


def _machine(start: Start) -> Iterator[Line]:
    yield flag(YOUR_SETUP, "--actor-num-gpus-per-node", 8)
    yield flag(YOUR_SETUP, "--rollout-num-gpus-per-engine", 1)
    yield flag(YOUR_SETUP, "--colocate")
    yield flag(YOUR_SETUP, "--sglang-mem-fraction-static", 0.6)
    yield flag(YOUR_SETUP, "--use-dynamic-batch-size")
    tokens = start.training.prompt_tokens.value + start.training.response_tokens.value
    yield flag(YOUR_SETUP, "--max-tokens-per-gpu", tokens)
    if start.validation:
        yield flag(YOUR_SETUP, "--eval-prompt-data", "validation", start.validation)
        yield flag(YOUR_SETUP, "--eval-interval", 20)
        yield flag(YOUR_SETUP, "--n-samples-per-eval-prompt", 1)


def _sampling(training: Training) -> Iterator[Line]:
    prompts = training.prompts
    yield stated_flag("--rollout-batch-size", prompts)
    yield stated_flag("--n-samples-per-prompt", training.group)
    yield flag(f"{prompts.source}: one update per step", "--num-steps-per-rollout", 1)
    yield stated_flag("--rollout-max-prompt-len", training.prompt_tokens)
    yield stated_flag("--rollout-max-response-len", training.response_tokens)
    yield stated_flag("--rollout-temperature", training.temperature)
    yield stated_flag("--rollout-top-p", training.top_p)


def _kl(training: Training) -> Iterator[Line]:
    kl = training.kl
    if kl.value == "none":
        return
    yield flag(kl.source, "--use-kl-loss")
    yield stated_flag("--kl-loss-type", kl)
    yield stated_flag("--kl-loss-coef", training.kl_weight)


_CHECK = (
    READ_SHELL_SETTINGS
    + """
from importlib.util import find_spec
arguments = Path(find_spec("slime").origin).parent / "utils" / "arguments.py"
if not arguments.exists():
    print(json.dumps({"unknown": ["every flag, because another package has the name slime"]}))
    raise SystemExit
flags = set(re.findall(r'"--([a-z0-9-]+)"', arguments.read_text()))
# Flags of Megatron and SGLang, which slime passes on.
flags |= {"lr-decay-style", "lr-warmup-fraction", "save", "sglang-mem-fraction-static"}
used = [word[2:] for word in words if word.startswith("--")]
print(json.dumps({"unknown": [name for name in used if name not in flags]}))
"""
)

WRITER = ScriptWriter(write, "slime", _CHECK)
