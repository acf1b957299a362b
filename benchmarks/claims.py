"""Claims per second of `Claims` on rollouts with stored entailments.

    python benchmarks/claims.py [--rows 2000] [--passes 5]

The rows are generated from a seed: 5 documents of 100 words, and 8 claims with up to two citations.
Each pass reads new rollouts and cuts the responses into claims. A wrong value ends the run. Results
are written to results/claims.md.
"""

from __future__ import annotations

import random
import time

from harness import Page, machine, parser

from rag_rewards import Rollout
from rag_rewards.rewards import Claims
from rag_rewards.rollout import Document, Entailment

WORDS = "river city king album film born county team novel war school song award north".split()
DOCUMENTS, CLAIMS = 5, 8


def rollout(rng: random.Random) -> tuple[Rollout, float]:
    """Return a rollout with all entailments that its claims need, and its faithfulness."""
    texts = [" ".join(rng.choices(WORDS, k=100)) for _ in range(DOCUMENTS)]
    sets = [[text] for text in texts] + [texts, *([a, b] for a in texts for b in texts if a != b)]
    premises = list(map("\n".join, sets))
    claims = [f"Claim {i} of {' '.join(rng.choices(WORDS, k=10))} holds." for i in range(CLAIMS)]
    cited = [rng.sample(range(1, DOCUMENTS + 1), rng.randint(0, 2)) for _ in claims]
    markers = ["".join(f" [{i}]" for i in each) for each in cited]
    response = " ".join(f"{c[:-1]}{m}." for c, m in zip(claims, markers, strict=True))
    supported = [rng.random() < 0.6 for _ in claims]
    nli = tuple(
        Entailment(premise=premise, hypothesis=claim, entailment=0.9 if holds else 0.1)
        for claim, holds in zip(claims, supported, strict=True)
        for premise in premises
    )
    documents = tuple(Document(text=text) for text in texts)
    return Rollout(response=response, documents=documents, nli=nli), sum(supported) / CLAIMS


def main() -> None:
    options = parser(__doc__, rows=2_000, passes=5).parse_args()
    page = Page(
        "Claims",
        f"`python benchmarks/claims.py --rows {options.rows} --passes {options.passes}`: "
        f"{options.rows:,} rollouts with {CLAIMS} claims and {DOCUMENTS} documents of 100 words; "
        f"{machine()}. Seconds of one core; the fastest of the passes.",
    )
    page.table("measure", "documents", "claims per second", "target")
    for measure, premises in (
        ("faithfulness", "together"),
        ("faithfulness", "each"),
        ("f1", "each"),
    ):
        reward = Claims(measure=measure, premises=premises)  # type: ignore[arg-type]
        seconds = []
        for _ in range(options.passes):
            rng = random.Random(5)
            rollouts, expected = zip(*(rollout(rng) for _ in range(options.rows)), strict=True)
            start = time.process_time()
            values = [score.value for score in reward(rollouts)]
            seconds.append(time.process_time() - start)
            if measure == "faithfulness" and values != list(expected):
                raise SystemExit("the values differ from those of the table")
        speed = options.rows * CLAIMS / min(seconds)
        cited = "those cited" if measure == "f1" else premises
        page.row(f"`{measure}`", cited, f"{speed:,.0f}", "5,000")
    page.write("claims")


if __name__ == "__main__":
    main()
