"""verl's settings, columns and tokens: as a Scorer, as rollouts, as text.

One place for settings, read by the reward manager, `compute_score` and the agent loop alike:
`reward.custom_reward_function.reward_kwargs`. On the command line:

    +reward.custom_reward_function.reward_kwargs.recipe=arena
    +reward.custom_reward_function.reward_kwargs.settings.accuracy.metric=f1
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rag_rewards.errors import DataError, RolloutError, UsageError
from rag_rewards.rollout import Rollout, Score
from rag_rewards.rows.columns import DATASET_FIELDS, label_fields, rollout_from_columns, to_builtins
from rag_rewards_adapters.unscored_handler import with_value

if TYPE_CHECKING:
    from rag_rewards.evidence.protocols import Models
    from rag_rewards.scorer import Scorer

KEPT = frozenset(("acc", "reward", "score", "uid", "index"))
"""Names that verl gives a meaning of its own: no component can have one."""


# --- settings ----------------------------------------------------------------------------------


def options_of(config: Any) -> dict[str, Any]:
    """Our settings in a trainer's whole config. UsageError says where they belong."""
    function = config.reward.get("custom_reward_function") or {}
    options = settled(function.get("reward_kwargs") or {})
    if not options:
        raise UsageError(
            "which recipe? give +reward.custom_reward_function.reward_kwargs.recipe=NAME"
        )
    return dict(options)


