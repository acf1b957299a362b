"""Write docs/hardened.md from the definitions of the recipes."""

from __future__ import annotations

from pathlib import Path

import msgspec

from rag_rewards.audit import ATTACKS
from rag_rewards.audit.cases import CASES
from rag_rewards.definition import RecipeDefinition
from rag_rewards.recipes import RECIPES
from rag_rewards.settings import flatten

PAGE = Path(__file__).with_name("hardened.md")
INTRO = """# The hardened profile

`--hardened` (in Python `rr.recipe(name, hardened=True)`) changes the settings in the tables below.
`--set` can reset each of them, so that its effect can be measured. A setting that is reset no
longer prevents its attacks: with `normalizer=squad`, 3.14 matches 314 again. With this profile, a
recipe rejects other settings that a policy can exploit: `accuracy.metric=lenient`, which is only
for evaluation, `box=first` and `extra=allow` of TruthRL, and `refusal.matcher=semantic` of
Ground-GRPO. Metrics that are exploitable by default are matched strictly: with
`accuracy.metric=substring` or `f1` and with `verifier=f1>=x`, a response that does not assert the
gold answer earns 0. An attack increases the reward of a response without making
its answer more correct. `rag-rewards audit`
([look.md](look.md)) tries {cases:,} variants of the attacks below on the recipes.

The hardened profile matches gold answers strictly: rules decide whether a sentence asserts an
answer. These rules have known errors:

- They miss a right answer in three cases: in a list of three places ("Paris, Île-de-France,
  France") if no preposition is before it and the question contains none of the places, before a
  semicolon that is followed by a list, and in an answer section of more than 60 words.
- They do not count an answer beside the statement that the model does not know the answer, and a
  copy of a whole document with several clauses.
- They can read names without punctuation between them ("Paris Rome Berlin") as one name.
- They accept a coarser date: if the question asks when something happened, and the gold answer is
  "May 5, 1931", the answers "1931" and "May 1931" are right, unless the text names another year.
- They do not compare titles: "Prince William" is an answer if the gold answer is "William".

[languages.md](languages.md) lists the languages that the rules read.
[hardening-cost.md](hardening-cost.md) lists, for each recipe, how many attacks the profile stops
and how many honest responses it rejects. [Agreement of the recipes with
people](../benchmarks/results/agreement.md) compares both profiles with the verdicts of people.

On this page:

- The column "attacks" and the lists refer to the attacks by number. The sign "–" in this column
  marks a setting that prevents another weakness of the reward.
- A candidate answer is a text that could be an answer to the question.
- E is the evidential contribution of CTRL-RAG, and T is the number of tokens of the response.
- "(closed: hardened)" means that the hardened profile prevents the attack.
- "As the paper defines it" means that the attack follows from the definition of the reward. The
  hardened profile does not prevent it.
"""


def page() -> str:
    """Return the page."""
    attacks = "\n".join(f"| {number} | {name} |" for number, name in ATTACKS.items())
    parts = [
        INTRO.replace("{cases:,}", f"{len(CASES):,}"),
        f"## Attacks\n\n| number | attack |\n| --- | --- |\n{attacks}\n",
    ]
    parts += [_recipe(definition) for definition in RECIPES.values()]
    return "\n".join(parts)


def _recipe(definition: RecipeDefinition) -> str:
    defaults = flatten(definition.settings())
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
