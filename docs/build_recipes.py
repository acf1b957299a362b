"""Writes docs/recipes/*.md from the recipes and examples/: no page can differ from the code.

What the code does not hold stands here as data: what a component says and its range.
tests/test_site.py keeps the pages, and holds the ranges against every example.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from rag_rewards.blueprints import Blueprint, Recipe, Scored
from rag_rewards.recipes import RECIPES, recipe
from rag_rewards.report.reasons import reason
from rag_rewards.rollout import Rollout, Score, decode_row
from rag_rewards.settings import Setting, describe
from rag_rewards.training.advantages import group_advantages
from rag_rewards.training.published import NOT_STATED, Training, training_of

DOCS = Path(__file__).parent
FOLDER = DOCS / "recipes"
EXAMPLES = DOCS.parent / "examples"


@dataclass(frozen=True)
class Part:
    """What a component says, and the values it takes by default; None: no bound."""

    says: str
    low: float | None = 0.0
    high: float | None = 1.0
    values: tuple[float, ...] = ()

    @property
    def range(self) -> str:
        if self.values:
            return ", ".join(map(_number, self.values))
        if self.low is None:
            return "any"
        return f"{_number(self.low)} to {_number(self.high)}" if self.high is not None else "≥ 0"

    def takes(self, value: float) -> bool:
        """Whether a value is in the range."""
        if self.values:
            return value in self.values
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


_BIT = (0.0, 1.0)
_FORMAT = Part("the sections, in their order and nothing else", values=_BIT)
_EXACT = Part("the answer section is a gold answer", values=_BIT)
_FOUND = Part("a gold answer stands in the response", values=_BIT)
_GROUND = {
    "tag_count": Part("share of the tags that occur exactly once"),
    "format": _FORMAT,
    "exact_match": Part("0.5 for each statement that holds a gold answer", 0.0, None),
    "citation": Part(
        "for each such statement 0.5 where what it cites entails it, else −0.5", None, None
    ),
}
_CLR = {
    "evidential_contribution": Part(
        "E, in nats: the response's log-probability under all documents, less the lowest without "
        "one of the supporting",
        None,
        None,
    ),
    "clr": Part("E/√T where E > τ, else 0", 0.0, None),
}
PARTS: dict[str, dict[str, Part]] = {
    "arena": {
        "format": _FORMAT,
        "accuracy": _EXACT,
        "relevance": Part(
            "named ids: none supports, some do, exactly the supporting", values=(0, 0.5, 1)
        ),
        "bonus": Part("all three are 1", values=(0.0, 10.0)),
    },
    "ground-grpo-stage1": _GROUND,
    "ground-grpo": _GROUND
    | {
        "refusal": Part(
            "an answerable question answered: 0.5; an unanswerable one refused: the similarity "
            "to the gold refusal"
        ),
    },
    "lear": {
        "answer": Part("mean of the three answers"),
        "answer_rationale": Part("F1 of the answer from the rationale alone"),
        "answer_evidence": Part("F1 of the answer from the extract alone"),
        "answer_full": Part("F1 of the response's own answer"),
        "length": Part("mean of both lengths"),
        "length_rationale": Part("near 1 where the rationale is longer than the extract"),
        "length_evidence": Part("1 where the extract leaves out 90 % of the passages or more"),
        "format": _FORMAT,
    },
    "truthrl": {"outcome": Part("incorrect, uncertain, correct", values=(-1.0, 0.0, 1.0))},
    "ctrl-rag": _CLR
    | {
        "clr_normalized": Part("R′: clr between the least and the most of its group"),
        "accuracy": _FOUND,
    },
    "ctrl-rag-clr": _CLR,
    "naive-grpo": {"format": _FORMAT, "accuracy": _EXACT},
    "rag-total": {
        "citation_recall": Part("share of the supporting documents that are cited"),
        "accuracy": _FOUND,
        "cost": Part("words over the budget, as a share of it", 0.0, None),
    },
}
"""By recipe and component, under the default settings."""


def pages() -> dict[str, str]:
    """Every page, by its file's name."""
    return {"index.md": _index()} | {f"{name}.md": page(plan) for name, plan in RECIPES.items()}


def rows_of(name: str) -> list[Rollout]:
    """The examples of a recipe; those without a file of their own read CTRL-RAG's."""
    own = EXAMPLES / f"{name}.jsonl"
    lines = (own if own.exists() else EXAMPLES / "ctrl-rag.jsonl").read_bytes().splitlines()
    return [decode_row(line) for line in lines]


def page(plan: Blueprint) -> str:
    """The page of one recipe."""
    built = recipe(plan.name)
    parts = [
        f"# {plan.name}\n",
        f"{_sentence(plan.summary)} Source: {plan.source}.\n",
        f"```text\n{built.equation}\n```\n",
        _facts(plan, built),
        "## Components\n",
        _components(plan, built),
        "## An example\n",
        _example(plan, built),
        "## Settings\n",
        _settings(plan),
        "## Loopholes\n",
        _loopholes(plan),
        "## Training\n",
        _training(plan),
    ]
    if plan.deviations:
        parts += ["## Other than the authors' code\n", _list(plan.deviations)]
    return "\n".join(parts)


