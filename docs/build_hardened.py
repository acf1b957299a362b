"""Write docs/hardened.md from the definitions of the recipes."""

from __future__ import annotations

from pathlib import Path

import msgspec

from rag_rewards.audit import ATTACKS
from rag_rewards.audit.cases import CASES
from rag_rewards.definition import RecipeDefinition
from rag_rewards.matching.decide import decide
from rag_rewards.prompts import fill
from rag_rewards.recipes import RECIPES
from rag_rewards.rows.decisions import NOTHING

PAGE = Path(__file__).with_name("hardened.md")
INTRO = """# The hardened profile

An attack increases the reward of a response without making its answer more correct. `--hardened`
(in Python `rr.recipe(name, hardened=True)`) changes the settings in the tables below, so that fewer
attacks pay. For a short answer, rules decide whether it is right, wrong or undecided. The answer
must be in the section or box of the form that the prompt requests. It is right if it contains a
gold answer and each other word is explained: by another spelling of the gold answer, by the
question, or as a function word. It is wrong if it is empty, a refusal, or another value of the same
kind. Every other answer is undecided, because the rules do not read prose. An undecided answer
counts as wrong (`undecided=wrong`), or a judge decides on it (`undecided=judge`). For the long
answers of Ground-GRPO, a gold answer counts if a statement contains it as whole words, states it,
and the citation of the statement supports it (`exact_match.counts=supported`). `--set` can reset
each setting, which then no longer prevents its attacks.

## Right, wrong and undecided answers

`rag_rewards.matching.decide` decides on these answers:

{examples}

A scored row contains the decision and its reason as `details.decision` and
`details.decision_reason`. `score`, `report`, `evaluate`, the metrics of the trainers
(`NAME/undecided`) and those of the server contain the number or the share of undecided answers.
Answers with nothing in common with a gold answer are not part of this share. Above 10%, a warning
names two options:

- Let a judge decide on them, with `--set KEY=judge`. KEY is {keys}.
- Request the form of the answer in the prompt, and a word or a short phrase as the answer. `prepare
  --hardened` checks that the prompt requests the section or box.

The rules have known limits:

- A right answer in a sentence with other words is undecided.
- A right answer in other words ("USA" for "United States") is undecided. Add it to the gold
  answers.
- In Ground-GRPO, a statement that denies or doubts an answer can count if its citation supports the
  answer.
- With `verifier=judge`, the default of `truthrl`, and with `accuracy.metric=judge`, a judge decides
  on the answers, and `undecided` does not change its verdicts.

With this profile, a recipe rejects other settings that a policy can exploit:

{rejected}

`rag-rewards audit` ([look.md](look.md)) tries {cases} variants of {attacks} attacks on the recipes.
[hardening-cost.md](hardening-cost.md) lists, for each recipe, how many attacks the profile stops
and how many honest responses it rejects.
[Agreement of the recipes with people](../benchmarks/results/agreement.md) compares both profiles
with the verdicts of people. [languages.md](languages.md) lists the languages that the rules read.

In the rest of this page:

- The column "attacks" and the lists refer to the attacks by number. The sign "–" in this column
  marks a setting that prevents another weakness of the reward.
- A candidate answer is a text that could be an answer to the question.
- E is the evidential contribution of CTRL-RAG, and T is the number of tokens of the response.
- "(closed: hardened)" means that the hardened profile prevents the attack, as far as its variants
  in the audit show.
- "As the paper defines it" means that the attack follows from the definition of the reward. The
  hardened profile does not prevent it.
"""
EXAMPLES = (
    ("Which city is the capital?", "Paris", "Paris"),
    ("Which city is the capital?", "Paris", "The capital is Paris."),
    ("When did they land?", "July 20, 1969", "20 July 1969"),
    ("How many are there?", "150", "one hundred and fifty"),
    ("Which country is it?", "Myanmar | Burma", "Myanmar or Burma"),
    ("When did they land?", "1969", "1970"),
    ("How far is it?", "5 miles", "5 km"),
    ("Is it Paris or Rome?", "Paris", "Rome"),
    ("Which city is the capital?", "Paris", "I don't know."),
    ("Which city is the capital?", "Paris", ""),
    ("Which city is the capital?", "Paris", "Paris or Rome"),
    ("Which city is the capital?", "Paris", "not Paris"),
    ("Which state is it?", "Kansas", "Kansas City"),
    ("When did they land?", "1969", "before 1969"),
    ("Which country is it?", "United States", "USA"),
    ("Which city is the capital?", "Paris", "Paris, which lies on the Seine"),
)
"""Question, gold answers (separated by |) and answer of the table of examples."""


