"""Write lists and counts into pages that are otherwise written by hand.

inserts.py describes the marks of their places. The counts of attacks are those of
docs/hardening-cost.md, so run build_hardening_cost.py first. The figures of the agreement with
people are those of benchmarks/results/agreement.md, on the questions of the test part. The advice
about turn credit follows from benchmarks/results/search_agents.json. The figures of the evidence of
a language model are in benchmarks/results/language_model_evidence.json.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from textwrap import fill

from build_hardening_cost import PAGE as COST
from build_hardening_cost import TOTAL
from build_matrix import table
from inserts import filled
from inserts import table as text_table

from rag_rewards.loading import RecipeSpec, load_recipe
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.models.nli.profiles import PROFILES
from rag_rewards.recipes import RECIPES
from rag_rewards.scripts.start import Start
from rag_rewards.trainers import TRAINERS

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results"
AGREEMENT = RESULTS / "agreement.md"
EVIDENCE = RESULTS / "language_model_evidence.json"
DOCS = Path(__file__).parent
PAGES = (
    DOCS.parent / "README.md",
    *(
        DOCS / name
        for name in (
            "evaluate.md",
            "index.md",
            "judges.md",
            "models.md",
            "search-agents.md",
            "trainers.md",
            "trl.md",
        )
    ),
)


def page(path: Path) -> str:
    """Return the text of a page with its inserts."""
    folder = "docs/" if path.parent != DOCS else ""
    return filled(path, lambda name: insert(name, folder))


def text_of(path: Path) -> str:
    return path.read_text("utf-8")


def insert(name: str, folder: str = "") -> str:
    """Return the text of a place. `folder` is the path from the page to the folder `docs`."""
    kind, _, field = name.partition("-")
    match kind:
        case "hardened":
            return hardened(folder)
        case "trainers":
            return joined(trainers())
        case "matrix":
            return table()
        case "cases":
            return cases()
        case "kappas":
            return kappas(field)
        case "evidence":
            return evidence(field)
        case "reads":
            return joined(readers(field))
        case "checkers":
            return checkers()
        case "searching":
            return joined([f"`{name}`" for name in RECIPES if searches(name)])
        case "credit":
            return credit()
    raise ValueError(f"unknown insert {name!r}")


def hardened(folder: str) -> str:
    """Return the counts of the attacks and of the honest responses over all recipes."""
    attacks, stopped, prevented, honest, accepted, kept, _ = total()
    text = (
        f"[Measured on all recipes]({folder}hardening-cost.md): {prevented} of {attacks} attacks "
        f"do not increase the reward under the hardened profile, and {stopped} under the default "
        "profile. Attacks that follow from the definition in the paper are not counted. Of "
        f"{honest} honest responses, the hardened profile accepts {kept}, and the default profile "
        f"{accepted}."
    )
    return fill(text, width=100, break_on_hyphens=False)


def total() -> list[str]:
    """Return the counts of the last row of the summary of docs/hardening-cost.md."""
    [row] = [line for line in text_of(COST).splitlines() if line.startswith(f"| {TOTAL} |")]
    return [cell.strip() for cell in row.split("|")[2:-1]]


def kappas(metric: str) -> str:
    """Return κ of `rag-total` with a metric on long answers, as in "0.80 and 0.87"."""
    setting = "" if metric == "substring" else f" `accuracy.metric={metric}`"
    begin = f"| rag-total{setting} | default |"
    lines = text_of(AGREEMENT).splitlines()
    rows = [line for line in lines if line.startswith(begin) and ", long, " in line]
    return joined([f"{float(row.split('|')[7]):.2f}" for row in rows])


def evidence(field: str) -> str:
    """Return the least and the greatest value of a language model, as in ".52 to .57"."""
    sys.path.insert(0, str(DOCS.parent / "benchmarks"))
    page = import_module("language_model.evidence_page")
    stored = json.loads(text_of(EVIDENCE))
    every = page.settings_of(stored)
    contrastive = {
        "memory": (page.EVIDENCE, "memory"),
        "misread": (page.EVIDENCE, "misread"),
        "copied": (page.EVIDENCE, "copied gold"),
        "others": (page.EVIDENCE, page.ALL),
        "accuracy": (page.ACCURACY, page.ALL),
        "product": (page.GATED, page.ALL),
    }
    if field in contrastive:
        figures = page.aucs(every, *contrastive[field])
    elif field == "difference":
        figures = [form["product minus accuracy"][page.ALL] for _, _, form in every]
    else:
        measures = [prompt[field] for prompt in stored["search"].values()]
        figures = [figure for each in measures for name, figure in each.items() if "," in name]
    span: str = page.span(figures)
    return span


def trainers() -> list[str]:
    """Return the names of the trainers with an adapter."""
    titles = [trainer.title for trainer in TRAINERS.values()]
    return [title.replace("tinker-cookbook", "Tinker") for title in titles]


def cases() -> str:
    """Return the numbers of recipes and of cases of the groups with expected advantages."""
    sys.path.insert(0, str(DOCS.parent / "tests" / "trainers"))
    golden = import_module("golden")
    recipes = {group.recipe for group in golden.GROUPS}
    return f"{len(recipes)} recipes in {len(golden.CASES)} cases"


def readers(field: str) -> list[str]:
    """Return the recipes that read a field of a row, with the condition if there is one."""
    recipes = []
    for name, recipe in RECIPES.items():
        for each in recipe.fields:
            head, _, condition = each.partition(" ")
            if head == field:
                recipes.append(f"`{name}` {condition}".strip())
    return recipes


def checkers() -> str:
    """Return the table of the profiles of fact checkers."""
    head = ("profile", "models", "output", "chunk", "license", "source")
    return text_table(
        head,
        [
            (
                f"`{each.name}`",
                each.models,
                each.output.replace("_", " "),
                "—" if each.chunk is None else f"{each.chunk} tokens",
                each.license,
                each.source,
            )
            for each in PROFILES.values()
        ],
    )


def searches(name: str) -> bool:
    """Return whether the policy of a recipe searches in the scripts of `init`."""
    spec = RecipeSpec.of(name)
    return Start(spec, load_recipe(spec), ModelOptions(), "policy", "data").searches


def credit() -> str:
    """Return when to use turn credit, from the figures of benchmarks/search_agents.py."""
    folder = DOCS.parent / "benchmarks"
    sys.path.insert(0, str(folder))
    stored = json.loads(text_of(folder / "results" / "search_agents.json"))
    advice: str = import_module("tiny_search.page").advice(stored)
    return advice


def joined(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(page(path), "utf-8")
