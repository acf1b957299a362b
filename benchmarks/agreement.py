"""Agreement of the recipes with human labels of free-form answers.

    python benchmarks/agreement.py NQ.jsonl TQ.jsonl

The files have the format of EVOUNA (Evaluating Open-QA Evaluation, section 3): a question, gold
answers separated by "/", and for each system an answer and a human verdict. Rows that are marked as
improper and answers without a verdict are left out. Four systems answer in sentences (long
answers), and FiD with a few words (short answers). Each answer is scored by `rr.recipe`, in the
output form of the recipe, as a user scores it. The rules were developed on 70% of the questions
("development"), chosen by the hash of the question. Results are written to results/agreement.md,
with the decisions on answers and the agreement of a judge cascade (`decisions.py`), which is also
written to docs/judges.md; `make pages` then writes the figures of other pages.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Page, labelled_files

import rag_rewards as rr
from rag_rewards.audit.capitals import SAME_LIKELIHOOD
from rag_rewards.audit.rule_evidence import with_evidence
from rag_rewards.metrics.agreement import Agreement
from rag_rewards.recipes import definition_of
from rag_rewards.text.statements import sentences

SYSTEMS = ("gpt35", "chatgpt", "gpt4", "newbing")
"""The systems with long answers."""
SHORT = ("fid",)
"""The systems with short answers."""
LENGTHS = {"long": SYSTEMS, "short": SHORT}
Group = tuple[str, str]
"""The name of the data, NQ or TQ, and `long` or `short`."""
PARTS = ("development", "test")
RATES = [head for part in PARTS for head in (f"κ, {part}", "false positives", "false negatives")]
"""The heads of κ and error rates."""
TUNED = (
    "The data is a half of EVOUNA. People read answers to 70% of its questions while they "
    "developed the rules (development). They did not read the answers to the other questions "
    "(test), but they saw the figures of these questions after changes. The other half of EVOUNA "
    "was not available to them and is not measured here."
)
"""On which rows the rules were tuned."""
LENIENT = {"accuracy.metric": "lenient"}
CITED = {"citation.judge_by": "gold"}
"""Each sentence cites a document that says the same (`score`), and the labels decide on it."""
RECIPES: Sequence[tuple[str, Mapping[str, Any], Sequence[bool]]] = (
    ("truthrl", {"verifier": "substring"}, (False, True)),
    ("ground-grpo", CITED, (False, True)),
    ("ctrl-rag", {}, (False, True)),
    ("rag-total", {}, (False, True)),
    ("rag-total", LENIENT, (False,)),
)
"""Recipes that read sentences, their settings, and whether the profile is the hardened one."""


@dataclass(frozen=True)
class Labelled:
    """An answer with the verdict of a person."""

    question: str
    aliases: tuple[str, ...]
    answer: str
    label: bool
    part: str


def read(path: Path, systems: Sequence[str] = SYSTEMS) -> list[Labelled]:
    """Return the labelled answers of some systems in a file."""
    labelled = []
    for row in map(json.loads, path.read_text("utf-8").split("\n")[:-1]):
        aliases = tuple(each.strip() for each in row["golden_answer"].split("/") if each.strip())
        digest = hashlib.sha256(row["question"].encode()).hexdigest()
        part = PARTS[int(digest, 16) % 10 >= 7]
        for system in () if row.get("improper") else systems:
            answer, label = row.get(f"answer_{system}"), row.get(f"judge_{system}")
            if answer is not None and label is not None:
                labelled.append(Labelled(row["question"], aliases, answer, bool(label), part))
    return labelled


def read_groups(paths: Sequence[Path]) -> dict[Group, list[Labelled]]:
    """Return the labelled answers of files, by group."""
    return {
        (path.stem.split("_")[0].upper(), length): read(path, systems)
        for path in paths
        for length, systems in LENGTHS.items()
    }


def score(recipe: rr.Recipe, question: str, aliases: Sequence[str], answer: str) -> rr.Score:
    """Return the score of an answer in the output form of a recipe.

    `ground-grpo`: the supporting document says what the answer says.
    """
    texts = [f"Document number {number}." for number in (1, 2, 3)]
    if recipe.name == "ground-grpo":
        texts[0] = answer
    rollout = rr.decode_row(
        {
            "question": question,
            "answers": list(aliases),
            "documents": [{"text": text} for text in texts],
            "supporting": [1],
            "answerable": True,
            "response": written(recipe.name, answer),
            **SAME_LIKELIHOOD,
        }
    )
    return recipe([with_evidence(recipe, rollout)])[0]


def written(name: str, answer: str) -> str:
    """Return a response with an answer in the output form that a recipe requires.

    `ground-grpo`: each sentence cites the supporting document.

    >>> written("ground-grpo", "It is Paris. It is old")
    '<think>Some thinking.</think><answer>It is Paris. [1]\\nIt is old [1]</answer>'
    """
    if name == "ground-grpo":
        answer = "\n".join(f"{sentence.strip()} [1]" for sentence in sentences(answer))
    return definition_of(name).output.write(answer)


def is_correct(recipe: rr.Recipe, row: Labelled) -> bool:
    """Return whether a recipe calls an answer correct."""
    return score(recipe, row.question, row.aliases, row.answer).correct == 1


def shown(name: str, settings: Mapping[str, Any]) -> str:
    """Return the name of a recipe with its settings."""
    return " ".join([name, *(f"`{key}={value}`" for key, value in settings.items())])


def introduction(script: str) -> str:
    """Return the sentences that begin a page of results."""
    return f"`python benchmarks/{script}` wrote this page with rag-rewards {rr.__version__}."


def line(
    name: str, settings: Mapping[str, Any], rows: Sequence[Labelled], data: str, *, hardened: bool
) -> str:
    """Return a line of the table: κ and error rates of a recipe on both parts."""
    recipe = rr.recipe(name, settings, hardened=hardened)
    verdicts = [is_correct(recipe, row) for row in rows]
    cells = []
    for part in PARTS:
        agreement = Agreement.of(
            (verdict, row.label)
            for verdict, row in zip(verdicts, rows, strict=True)
            if row.part == part
        )
        cells += [
            f"{agreement.kappa:.3f}",
            f"{agreement.false_positive_rate:.3f}",
            f"{agreement.false_negative_rate:.3f}",
        ]
    profile = "hardened" if hardened else "default"
    size = f"{data}, {len(rows):,} answers"
    return f"| {shown(name, settings)} | {profile} | {size} | {' | '.join(cells)} |"


def lines_of(labelled: Mapping[Group, Sequence[Labelled]]) -> Iterator[str]:
    """Yield the lines of the table of the recipes."""
    for (data, length), rows in labelled.items():
        for name, settings, profiles in RECIPES:
            for hardened in profiles:
                yield line(name, settings, rows, f"{data}, {length}", hardened=hardened)


def main() -> None:
    paths = labelled_files(__doc__).parse_args().files
    # Imported here because tests import this file without the folder of the other ones.
    import decisions

    labelled = read_groups(paths)
    decided = decisions.decided_answers(labelled)
    page = Page(
        "Agreement of the recipes with people",
        f"{introduction('agreement.py')} The answers are those of four systems that answer in "
        "sentences (long answers), and of FiD, which answers with a few words (short answers), to "
        "questions of NQ and TriviaQA (TQ). People call each answer right or wrong. Each answer is "
        "in the output form of the recipe.",
        TUNED,
    )
    page.extend(decisions.section(decided))
    page.add(
        "",
        "## Recipes",
        "",
        "κ is Cohen's kappa between the verdict of a recipe and the verdict of a person. Under "
        "the hardened profile, an undecided answer earns nothing, except with `ground-grpo`: most "
        "answers in sentences are undecided. A false positive is a wrong answer that the recipe "
        "accepts. For `ground-grpo`, each sentence cites a document that says the same.",
        "",
    )
    page.table("recipe", "profile", "data", *RATES)
    page.extend(lines_of(labelled))
    page.add("")
    page.extend(decisions.cascade_section(decided))
    decisions.write_page(decided)
    page.write("agreement")


if __name__ == "__main__":
    main()
