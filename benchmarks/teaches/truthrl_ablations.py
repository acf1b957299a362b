"""More ablations of TruthRL: online and offline training, verifiers, rewards of the reasoning."""

import json
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from experiment import Experiment, Figures, Variant, main
from supervised import prefer

STEPS = 60
SAMPLES = 8
PAIRS = 32
"""Pairs of a step of DPO."""
DPO_RATE = 1e-4
OTHER_FORM = 0.9
"""Share of gold answers that are not written like the answer of a response."""


def reward(start: Path, **settings: Any) -> Mapping[str, Any]:
    """Return the recipe with the oracle of the tiny world as judge."""
    from rag_rewards.evidence.protocols import Models
    from rag_rewards.tiny_world.evidence import oracle

    return {"recipe": "truthrl", "settings": settings, "models": Models(judge=oracle())}


def with_reasoning(combine: str) -> Any:
    return partial(reward, reasoning={"enabled": True, "combine": combine})


def columns(
    start: Path, questions: Sequence[Any], *, other_form: float = 0.0
) -> list[dict[str, Any]]:
    """Return the prompt as the question, which the oracle reads, and the gold answers."""
    from rag_rewards.tiny_world.formats import TRUTHRL

    rng = random.Random("forms")
    rows = []
    for each in questions:
        gold = f"{each.answer} flower" if rng.random() < other_form else each.answer
        rows.append({"question": TRUTHRL.row(each)["prompt"], "answers": [[gold]]})
    return rows


def trained_with_dpo(start: Path, run: Any, *, iterations: int, parts: int) -> tuple[Any, Any]:
    """Train with DPO on pairs of the policy's own responses.

    The questions are those of the GRPO runs, in `parts` equal parts. Each iteration samples
    responses to the next part from the current policy and trains on their pairs for one epoch.
    """
    from rag_rewards.tiny_world.model import load

    model, tokenizer = load(start)
    questions = replace(run, steps=STEPS).questions
    size = len(questions) // parts
    for i in range(iterations):
        rows = preference_pairs(model, tokenizer, questions[i * size : (i + 1) * size], i)
        model = prefer(
            model,
            tokenizer,
            rows,
            run.seed,
            num_train_epochs=1,
            per_device_train_batch_size=PAIRS,
            learning_rate=DPO_RATE,
        )
    return model, tokenizer


def preference_pairs(
    model: Any, tokenizer: Any, questions: Sequence[Any], seed: int
) -> list[dict[str, str]]:
    """Return one pair per question that has one, as `rag-rewards select dpo` builds it."""
    from rag_rewards.datasets.gold import Problem
    from rag_rewards.selection.questions import Question, ScoredRollout
    from rag_rewards.selection.training_sets import ChatMaker
    from rag_rewards.tiny_world.formats import TRUTHRL
    from rag_rewards.tiny_world.generation import rollouts
    from rag_rewards.tiny_world.measures import score_all

    samples = rollouts(
        model, tokenizer, TRUTHRL, questions, temperature=1.0, samples=SAMPLES, seed=seed
    )
    scores = score_all("truthrl", samples, {"verifier": "exact"})
    scored = [
        ScoredRollout(i, b"{}", sample, score, score.correct == 1)
        for i, (sample, score) in enumerate(zip(samples, scores, strict=True))
    ]
    maker = ChatMaker("dpo", recipe="truthrl", seed=seed)
    pairs = []
    for start in range(0, len(scored), SAMPLES):
        group = tuple(scored[start : start + SAMPLES])
        line = json.dumps({"group": group[0].rollout.group}).encode()
        pair = maker(Question((start, line), group[0].rollout, group))
        if not isinstance(pair, Problem):
            pairs.append({name: pair[name] for name in ("prompt", "chosen", "rejected")})
    return pairs


