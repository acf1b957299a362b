"""TruthRL and its baselines in the tiny world: without documents, majority votes, three judges."""

import hashlib
import math
import random
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiment import Experiment, Figures, Variant, main, steps_text
from supervised import fine_tune
from truthrl import out_of_knowledge, reward

STEPS = 30
EXAMPLES = 480
"""Questions of a supervised training, as many as those of the GRPO runs."""
EPOCHS = 3
BATCH = 16
SFT_STEPS = EXAMPLES * EPOCHS // BATCH
VOTES = 16
GROUPS = 60
"""Questions with `VOTES` responses each."""
ERRORS = 0.1
"""Share of answers on which a judge with errors is wrong."""


def fine_tuned(start: Path, run: Any, *, knows_limits: bool) -> tuple[Any, Any]:
    """Fine-tune on gold answers (SFT), or abstain on out-of-knowledge questions (R-Tuning)."""
    from rag_rewards.tiny_world.formats import TRUTHRL
    from rag_rewards.tiny_world.model import load
    from rag_rewards.tiny_world.world import DOCUMENTS, questions

    rng = random.Random(f"citations {run.seed}")
    batch = questions(EXAMPLES, f"fine-tuning {run.seed}")
    labels = (
        out_of_knowledge(start, batch)
        if knows_limits
        else [{"out_of_knowledge": False}] * len(batch)
    )
    rows = []
    for each, label in zip(batch, labels, strict=True):
        answer = None if label["out_of_knowledge"] else each.answer
        citation = each.support or rng.randint(1, DOCUMENTS)
        response = TRUTHRL.write(each.person, answer, citation)
        rows.append({"prompt": TRUTHRL.row(each)["prompt"], "completion": response})
    model, tokenizer = load(start)
    options = {
        "num_train_epochs": EPOCHS,
        "per_device_train_batch_size": BATCH,
        "learning_rate": 2e-4,
    }
    return fine_tune(model, tokenizer, rows, run.seed, **options), tokenizer


def judged(rollout: Any, truth: str, kind: str) -> float:
    """Return the truthfulness of an answer, 1, 0 or −1, according to a judge.

    strict   rejects some correct answers
    lenient  accepts some wrong answers
    """
    digest = hashlib.sha256(f"{kind} {rollout.prompt} {rollout.response}".encode()).digest()
    errs = digest[0] < ERRORS * 256
    if errs and (kind, truth) in (("strict", "correct"), ("lenient", "incorrect")):
        truth = "incorrect" if kind == "strict" else "correct"
    return {"correct": 1.0, "uncertain": 0.0, "incorrect": -1.0}[truth]


def measure_settings(
    model: Any, tokenizer: Any, fresh: Sequence[Any], temperature: float, start: Path
) -> Figures:
    """Return the figures without documents, of majority votes, and under three judges."""
    from rag_rewards.rows import decode_row
    from rag_rewards.tiny_world.formats import TRUTHRL
    from rag_rewards.tiny_world.generation import responses, rollouts
    from rag_rewards.tiny_world.measures import score_all, truthrl_measures

    sample = partial(rollouts, model, tokenizer, TRUTHRL, temperature=temperature)
    answers = sample(fresh)
    scores = score_all("truthrl", answers, {"verifier": "exact"})
    pairs = [(a, s.details["truth"]) for a, s in zip(answers, scores, strict=True)]
    figures = {
        f"{kind} judge": sum(judged(*pair, kind) for pair in pairs) / len(pairs)
        for kind in ("strict", "lenient")
    }
    rows = [{**TRUTHRL.row(q), "prompt": f"{TRUTHRL.marker} {q.person}"} for q in fresh]
    texts = responses(model, tokenizer, [r["prompt"] for r in rows], temperature=temperature)
    closed = [decode_row({**r, "response": t}) for r, t in zip(rows, texts, strict=True)]
    names = ("accuracy", "hallucination", "truthfulness")
    values = truthrl_measures(closed)
    figures |= {f"{name} without documents": values[name] for name in names}
    return figures | majority(sample(fresh[:GROUPS], samples=VOTES) if temperature else [])


def majority(samples: Sequence[Any]) -> Figures:
    """Return the shares of hallucinations and abstentions among the majority votes.

    Greedy decoding gives equal responses, so that `samples` is empty and the shares are NaN.
    """
    from rag_rewards.metrics.metric import AnswerCache
    from rag_rewards.metrics.truth import MajorityAtK

    figures = {}
    for k in (1, VOTES):
        metric = MajorityAtK(k, reads="box")
        gauge = metric.gauge(AnswerCache())
        marks = [gauge(each) for each in samples]
        parts = [metric.fold(marks[i : i + VOTES]) for i in range(0, len(marks), VOTES)]
        sums: Counter[str] = sum(map(Counter, parts), Counter())
        values = metric.values(sums)
        for name in ("hallucination", "abstention"):
            share = values[name]
            figures[f"{name} of majority@{k}"] = math.nan if share is None else share
    return figures


def variant(name: str, reward: Any = None, **more: Any) -> Variant:
    steps = SFT_STEPS if "train" in more else STEPS
    return Variant(name, reward, steps, measure=measure_settings, is_plotted=False, **more)


VARIANTS = (
    variant("prompting"),
    variant("SFT", train=partial(fine_tuned, knows_limits=False)),
    variant("R-Tuning", train=partial(fine_tuned, knows_limits=True)),
    variant("TruthRL, binary", reward("binary")),
    variant("TruthRL", reward("ternary")),
)
EXPERIMENT = Experiment(
    name="truthrl_methods",
    title="TruthRL: baselines, majority votes and judges",
    form="truthrl",
    variants=VARIANTS,
    columns=(
        "accuracy",
        "hallucination",
        "truthfulness",
        "accuracy without documents",
        "hallucination without documents",
        "truthfulness without documents",
        "strict judge",
        "lenient judge",
        "hallucination of majority@1",
        "abstention of majority@1",
        f"hallucination of majority@{VOTES}",
        f"abstention of majority@{VOTES}",
    ),
    panels=(),
    base="committed",
    fresh=400,
    notes=f"""
`prompting` is the base model. SFT fine-tunes it on gold answers, also of questions that no document
answers. R-Tuning fine-tunes it to abstain on the questions that 16 samples of the base do not
answer correctly. The supervised trainings use 480 questions for 3 epochs, and the GRPO runs 480
questions with 8 responses each.

- The three columns "without documents" measure the same policies, which are trained with
  documents, with prompts that contain only the question (Table 1).
- `strict judge` and `lenient judge` are the truthfulness under two judges with errors. The strict
  judge rejects 10% of the correct answers, and the lenient judge accepts 10% of the wrong answers.
  `truthfulness` is that under the exact match, which makes no errors in this world (Table 6).
- The last four columns are those of the answer that most of 1 or 16 sampled responses have, for 60
  questions (Figure 2). Greedy responses are equal, so that they have no votes.

{steps_text(VARIANTS)}

[The five papers](../../../docs/papers.md) compares these results with the claims of the paper.
""",
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
