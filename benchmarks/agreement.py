"""Agreement of the matchers with human labels of free-form answers.

    python benchmarks/agreement.py NQ.jsonl TQ.jsonl

The files have the format of EVOUNA (Evaluating Open-QA Evaluation, section 3): a question, gold
answers separated by "/", and for each system an answer and a human verdict. Rows that are marked as
improper and answers without a verdict are left out. The answers are those of four systems that
answer in sentences. The rules were developed on 70% of the questions ("development"), chosen by the
hash of the question; the others are for tests. Results are written to results/agreement.md, with
the agreement of a judge cascade (`cascade_curve.py`), which is also written to docs/cascade.md.
With --picture, the script draws this agreement, which needs matplotlib.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rag_rewards.metrics.agreement import Agreement
from rag_rewards.text.lenient import lenient_match
from rag_rewards.text.normalize import Unicode, squad
from rag_rewards.text.strict import strict_contains

RESULTS = Path(__file__).resolve().parent / "results" / "agreement.md"
SYSTEMS = ("gpt35", "chatgpt", "gpt4", "newbing")
PARTS = ("development", "test")


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


def substring(row: Labelled) -> bool:
    text = squad(row.answer)
    return any(gold in text for gold in map(squad, row.aliases) if gold)


def strict(row: Labelled) -> bool:
    return strict_contains(row.answer, row.aliases, Unicode(), question=row.question)


def lenient(row: Labelled) -> bool:
    return bool(lenient_match(row.answer, row.aliases, row.question))


MATCHERS: dict[str, Callable[[Labelled], bool]] = {
    "substring": substring,
    "strict substring (hardened)": strict,
    "lenient": lenient,
}


def line(name: str, rows: Sequence[Labelled], data: str) -> str:
    """Return a line of the table: κ and error rates of a matcher on both parts."""
    begun = time.process_time()
    verdicts = [MATCHERS[name](row) for row in rows]
    speed = len(rows) / (time.process_time() - begun)
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
    return f"| {name} | {data} | {' | '.join(cells)} | {speed:,.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--picture", action="store_true", help="draw the curve of the cascade")
    options = parser.parse_args()
    lines = [
        "# Agreement of the matchers with people",
        "",
        "`python benchmarks/agreement.py` wrote this page. κ is Cohen's kappa between the verdict "
        "of the matcher and the verdict of a person on long answers of four systems to questions "
        "of NQ and TriviaQA (half of EVOUNA). A false positive is a wrong answer that the matcher "
        "accepts. The rules were developed on the questions of the first part only.",
        "",
        "| matcher | data | κ, development | false positives | false negatives | κ, test | "
        "false positives | false negatives | answers per second |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    labelled = {path.stem.split("_")[0].upper(): read(path) for path in options.files}
    for data, rows in labelled.items():
        for name in MATCHERS:
            lines.append(line(name, rows, f"{data}, {len(rows):,} answers"))
            print(lines[-1], flush=True)
    # Imported here because tests import this file without the folder of the other ones.
    import rule_groups
    from cascade_curve import draw, ruled_answers, section, write_page

    lines += rule_groups.section(labelled, strict)
    curves = ruled_answers(labelled)
    lines += section(curves)
    write_page(next(iter(curves.values())))
    if options.picture:
        draw(curves)
    RESULTS.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