def settled(value: Any) -> Any:
    """A config's node as plain dicts and lists, to any depth.

    >>> settled({"stages": ({"recipe": "lear"},)})
    {'stages': [{'recipe': 'lear'}]}
    """
    if isinstance(value, Mapping):
        return {str(key): settled(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [settled(item) for item in value]
    return value


def template_of(config: Any) -> dict[str, Any]:
    """What the data set's config gives the chat template (`enable_thinking`)."""
    return dict(settled(config.get("data", {}).get("apply_chat_template_kwargs") or {}))


def scorer_of(
    options: Mapping[str, Any],
    *,
    template: Mapping[str, Any] | None = None,
    models: Models | None = None,
) -> Scorer:
    """Load the scorer of these settings.

    Besides the options of `Scorer.load`, `prompt` may be the `module:name` of a Prompt, which
    describes the documents in the user's own prompts. `models` are used in place of those of the
    options, because an agent loop has the policy at hand. UsageError also for a model that every
    worker would load for itself.
    """
    from rag_rewards.backends.addresses import is_url
    from rag_rewards.loading import import_object, load_recipe
    from rag_rewards.scorer import Scorer, split_options

    options = dict(options)
    prompt = options.pop("prompt", None)
    recipe, chosen = split_options(options)
    if chosen.model and not is_url(chosen.model):
        raise UsageError(
            f"model={chosen.model} would be loaded by every reward worker: set the URL of a "
            "scoring server (model=http://HOST:PORT backend=vllm), or use the policy's own "
            "rollout engine: actor_rollout_ref.rollout.agent.default_agent_loop=rag_group"
        )
    reward = load_recipe(recipe)
    if taken := KEPT.intersection(reward.component_names):
        raise UsageError(f"verl uses the name {min(taken)!r} itself: rename that component")
    return Scorer(
        reward,
        chosen.load() if models is None else models,
        prompt=import_object(prompt) if prompt else None,
        template=template,
        **chosen.prompting,
    )


def group_scope(options: Mapping[str, Any]) -> bool:
    """Return whether these settings compare the rollouts of a group. Loads no model."""
    from rag_rewards.evidence.protocols import Models

    return scorer_of(options, models=Models()).scope == "group"


# --- rows --------------------------------------------------------------------------------------


def fields_of(ground_truth: Any, *extra: Any) -> dict[str, Any]:
    """The fields of a row: the gold in `ground_truth` over what `extra_info` brings, None left out.

    Nothing that is given is changed. The id is that of the data set: `id`, else `index`.

    >>> fields_of('{"answers": ["Seine"]}', {"index": 3, "question": "Which river?"})
    {'question': 'Which river?', 'id': 3, 'answers': ['Seine']}
    """
    known: dict[str, Any] = {}
    for given in extra:
        if isinstance(given, Mapping):
            known.update((key, value) for key, value in given.items() if value is not None)
    fields = {name: known[name] for name in known if name in DATASET_FIELDS}
    if "id" not in fields and "index" in known:
        fields["id"] = known["index"]
    try:
        gold = label_fields(ground_truth)
    except DataError as error:
        error.row = str(fields["id"]) if "id" in fields else None
        error.path = "reward_model.ground_truth"
        raise
    fields.update((name, value) for name, value in gold.items() if value is not None)
    return fields


def rollout_from(columns: Mapping[str, Any], **happened: Any) -> Rollout | RolloutError:
    """A rollout from the columns of a data set, as agent loops and reward managers get them.

    `reward_model.ground_truth` over `tool_extra_fields` (what the agent loop found) over
    `extra_info`; `happened` is what the trainer saw (response, finish_reason, …).
    """
    truth = columns.get("reward_model")
    truth = truth.get("ground_truth") if isinstance(truth, Mapping) else None
    try:
        fields = fields_of(truth, columns.get("extra_info"), columns.get("tool_extra_fields"))
    except RolloutError as error:
        return error.with_traceback(None)
    step = to_builtins(columns.get("global_steps"))
    return rollout_from_columns(fields, **{"step": step, **happened})


# --- tokens ------------------------------------------------------------------------------------


def without_end(tokenizer: Any, ids: Sequence[int]) -> list[int]:
    """Token ids without the end-of-sequence and padding tokens behind the last word."""
    ends = {tokenizer.eos_token_id, tokenizer.pad_token_id} - {None}
    kept = len(ids)
    while kept and ids[kept - 1] in ends:
        kept -= 1
    return list(ids[:kept])


def ended(tokenizer: Any, ids: Sequence[int]) -> bool:
    """Whether a response ends with the token that ends one."""
    return bool(ids) and ids[-1] == tokenizer.eos_token_id


def said(tokenizer: Any, ids: Sequence[int]) -> str:
    """The text of a response. Special tokens stay: in some vocabularies <think> is one."""
    return str(tokenizer.decode(without_end(tokenizer, ids), skip_special_tokens=False))


def header_of(tokenizer: Any, template: Mapping[str, Any] | None = None) -> str:
    """What the chat template writes between a tool's answer and the model's next turn.

    Told by rendering such a chat with and without the generation prompt, as verl's tool loop does
    between the turns; a prefilled <think> is part of it. UsageError where it writes nothing.
    """
    options = {"tokenize": False, **(template or {})}
    try:
        without, whole = (
            str(tokenizer.apply_chat_template(_CALLED, add_generation_prompt=add, **options))
            for add in (False, True)
        )
    except Exception as error:  # a template is code of the model's makers
        raise UsageError(f"the chat template refuses tool turns ({error}); {_BY_MASK}") from error
    header = whole[len(without) :].lstrip() if whole.startswith(without) else ""
    if not header:
        raise UsageError(f"the chat template writes nothing before the model's turn; {_BY_MASK}")
    return header


_CALLED = [
    {"role": "user", "content": "?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "call00000", "type": "function", "function": {"name": "search", "arguments": {}}}
        ],
    },
    {"role": "tool", "name": "search", "tool_call_id": "call00000", "content": "."},
]
_BY_MASK = (
    "the model's words cannot be told from the tools': score with the agent loop rag_group, which "
    "has the loop's own mask"
)


def last_turn(text: str, header: str) -> str:
    """The last assistant message of a response with tool turns.

    verl's tool loop ends with a turn of the model, so everything behind the last header is the
    model's own, whatever a tool's text looks like. A model that writes the header itself loses
    what it wrote before it. DataError where no header is.
    """
    _, found, last = text.rpartition(header)
    if not found:
        raise DataError(
            f"has several turns, but the chat template's {header!r} is not in it; {_BY_MASK}",
            "response",
        )
    return last


# --- scores ------------------------------------------------------------------------------------

_POLICY = (
    "policy",
    "give the URL of a scoring server (model=URL backend=vllm), or let the policy's own rollout "
    "engine say it: the agent loop rag_group",
)
_WAYS = {
    "logprobs": _POLICY,
    "masked_answers": _POLICY,
    "masked_logprobs": _POLICY,
    "verdicts": ("judge", "give judge=URL judge_model=NAME"),
    "nli": ("entailment", "give nli=PATH"),
    "similarity": ("similarity", "give similarity=PATH"),
}
"""Evidence → the model that says it, and the setting that names one."""


def score_of(result: Score | RolloutError, models: Any) -> Score:
    """A score that has a value. Raises the RolloutError otherwise: never a silent 0."""
    result = with_value(result)
    if isinstance(result, RolloutError):
        raise _with_way_out(result, models)
    return result


def _with_way_out(error: RolloutError, models: Any) -> RolloutError:
    """Evidence is missing because nobody was named who could give it: say which setting does."""
    model, way = _WAYS.get(error.path.split(".")[0], ("", ""))
    if not model or getattr(models, model) is not None:
        return error
    told = type(error)(f"{error.message}; {way}", error.path)
    told.row = error.row
    return told


def numbers_of(score: Score, judged: bool) -> dict[str, float]:
    """The extra information of a sample: its components, and `acc` where the recipe is `judged`.

    The same keys for every sample; what is not known is NaN.
    """
    values = dict(score.components)
    if judged:
        values["acc"] = score.correct
    return {name: math.nan if value is None else float(value) for name, value in values.items()}


def judges(reward: Any) -> bool:
    """Whether a recipe, or any stage of a curriculum, knows a right answer."""
    stages = getattr(reward, "stages", None)
    recipes = [stage.recipe for stage in stages] if stages is not None else [reward]
    return any(recipe.correct is not None for recipe in recipes)