def measure_reasoning(
    model: Any, tokenizer: Any, fresh: Sequence[Any], temperature: float, start: Path
) -> Figures:
    """Return the share of responses with sound reasoning, according to the oracle."""
    from rag_rewards.evidence.protocols import JudgeQuestion
    from rag_rewards.tiny_world.evidence import verdict
    from rag_rewards.tiny_world.formats import TRUTHRL
    from rag_rewards.tiny_world.generation import responses

    prompts = [TRUTHRL.row(each)["prompt"] for each in fresh]
    texts = responses(model, tokenizer, prompts, temperature=temperature)
    verdicts = [
        verdict(JudgeQuestion("reasoning", prompt, text))
        for prompt, text in zip(prompts, texts, strict=True)
    ]
    return {"reasoning": sum(verdicts) / len(verdicts)}


def variant(name: str, reward: Any, **more: Any) -> Variant:
    return Variant(name, reward, **{"steps": STEPS, "measure": measure_reasoning, **more})


def dpo(name: str, iterations: int, parts: int) -> Variant:
    train = partial(trained_with_dpo, iterations=iterations, parts=parts)
    return variant(name, None, steps=STEPS * iterations // parts, train=train, is_plotted=False)


RULE = partial(reward, verifier="exact")
OTHER = partial(columns, other_form=OTHER_FORM)
EXPERIMENT = Experiment(
    name="truthrl_ablations",
    title="TruthRL: online and offline training, verifiers, and the reasoning",
    form="truthrl",
    variants=(
        variant("base", None),
        variant("TruthRL (GRPO, oracle)", reward, columns=columns),
        dpo("DPO", 1, 1),
        dpo("iterative DPO, 1 iteration", 1, 4),
        dpo("iterative DPO, 2 iterations", 2, 4),
        dpo("iterative DPO, 4 iterations", 4, 4),
        variant("other form, oracle", reward, columns=OTHER, is_plotted=False),
        variant("other form, exact match", RULE, columns=OTHER),
        variant(
            "multiplicative", with_reasoning("multiplicative"), columns=columns, is_plotted=False
        ),
        variant("additive", with_reasoning("additive"), columns=columns, is_plotted=False),
        variant("conditional", with_reasoning("conditional"), columns=columns, is_plotted=False),
    ),
    columns=("accuracy", "hallucination", "abstention", "truthfulness", "reasoning"),
    panels=("accuracy", "hallucination", "abstention"),
    fresh=500,
    notes="""
`reasoning` is the share of responses with sound reasoning according to the oracle of the tiny
world. The oracle is a judge without errors. It accepts a thinking section that repeats the
document about the person with its marker, or that abstains if there is no such document. The
oracle also compares the answers in all runs but "exact match". The runs have 960 questions with 8
responses each.

Online and offline training (Table 4):

- If the responses are sampled, the truthfulness is higher after GRPO (0.56) than after DPO on
  responses of the base (0.33), as in the paper.
- Iterative DPO uses a fourth of the questions in each iteration.
- The runs with two and four iterations have a fault, which `supervised.py` no longer has: from the
  second iteration on, the reference of the loss was the policy itself, in place of the policy
  before the iteration. These six runs must be repeated, and no statement follows from them. The
  other runs are not affected.
- With greedy decoding, the truthfulness is equal within the spread: 0.60 for GRPO and 0.60 for DPO.
  After DPO, the policy gives other responses a higher probability than after GRPO.
- The learning rate of DPO is 1e-4, and β is 0.1. These values were not tuned. GRPO has a learning
  rate of 5e-4.

Verifiers (Table 5):

- "Other form" means that 90% of the gold answers contain one more word than an answer of the
  policy. With the oracle as verifier, the training is identical to that with the usual gold
  answers. With exact match, the policy abstains on all questions, on every seed, because exact
  match rejects most correct answers. This is the collapse that the paper reports, in a stronger
  form.

Rewards of the reasoning (Table 8):

- The outcome reward alone improves the reasoning, as in the paper: from 0.38 to 0.77 (sampled).
  With each of the three combinations and the oracle as judge, it is at least 0.96, because the
  policy also learns the marker of the supporting document.
- The truthfulness is at most 0.013 lower with a combination, which is within the spread. In the
  paper, the additive combination has the best reasoning score and a lower truthfulness. Here, the
  additive combination also has the highest mean, within the spread of the others. A sound
  thinking section and a correct answer require the same document in this world, so that a policy
  can increase both rewards at the same time.
""",
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
