"""Writes docs/recipes/*.md from the recipes and examples/: no page can differ from the code.

tests/test_site.py compares the pages with the code, and the ranges with every example.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from rag_rewards.definition import ComponentInfo, Recipe, RecipeDefinition
from rag_rewards.recipes import RECIPES, recipe
from rag_rewards.report.reasons import reason
from rag_rewards.rollout import Rollout, Score, ScoreOrError
from rag_rewards.rows import decode_row
from rag_rewards.settings import Setting, describe
from rag_rewards.training.advantages import group_advantages
from rag_rewards.training.settings import NOT_STATED

DOCS = Path(__file__).parent
FOLDER = DOCS / "recipes"
EXAMPLES = DOCS.parent / "examples"


def pages() -> dict[str, str]:
    """Every page, by its file's name."""
    return {"index.md": _index()} | {
        f"{name}.md": page(definition) for name, definition in RECIPES.items()
    }


def rows_of(name: str) -> list[Rollout]:
    """The examples of a recipe; those without a file of their own read CTRL-RAG's."""
    own = EXAMPLES / f"{name}.jsonl"
    lines = (own if own.exists() else EXAMPLES / "ctrl-rag.jsonl").read_bytes().splitlines()
    return [decode_row(line) for line in lines]


def page(definition: RecipeDefinition) -> str:
    """The page of one recipe."""
    built = recipe(definition.name)
    parts = [
        f"# {definition.name}\n",
        f"{_sentence(definition.summary)} Source: {definition.source}.\n",
        f"```text\n{built.equation}\n```\n",
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
        parts += ["## Other than the authors' code\n", _list(definition.deviations)]
    return "\n".join(parts)


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
    table = _table(("recipe", "reward", "scope", "source"), rows)
    return (
        "# Recipes\n\nA recipe is a published reward, whole: its components, its settings, and a "
        "source beside each default.\nThese pages are written from the code; `rag-rewards recipes "
        f"NAME` prints the same.\n\n{table}\n"
        "Scope `group`: the rollouts of a prompt are scored together. Which recipe works in which "
        "trainer:\n[trainers.md](../trainers.md).\n"
    )


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
        ("fields of a row", fields),
        ("in Python", f'`rr.recipe("{definition.name}")`'),
        (
            "on the command line",
            f"`rag-rewards score rows.jsonl -o scored.jsonl -r {definition.name}`",
        ),
    )
    return "".join(f"- {name}: {said}\n" for name, said in facts)


def _components(definition: RecipeDefinition) -> str:
    rows = [(f"`{each.name}`", _meaning(each), each.range) for each in definition.components]
    return _table(("component", "what it says", "range"), rows)


def _meaning(component: ComponentInfo) -> str:
    """The meaning, and the setting that adds the component."""
    return component.meaning + (f" (with `{component.when}`)" if component.when else "")


# --- the example -------------------------------------------------------------------------------


def _example(definition: RecipeDefinition, built: Recipe) -> str:
    """The first group of the recipe's examples, scored."""
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
    table = _table(("", *(row.id for row in group)), lines)
    whys = [f"{row.id}: {reason(row, score)}" for row, score in zip(group, scores, strict=True)]
    told = _sum(built, scores[0]) + _told(definition, len(group))
    return "\n".join((_question(group[0]), told, table, _list(whys)))


def _values(component: str, scores: Sequence[Score]) -> list[str]:
    return [_number(score.components[component]) for score in scores]


def _question(row: Rollout) -> str:
    documents = (
        f"[{label}] {document.title + ': ' if document.title else ''}{document.text}"
        for label, document in zip(row.labels, row.documents or (), strict=True)
    )
    asked = "\n".join(documents)
    return (
        f"```text\n{row.question}\n\n{asked}\n\ngold: {_gold(row)}\n```\n\n"
        f"`{row.id}` answers:\n\n```text\n{row.parsed.text.strip()}\n```\n"
    )


def _gold(row: Rollout) -> str:
    required = " and ".join(" or ".join(aliases) for aliases in row.gold)
    if not row.supporting:
        return required
    return f"{required}; supporting: {', '.join(map(str, row.supporting))}"


def _sum(built: Recipe, score: Score) -> str:
    """The equation with the first rollout's numbers in it."""
    values = {name: _number(value) for name, value in score.components.items()}
    names = "|".join(sorted(map(re.escape, values), key=len, reverse=True))
    filled = re.sub(rf"\b({names})\b", lambda found: values[found[1]], built.equation)
    if filled == _number(score.value):
        return f"Its reward is {filled}. "
    return f"Its reward:\n\n```text\n{filled} = {_number(score.value)}\n```\n\n"


def _told(definition: RecipeDefinition, size: int) -> str:
    floor = definition.training.std_floor.value
    under = f"the greater of its deviation and {_number(floor)}" if floor else "its deviation"
    return (
        f"All {size} rollouts of the prompt, from `examples/`, with the advantage that the reward "
        f"becomes (over the group's mean, by {under}) and the reward under the hardened profile:\n"
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
        for setting in describe(definition.settings)
    ]
    table = _table(("setting", "default", "what", "source of the default"), rows)
    return f"Set one with `--set KEY=VALUE` or `rr.recipe(NAME, {{KEY: value}})`.\n\n{table}"


def _kind(setting: Setting) -> str:
    """What a setting takes, where its default does not show it."""
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
    table = _table(("`--hardened` sets", "to", "closes", "against"), rows)
    table += f"\n{_changed(definition)}\n"
    return (
        "What pays under the default profile, by the numbers of the attacks in "
        f"[hardened.md](../hardened.md):\n\n{_list(definition.loopholes)}\n{table}"
    )


def _changed(definition: RecipeDefinition) -> str:
    """What the hardened profile does to the examples, three of them by name."""
    rows = rows_of(definition.name)
    plain, hard = recipe(definition.name).score_each(rows), recipe(definition.name, hardened=True)
    changes = [
        f"`{row.id}` {_number(old.value)} → {_number(new.value)}"
        for row, old, new in zip(rows, plain, hard.score_each(rows), strict=True)
        if isinstance(old, Score) and isinstance(new, Score) and old.value != new.value
    ]
    named = ", ".join(changes[:3]) + ("" if len(changes) < 4 else ", …")
    changed = "1 changes" if len(changes) == 1 else f"{len(changes)} change"
    return f"Of the {len(rows)} examples {changed} under it: {named}"


def _training(definition: RecipeDefinition) -> str:
    """What the paper trained with; what no paper states is ours and says so."""
    training = definition.training
    rows = [
        (_code(name), "none" if stated.value is None else str(stated.value), stated.source)
        for name, stated in training.items()
    ]
    ours = (
        f"What `rag-rewards init` writes. Where the source is “{NOT_STATED}” the value is ours.\n\n"
    )
    notes = _list([*training.notes, *definition.data.summary()])
    return ours + _table(("setting", "value", "source"), rows) + f"\n{notes}"


# --- Markdown ----------------------------------------------------------------------------------


def _table(head: Sequence[Any], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def _list(lines: Sequence[str]) -> str:
    return "".join(f"- {_cell(line)}\n" for line in lines)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _code(text: str) -> str:
    return f"`{text}`"


def _cell(text: str) -> str:
    """Text that no Markdown reads: neither as a column, nor as a tag, escape or emphasis."""
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
