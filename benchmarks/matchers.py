"""Agreement of other matchers with people, on the same answers as the decisions of this package.

    python benchmarks/matchers.py NQ.jsonl TQ.jsonl

The files have the format of EVOUNA, as for `agreement.py`. The matchers are exact match, substring
match, token F1, the decisions and lenient matching of this package, and PEDANTS of the package
qa-metrics, if this package is installed. It needs another version of scikit-learn than the
development environment, so that the script runs in an environment of its own:

    python -m venv build/qa-metrics
    build/qa-metrics/bin/pip install qa-metrics==0.2.42 nltk tqdm regex .
    build/qa-metrics/bin/python benchmarks/matchers.py NQ.jsonl TQ.jsonl

PEDANTS downloads its weights from GitHub. `--weights` names their source on the page. Results are
written to results/matchers.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

from agreement import PARTS, RATES, TUNED, Group, Labelled, introduction, read_groups, score
from harness import Page, labelled_files

import rag_rewards as rr
from rag_rewards.metrics.agreement import Agreement

MIN_F1 = 0.5
Matcher = Callable[[Labelled], bool]


def own_matchers() -> dict[str, Matcher]:
    """Return the matchers of this package, as metrics of `rag-total`, by name."""
    return {
        "exact match": own("exact"),
        "substring match": own("substring"),
        f"token F1 ≥ {MIN_F1:g}": own("f1", least=MIN_F1),
        "decided right": own("exact", undecided="wrong"),
        "lenient match": own("lenient"),
    }


def own(metric: str, *, least: float = 1.0, undecided: str = "match") -> Matcher:
    """Return the matcher of a metric, which accepts an answer with at least some value."""
    settings = {"metric": metric, "normalizer": "squad", "reads": "answer", "undecided": undecided}
    recipe = rr.recipe("rag-total", {f"accuracy.{key}": each for key, each in settings.items()})

    def matches(row: Labelled) -> bool:
        result = score(recipe, row.question, row.aliases, row.answer)
        return result.components["accuracy"] >= least

    return matches


def pedants(weights: str) -> tuple[Matcher, str] | None:
    """Return PEDANTS and a description of it; None if qa-metrics is not installed.

    weights  the source of its weights
    """
    try:
        number = version("qa-metrics")
    except PackageNotFoundError:
        return None
    from qa_metrics import pedant

    matcher = pedant.PEDANT()

    def matches(row: Labelled) -> bool:
        return bool(matcher.evaluate(list(row.aliases), row.answer, row.question))

    return matches, f"qa-metrics {number} with the weights of {weights}"


def lines_of(
    matchers: Mapping[str, Matcher], labelled: Mapping[Group, Sequence[Labelled]]
) -> Iterator[str]:
    """Yield the lines of the table."""
    for (data, length), rows in labelled.items():
        for name, matches in matchers.items():
            pairs = [(matches(row), row) for row in rows]
            cells = []
            for part in PARTS:
                agreement = Agreement.of((v, row.label) for v, row in pairs if row.part == part)
                rates = agreement.false_positive_rate, agreement.false_negative_rate
                cells += [f"{value:.3f}" for value in (agreement.kappa, *rates)]
            yield f"| {data}, {length}, {len(rows):,} | {name} | {' | '.join(cells)} |"


def main() -> None:
    arguments = labelled_files(__doc__)
    arguments.add_argument("--weights", default="today", help="name the source of the weights")
    options = arguments.parse_args()
    matchers, baseline = own_matchers(), pedants(options.weights)
    if baseline:
        matchers["PEDANTS"], description = baseline
        other = (
            f"PEDANTS is that of {description}, with its default settings. The transformer matcher "
            "of qa-metrics is not measured, because its weights are not part of the package."
        )
    else:
        other = "PEDANTS is not measured, because the package qa-metrics is not installed."
    page = Page(
        "Agreement of matchers with people",
        f"{introduction('matchers.py')} κ is Cohen's kappa between the verdict of a matcher and "
        "the verdict of a person, on long answers of four systems and short answers of FiD. A "
        "false positive is a wrong answer that the matcher accepts. The first matchers are values "
        "of the setting `accuracy.metric` of `rag-total`, with `accuracy.normalizer=squad` and "
        "`accuracy.reads=answer`. Decided right is `accuracy.undecided=wrong`, for which an "
        "undecided answer is wrong; a judge can decide on it instead ([judge "
        f"cascade](agreement.md#judge-cascade)). {other}",
        TUNED,
    )
    page.table("data, answers", "matcher", *RATES)
    page.extend(lines_of(matchers, read_groups(options.files)))
    page.write("matchers")


if __name__ == "__main__":
    main()