def _index() -> str:
    rows = [
        (f"[{name}]({name}.md)", f"`{recipe(name).equation}`", recipe(name).scope, plan.source)
        for name, plan in RECIPES.items()
    ]
    table = _table(("recipe", "reward", "scope", "source"), rows)
    return (
        "# Recipes\n\nA recipe is a published reward, whole: its components, its settings, and a "
        "source beside each default.\nThese pages are written from the code; `rag-rewards recipes "
        f"NAME` prints the same.\n\n{table}\n"
        "Scope `group`: the rollouts of a prompt are scored together. Which recipe works in which "
        "trainer:\n[trainers.md](../trainers.md).\n"
    )


def _facts(plan: Blueprint, built: Recipe) -> str:
    fields = ", ".join(f"`{field}`" for field in ("response", *plan.fields))
    facts = (
        (
            "output",
            _code(plan.output) if plan.output.startswith("<") else _cell(plan.output),
        ),
        ("scope", "whole groups" if built.scope == "group" else "single rollouts"),
        ("fields of a row", fields),
        ("in Python", f'`rr.recipe("{plan.name}")`'),
        ("on the command line", f"`rag-rewards score rows.jsonl -o scored.jsonl -r {plan.name}`"),
    )
    return "".join(f"- {name}: {said}\n" for name, said in facts)


def _components(plan: Blueprint, built: Recipe) -> str:
    known = PARTS[plan.name]
    rows = [(f"`{name}`", known[name].says, known[name].range) for name in built.component_names]
    return _table(("component", "what it says", "range"), rows)


# --- the example -------------------------------------------------------------------------------


def _example(plan: Blueprint, built: Recipe) -> str:
    """The first group of the recipe's examples, scored."""
    rows = rows_of(plan.name)
    group = [row for row in rows if row.group == rows[0].group]
    scores = built(group)
    hardened = recipe(plan.name, hardened=True).score_each(group)
    floor = training_of(plan.name).std_floor.value
    advantages = group_advantages([_reward(s) for s in scores], std_floor=floor or 0.0)
    lines = [
        *((_code(name), *_values(name, scores)) for name in built.component_names),
        ("**reward**", *(f"**{_number(score.value)}**" for score in scores)),
        ("advantage", *map(_number, advantages)),
        ("hardened", *(_number(s.value) if isinstance(s, Score) else "–" for s in hardened)),
    ]
    table = _table(("", *(row.id for row in group)), lines)
    whys = [f"{row.id}: {reason(row, score)}" for row, score in zip(group, scores, strict=True)]
    told = _sum(built, scores[0]) + _told(plan, len(group))
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


def _told(plan: Blueprint, size: int) -> str:
    floor = training_of(plan.name).std_floor.value
    under = f"the greater of its deviation and {_number(floor)}" if floor else "its deviation"
    return (
        f"All {size} rollouts of the prompt, from `examples/`, with the advantage that the reward "
        f"becomes (over the group's mean, by {under}) and the reward under the hardened profile:\n"
    )


# --- settings, loopholes, training --------------------------------------------------------------


def _settings(plan: Blueprint) -> str:
    rows = [
        (
            _code(setting.key),
            f"`{_value(setting.default)}`",
            _cell(setting.doc) + _kind(setting),
            _cell(setting.source),
        )
        for setting in describe(plan.settings)
    ]
    table = _table(("setting", "default", "what", "source of the default"), rows)
    return f"Set one with `--set KEY=VALUE` or `rr.recipe(NAME, {{KEY: value}})`.\n\n{table}"


def _kind(setting: Setting) -> str:
    """What a setting takes, where its default does not show it."""
    if "|" not in setting.type or setting.type == "true | false":
        return ""
    return f" ({_cell(setting.type)})"


def _loopholes(plan: Blueprint) -> str:
    rows = [
        (f"`{key}`", f"`{_value(flip.value)}`", ", ".join(map(str, flip.closes)) or "–", flip.why)
        for key, flip in plan.hardened.items()
    ]
    table = _table(("`--hardened` sets", "to", "closes", "against"), rows)
    table += f"\n{_changed(plan)}\n"
    return (
        "What pays under the default profile, by the numbers of the attacks in "
        f"[hardened.md](../hardened.md):\n\n{_list(plan.loopholes)}\n{table}"
    )


def _changed(plan: Blueprint) -> str:
    """What the hardened profile does to the examples, three of them by name."""
    rows = rows_of(plan.name)
    plain, hard = recipe(plan.name).score_each(rows), recipe(plan.name, hardened=True)
    changes = [
        f"`{row.id}` {_number(old.value)} → {_number(new.value)}"
        for row, old, new in zip(rows, plain, hard.score_each(rows), strict=True)
        if isinstance(old, Score) and isinstance(new, Score) and old.value != new.value
    ]
    named = ", ".join(changes[:3]) + ("" if len(changes) < 4 else ", …")
    changed = "1 changes" if len(changes) == 1 else f"{len(changes)} change"
    return f"Of the {len(rows)} examples {changed} under it: {named}"


def _training(plan: Blueprint) -> str:
    """What the paper trained with; what no paper states is ours and says so."""
    training: Training = training_of(plan.name)
    rows = [
        (_code(name), "none" if stated.value is None else str(stated.value), stated.source)
        for name, stated in training.items()
    ]
    ours = (
        f"What `rag-rewards init` writes. Where the source is “{NOT_STATED}” the value is ours.\n\n"
    )
    notes = f"\n{_list(plan.training)}" if plan.training else ""
    return ours + _table(("setting", "value", "source"), rows) + notes


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


def _reward(score: Scored) -> float:
    if isinstance(score, Score) and score.value is not None:
        return score.value
    raise ValueError(f"an example without a reward: {score}")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file, text in pages().items():
        (FOLDER / file).write_text(text, "utf-8")
