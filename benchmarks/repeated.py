"""Gold answers, repeated letter by letter, that earn nothing under the hardened profile.

    python benchmarks/repeated.py NQ.jsonl TQ.jsonl
    python benchmarks/repeated.py NQ.jsonl TQ.jsonl --show quoted --recipe rag-total

The files have the format of EVOUNA, as for `agreement.py`: a question, and gold answers separated
by "/". Each alias of each question is the response once, in several forms. The row has all aliases,
so that an honest recipe accepts each response that is a short answer. Results are written to
results/repeated.md. `--show` prints the rejected responses of a form, for the development part of
the questions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agreement import CITED, introduction, score
from harness import Page, labelled_files

import rag_rewards as rr

FORMS: Mapping[str, str] = {
    "alone": "{}",
    "period": "{}.",
    "quoted": '"{}"',
    "bold": "**{}**",
    "cited": "{} [1]",
    "sentence": "The answer is {}.",
    "remark": "The answer is {}. Document 3 says so.",
    "wish": "{}. I hope this helps!",
}
RECIPES: Mapping[str, Mapping[str, Any]] = {
    "rag-total": {},
    "truthrl": {"verifier": "substring"},
    "ground-grpo": CITED,
}


def questions(paths: Sequence[Path]) -> Iterator[tuple[str, list[str]]]:
    """Yield each question with its aliases."""
    for path in paths:
        for row in map(json.loads, path.read_text("utf-8").split("\n")[:-1]):
            aliases = [each.strip() for each in row["golden_answer"].split("/") if each.strip()]
            if not row.get("improper"):
                yield row["question"], aliases


def is_development(question: str) -> bool:
    """Return whether a question is in the part on which rules are developed."""
    return int(hashlib.sha256(question.encode()).hexdigest(), 16) % 10 < 7


def rejected(
    name: str, form: str, data: Sequence[tuple[str, list[str]]]
) -> Iterator[tuple[str, str]]:
    """Yield the question and the response of each repeated gold answer that a recipe rejects."""
    recipe = rr.recipe(name, RECIPES[name], hardened=True)
    for question, aliases in data:
        for alias in aliases:
            text = FORMS[form].format(alias)
            if score(recipe, question, aliases, text).correct != 1:
                yield question, text


def main() -> None:
    arguments = labelled_files(__doc__)
    show = "print the rejected responses of this form"
    arguments.add_argument("--show", choices=FORMS, help=show)
    arguments.add_argument("--recipe", choices=RECIPES, default="rag-total")
    options = arguments.parse_args()
    data = list(questions(options.files))
    if not options.show:
        return measure(data)
    data = [each for each in data if is_development(each[0])]
    for question, text in rejected(options.recipe, options.show, data):
        print(f"{text}    {question}")


def measure(data: Sequence[tuple[str, list[str]]]) -> None:
    """Write the page of results."""
    total = sum(len(aliases) for _, aliases in data)
    page = Page(
        "Repeated gold answers",
        f"{introduction('repeated.py')} Each gold answer of "
        f"{len(data):,} questions of NQ and TriviaQA (half of EVOUNA) is the response to its "
        f"question once, in several forms: {total:,} responses per form. The table shows how many "
        "of them earn nothing for the answer under the hardened profile. For `ground-grpo`, each "
        "sentence cites a document that says the same. A remark or a wish is no part of a short "
        "answer, so that the answer is undecided.",
    )
    page.table("form", *RECIPES)
    for form, text in FORMS.items():
        counts = [sum(1 for _ in rejected(name, form, data)) for name in RECIPES]
        cells = [f"{count:,} ({count / total:.2%})" for count in counts]
        page.row(f"{form}: `{text.format('X')}`", *cells)
    page.write("repeated")


if __name__ == "__main__":
    main()
