"""Write docs/recipes/*.md from the definitions of the recipes and their examples.

tests/test_site.py compares the pages with the code, and the ranges with the examples.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from build_papers import papers
from inserts import filled_by_name
from inserts import table as markdown_table

from rag_rewards.definition import ComponentInfo, RecipeDefinition
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes import RECIPES, recipe
from rag_rewards.report.reasons import no_spread_of, reason
from rag_rewards.rollout import Rollout, Score, ScoreOrError
from rag_rewards.rows import decode_row
from rag_rewards.settings import Setting
from rag_rewards.training.advantages import group_advantages
from rag_rewards.training.settings import NOT_STATED
from rag_rewards.turns.turn import Document, Result, Turn

DOCS = Path(__file__).parent
FOLDER = DOCS / "recipes"
EXAMPLES = DOCS.parent / "examples"
TRAINING_MEANINGS = {
    "batch": "number of rows per training step",
    "beta": "β of the DPO loss",
    "max_grad_norm": "maximum norm of the gradient",
    "lora_rank": "rank of the LoRA adapter that is trained; none trains all weights",
    "max_tokens": "maximum number of tokens of a prompt with its response",
    "prompts": "number of prompts per training step",
    "group": "number of rollouts per prompt",
    "learning_rate": "learning rate of AdamW",
    "schedule": "learning rate schedule",
    "warmup": "share of the steps with a linear warm-up",
    "epochs": "number of passes over the data",
    "kl": "estimator of the KL divergence; k2: ½(log π_ref − log π)²; k3: π_ref/π − log(π_ref/π) − "
    "1",
    "kl_weight": "weight of the KL penalty",
    "iterations": "number of optimizer passes over each batch",
    "clip": "clip range of the policy ratio",
    "loss_aggregation": "average of the losses of tokens: `response` for the mean of each response "
    "and then over the responses, `token` for the mean over all tokens",
    "entropy_weight": "weight of the entropy bonus",
    "temperature": "sampling temperature",
    "top_p": "nucleus sampling (top-p)",
    "prompt_tokens": "maximum number of tokens of a prompt",
    "response_tokens": "maximum number of tokens of a response",
    "std_floor": "minimum standard deviation in the advantage",
    "tensor_parallel": "number of GPUs of a rollout engine",
    "memory_share": "share of the memory of a GPU for a rollout engine",
}


def pages() -> dict[str, str]:
    """Return the pages by file name."""
    return {"index.md": _index()} | {
        f"{name}.md": page(definition) for name, definition in RECIPES.items()
    }


def rows_of(name: str) -> list[Rollout]:
    """Return the examples of a recipe. Variants of CTRL-RAG without a file use its examples."""
    own = EXAMPLES / f"{name}.jsonl"
    lines = (own if own.exists() else EXAMPLES / "ctrl-rag.jsonl").read_bytes().splitlines()
    return [decode_row(line) for line in lines]


def page(definition: RecipeDefinition) -> str:
    """Return the page of one recipe."""
    built = recipe(definition.name)
    parts = [
        f"# {definition.name}\n",
        f"{_sentence(definition.summary)} Source: {definition.source}.\n",
        f"```text\n{built.equation}\n```\n",
        *_brackets(built),
        _facts(definition, built),
        "## Components\n",
        _components(definition),
        "## An example\n",
        _example(definition, built),
        "## Settings\n",
        _settings(definition),
        "## Loopholes\n",
        _loopholes(definition),
        "## Training\n",
        _training(definition),
    ]
    if definition.deviations:
        sentences = map(_sentence, definition.deviations)
        parts += ["## Differences from the authors' code\n", _list(list(sentences))]
    return "\n".join(parts)


def _brackets(built: Recipe) -> list[str]:
    """Return a sentence that explains the brackets of the equation, if it has brackets."""
    return ["`[condition]` is 1 if the condition is true, otherwise 0.\n"] * ("[" in built.equation)


def _index() -> str:
    rows = [
        (
            f"[{name}]({name}.md)",
            f"`{recipe(name).equation}`",
            recipe(name).scope,
            definition.source,
        )
        for name, definition in RECIPES.items()
    ]
    texts = {"recipes": markdown_table(("recipe", "reward", "scope", "source"), rows)}
    return filled_by_name(FOLDER / "index.md", texts)


def _facts(definition: RecipeDefinition, built: Recipe) -> str:
    fields = ", ".join(f"`{field}`" for field in ("response", *definition.fields))
    facts = (
        (
            "output",
            _code(definition.output.description)
            if definition.output.description.startswith("<")
            else _cell(definition.output.description),
        ),
        ("scope", "whole groups" if built.scope == "group" else "single rollouts"),
        ("fields that are read", fields),
        ("in Python", f'`rr.recipe("{definition.name}")`'),
        (
            "on the command line",
            f"`rag-rewards score rows.jsonl -o scored.jsonl -r {definition.name}`",
        ),
    )
    lines = [f"- {name}: {text}\n" for name, text in facts]
    lines += [
        f"- all items of the paper: [{paper.name}](../papers.md#{paper.slug})\n"
        for paper in papers()
        if definition.name in paper.recipes
    ]
    return "".join(lines)


def _components(definition: RecipeDefinition) -> str:
    rows = [(f"`{each.name}`", _meaning(each), each.range) for each in definition.components]
    return markdown_table(("component", "meaning", "range"), rows)


def _meaning(component: ComponentInfo) -> str:
    """Return the meaning of a component, and the setting that adds it."""
    return component.meaning + (f" (with `{component.when}`)" if component.when else "")


# --- the example -------------------------------------------------------------------------------


def _example(definition: RecipeDefinition, built: Recipe) -> str:
    """Return the first group of the examples with its scores."""
    rows = rows_of(definition.name)
    group = [row for row in rows if row.group == rows[0].group]
    scores = built(group)
    hardened = recipe(definition.name, hardened=True).score_each(group)
    floor = definition.training.std_floor.value
    advantages = group_advantages([_reward(s) for s in scores], std_floor=floor or 0.0)
    lines = [
        *((_code(name), *_values(name, scores)) for name in built.component_names),
        ("**reward**", *(f"**{_number(score.value)}**" for score in scores)),
        ("advantage", *map(_number, advantages)),
        ("hardened", *(_number(s.value) if isinstance(s, Score) else "–" for s in hardened)),
    ]
    table = markdown_table(("", *(row.id for row in group)), lines)
    no_spread = no_spread_of([score.components for score in scores])
    reasons = [
        f"`{row.id}`: {reason(row, score, no_spread)}"
        for row, score in zip(group, scores, strict=True)
    ]
    intro = _sum(built, group[0], scores[0]) + _caption(definition, len(group))
    listed = f"The reason for each reward:\n\n{_list(reasons)}"
    return "\n".join((_question(group[0]), _response(group[0], scores[0]), intro, table, listed))


def _values(component: str, scores: Sequence[Score]) -> list[str]:
    return [_number(score.components[component]) for score in scores]


def _question(row: Rollout) -> str:
    """Return the question, its documents unless they are results of turns, and the gold data."""
    results = {result.text for turn in row.steps() for result in turn.results or ()}
    all_found = row.has_turns and results.issuperset(each.text for each in row.documents or ())
    documents = "" if all_found else _documents(row.labels, row.documents or ())
    gold = "" if row.answers is None else f"gold: {_gold(row)}"
    parts = (row.question or "", documents, gold, _rubric(row))
    return "```text\n" + "\n\n".join(filter(None, parts)) + "\n```\n"


def _rubric(row: Rollout) -> str:
    criteria = [f"- {each.criterion} (weight {each.weight:g})" for each in row.rubric or ()]
    return "\n".join(("rubric:", *criteria)) if criteria else ""


def _response(row: Rollout, score: Score) -> str:
    """Return the response, or all turns of a search agent with their results and rewards."""
    if not row.has_turns:
        return f"The response `{row.id}`:\n\n```text\n{row.parsed.text.strip()}\n```\n"
    turns = zip(row.steps(), score.turns, strict=True)
    parts = [
        f"Turn {number} of the rollout `{row.id}`, {_of_turn(reward)}:\n\n"
        f"```text\n{turn.text.strip()}{_results(turn)}\n```\n"
        for number, (turn, reward) in enumerate(turns, 1)
    ]
    return "\n".join(parts)


def _of_turn(reward: float | None) -> str:
    return "without a reward" if reward is None else f"with a reward of {_number(reward)}"


def _results(turn: Turn) -> str:
    """Return the results that the environment returned after the words of the policy."""
    if turn.results is None:
        return ""
    labels = (str(each.id or number) for number, each in enumerate(turn.results, 1))
    listed = _documents(labels, turn.results)
    return f"\n\nresults:\n{listed or 'none'}"


def _documents(labels: Iterable[str], documents: Sequence[Document]) -> str:
    """Return one line for each document, with the address of a web page."""
    lines = []
    for label, document in zip(labels, documents, strict=True):
        address = f"{document.url} " if isinstance(document, Result) and document.url else ""
        title = f"{document.title}: " if document.title else ""
        lines.append(f"[{label}] {address}{title}{document.text}")
    return "\n".join(lines)


def _gold(row: Rollout) -> str:
    required = " and ".join(" or ".join(aliases) for aliases in row.gold)
    if not row.supporting:
        return required
    return f"{required}; supporting: {', '.join(map(str, row.supporting))}"


def _sum(built: Recipe, row: Rollout, score: Score) -> str:
    """Return the equation with the components of the first rollout."""
    values = {name: _number(value) for name, value in score.components.items()}
    names = "|".join(sorted(map(re.escape, values), key=len, reverse=True))
    filled = re.sub(rf"\b({names})\b", lambda match: values[match[1]], built.equation)
    if filled == _number(score.value):
        return f"The reward of `{row.id}` is {filled}. "
    return f"The reward of `{row.id}`:\n\n```text\n{filled} = {_number(score.value)}\n```\n\n"


def _caption(definition: RecipeDefinition, size: int) -> str:
    floor = definition.training.std_floor.value
    divisor = f"max(std, {_number(floor)})" if floor else "std"
    return (
        f"The table contains all {size} rollouts of this prompt from `examples/`.\n"
        f"The advantage is (reward − mean)/{divisor} within the group.\n"
        "The last row is the reward under the [hardened profile](../hardened.md).\n"
    )


# --- settings, loopholes, training --------------------------------------------------------------


def _settings(definition: RecipeDefinition) -> str:
    rows = [
        (
            _code(setting.key),
            f"`{_value(setting.default)}`",
            _cell(setting.doc) + _kind(setting),
            _cell(setting.source),
        )
        for setting in definition.settings.descriptions
    ]
    table = markdown_table(("setting", "default", "meaning", "source of the default"), rows)
    return (
        "Change a setting with `--set KEY=VALUE` or `rr.recipe(NAME, {KEY: value})`. See also\n"
        f"[Text normalizers](index.md#text-normalizers).\n\n{table}"
    )


def _kind(setting: Setting) -> str:
    """Return the choices of a setting, if its default does not show them."""
    if "|" not in setting.type or setting.type == "true | false":
        return ""
    return f" ({_cell(setting.type)})"


def _loopholes(definition: RecipeDefinition) -> str:
    rows = [
        (
            f"`{key}`",
            f"`{_value(change.value)}`",
            ", ".join(map(str, change.closes)) or "–",
            change.why,
        )
        for key, change in definition.hardened.items()
    ]
    table = markdown_table(("`--hardened` sets", "to", "attacks", "prevents"), rows)
    table += f"\n{_changed(definition)}\n"
    return (
        "These attacks increase the reward under the default profile. The numbers are those of\n"
        "[hardened.md](../hardened.md). “(closed: hardened)” means that the hardened profile\n"
        f"prevents the attack.\n\n{_list(list(map(str, definition.loopholes)))}\n{table}"
    )


def _changed(definition: RecipeDefinition) -> str:
    """Return how many examples the hardened profile changes, with the names of three of them."""
    rows = rows_of(definition.name)
    plain, hard = recipe(definition.name).score_each(rows), recipe(definition.name, hardened=True)
    changes = [
        f"`{row.id}` {_number(old.value)} → {_number(new.value)}"
        for row, old, new in zip(rows, plain, hard.score_each(rows), strict=True)
        if isinstance(old, Score) and isinstance(new, Score) and old.value != new.value
    ]
    listed = ", ".join(changes[:3]) + ("" if len(changes) < 4 else ", …")
    counts = f"{len(changes)} of {len(rows)}"
    return f"The hardened profile changes the reward of {counts} examples: {listed}"


def _training(definition: RecipeDefinition) -> str:
    """Return the training values of the paper and their sources."""
    training = definition.training
    settings = list(training.items())
    for title, baseline in training.baselines().items():
        settings += [
            (f"{title.lower()}.{name}", stated)
            for name, stated in baseline.items()
            if stated.source != NOT_STATED
        ]
    rows = [
        (
            _code(name),
            "none" if stated.value is None else str(stated.value),
            TRAINING_MEANINGS[name.rpartition(".")[2]],
            stated.source,
        )
        for name, stated in settings
    ]
    intro = (
        f"`rag-rewards init` writes these values. If the source is “{NOT_STATED}”, the value is a "
        "default of this package.\n\n"
    )
    facts = [*training.notes, *definition.data.summary()]
    notes = _list(list(map(_sentence, facts)))
    return intro + markdown_table(("setting", "value", "meaning", "source"), rows) + f"\n{notes}"


# --- Markdown ----------------------------------------------------------------------------------


def _list(lines: Sequence[str]) -> str:
    return "".join(f"- {_cell(line)}\n" for line in lines)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _code(text: str) -> str:
    return f"`{text}`"


def _cell(text: str) -> str:
    """Return text in which Markdown finds no columns, tags, escapes or emphasis."""
    return re.sub(r"([|*\\\[\]])", r"\\\1", text).replace("<", "&lt;")


def _value(value: object) -> str:
    return msgspec.json.encode(value).decode().replace("|", "\\|")


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    text = f"{value:.3f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text.replace("-", "−")


def _reward(score: ScoreOrError) -> float:
    if isinstance(score, Score) and score.value is not None:
        return score.value
    raise ValueError(f"an example without a reward: {score}")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file, text in pages().items():
        (FOLDER / file).write_text(text, "utf-8")