def page() -> str:
    """Return the page."""
    attacks = "\n".join(f"| {number} | {name} |" for number, name in ATTACKS.items())
    parts = [
        fill(
            INTRO,
            examples=_examples(),
            keys=_keys_for_judge(),
            rejected=_rejected(),
            cases=f"{len(CASES):,}",
            attacks=str(len(ATTACKS)),
        ),
        f"## Attacks\n\n| number | attack |\n| --- | --- |\n{attacks}\n",
    ]
    parts += [_recipe(definition) for definition in RECIPES.values()]
    return "\n".join(parts)


def _examples() -> str:
    """Return the table of examples, sorted by their decision."""
    rows = []
    for question, gold, answer in EXAMPLES:
        value, reason = decide(answer, gold.split(" | "), question)
        if value == "undecided" and reason != NOTHING:
            reason = f"nothing explains “{reason}”"
        aliases = gold.replace(" | ", " or ")
        rows.append((value, f"| {question} | {aliases} | {answer} | {value} | {reason} |"))
    rows.sort(key=lambda row: ("right", "wrong", "undecided").index(row[0]))
    head = "| question | gold answer | answer | decision | reason |\n" + "| --- " * 5 + "|\n"
    return head + "\n".join(row for _, row in rows)


def _rejected() -> str:
    """Return a list of the values that the profile rejects, with their recipes and reasons."""
    recipes: dict[str, list[str]] = {}
    for name, definition in RECIPES.items():
        for key, values in definition.rejected.items():
            for value, reason in values.items():
                line = f"- `{key}={value}` {{}} {reason}."
                recipes.setdefault(line, []).append(f"`{name}`")
    return "\n".join(line.format(f"({', '.join(names)})") for line, names in recipes.items())


def _keys_for_judge() -> str:
    """Return the settings that let a judge decide on undecided answers, with their recipes."""
    names: dict[str, list[str]] = {}
    for name, definition in RECIPES.items():
        for key in definition.hardened:
            if key.rpartition(".")[2] == "undecided" and "judge" in _choices(definition, key):
                names.setdefault(key, []).append(f"`{name}`")
    return " and ".join(f"`{key}` ({', '.join(recipes)})" for key, recipes in names.items())


def _choices(definition: RecipeDefinition, key: str) -> str:
    return next(setting.type for setting in definition.settings.descriptions if setting.key == key)


def _recipe(definition: RecipeDefinition) -> str:
    defaults = definition.settings.defaults
    rows = [
        f"| `{key}` | `{_value(defaults[key])}` | `{_value(change.value)}` "
        f"| {', '.join(map(str, change.closes)) or '–'} | {change.why} |"
        for key, change in definition.hardened.items()
    ]
    table = "\n".join(
        ["| setting | default | hardened | attacks | prevents |", "| --- " * 5 + "|", *rows]
    )
    loopholes = "\n".join(f"- {line}" for line in definition.loopholes)
    return (
        f"## {definition.name}\n\n{table}\n\n"
        f"These attacks increase the reward under the default profile:\n\n{loopholes}\n"
    )


def _value(value: object) -> str:
    return msgspec.json.encode(value).decode()


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
