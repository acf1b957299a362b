"""Measure the likelihoods of igpo beside naive scoring.

    python benchmarks/turn_likelihood.py                # the reference group, on this machine
    python benchmarks/turn_likelihood.py --shape tiny   # a small model, for a test

A group has 8 rollouts of one prompt with 3 searches each. The likelihood of a gold answer of 4
tokens is measured before the first turn and after each search, behind a template of 14 tokens. Both
methods use the same random weights and tokens. They run in turn, each time in a process of its own,
and the shortest time of each method counts.
"""

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from likelihood import SHAPES, Ids, make_model, naive

RESULT = Path(__file__).resolve().parent / "results" / "turn_likelihood.md"
LENGTHS = (200, 760, 1_320, 1_880)
"""Number of tokens of the prompt, and of the context after each search."""
TEMPLATE, ANSWER, GROUP = 14, 4, 8
ROUNDS = 3


def requests(vocabulary: int) -> tuple[Any, list[Any]]:
    """Return the request of the group, and one request per rollout and context for naive scoring.

    The first token after each context differs from the template.
    """
    from rag_rewards.evidence.protocols import ScoreRequest

    rng = random.Random(0)

    def some(count: int) -> tuple[int, ...]:
        return tuple(rng.randrange(1, vocabulary) for _ in range(count))

    prompt, template, answer = some(LENGTHS[0]), (0, *some(TEMPLATE - 1)), some(ANSWER)
    rollouts = [prompt + some(LENGTHS[-1] - LENGTHS[0]) for _ in range(GROUP)]
    contexts = [rollout[:length] + template for rollout in rollouts for length in LENGTHS]
    group = ScoreRequest(tuple(dict.fromkeys(contexts)), (answer,))
    return group, [ScoreRequest((context,), (answer,)) for context in contexts]


def formula() -> tuple[int, int]:
    """Return the forward tokens of naive scoring, and c_0 + Σ(c_T − c_0) + (1 + S)·(h + a − 1)."""
    tail = TEMPLATE + ANSWER - 1
    plain = GROUP * sum(length + tail for length in LENGTHS)
    searches = GROUP * (len(LENGTHS) - 1)
    return plain, LENGTHS[0] + GROUP * (LENGTHS[-1] - LENGTHS[0]) + (1 + searches) * tail


def run_method(method: str, shape: str) -> dict[str, Any]:
    """Return the seconds of the processor, the forward tokens and the values of a method."""
    model = make_model(shape, "float32", "cpu")
    group, single = requests(SHAPES[shape]["vocab_size"])
    if method == "ours":
        from rag_rewards.backends.transformers import TransformersPolicy

        policy = TransformersPolicy(model, Ids(), token_budget=16_384)
        policy.score_sync([single[0]])  # chooses the method of scoring
        start = time.process_time()
        answer = policy.score_sync([group])[0]
        seconds = time.process_time() - start
        if isinstance(answer, Exception):
            raise answer
        tokens = answer.computed
        by_context = {group.contexts[c]: list(v) for (c, _), v in answer.logprobs.items()}
    else:
        naive(model, single[0], True)
        start = time.process_time()
        by_context = {each.contexts[0]: naive(model, each, True)[0, 0] for each in single}
        seconds = time.process_time() - start
        tokens = sum(len(each.contexts[0]) + ANSWER - 1 for each in single)
    ordered = [by_context[context] for context in group.contexts]
    return {"seconds": seconds, "tokens": tokens, "values": ordered}


def spawn(method: str, shape: str) -> dict[str, Any]:
    """Return the result of a method in a process of its own, on one core."""
    command = [sys.executable, __file__, "--one", method, "--shape", shape]
    process = subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        timeout=3_600,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    result: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    print(f"  {method}: {result['seconds']:.1f} s", file=sys.stderr, flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="100m", help="shape of the model")
    parser.add_argument("--one", help="run one method and print its result")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(run_method(options.one, options.shape)))
        return
    runs = [(spawn("naive", options.shape), spawn("ours", options.shape)) for _ in range(ROUNDS)]
    plain, ours = (
        min(of_method, key=lambda run: run["seconds"]) for of_method in zip(*runs, strict=True)
    )
    pairs = zip(plain["values"], ours["values"], strict=True)
    worst = max(abs(a - b) for x, y in pairs for a, b in zip(x, y, strict=True))
    expected = formula()
    if (plain["tokens"], ours["tokens"]) != expected or not worst < 1e-4:
        raise SystemExit(f"wrong: {plain['tokens']}, {ours['tokens']} tokens, {worst} nats apart")
    text = page(options.shape, plain, ours, worst)
    print(text)
    if options.shape == "100m":
        RESULT.write_text(text, encoding="utf-8")


def page(shape: str, plain: dict[str, Any], ours: dict[str, Any], worst: float) -> str:
    """Return the page with the results."""
    rows = "\n".join(
        f"| {name} | {run['tokens']:,} | {run['seconds']:.1f} |"
        for name, run in (("naive", plain), ("ours", ours))
    )
    lengths = ", ".join(f"{length:,}" for length in LENGTHS)
    return f"""# Likelihoods of igpo

One group of {GROUP} rollouts with {len(LENGTHS) - 1} searches each, contexts of {lengths} tokens, a
template of {TEMPLATE} tokens and a gold answer of {ANSWER} tokens. Random model of the shape
{shape}, float32, on one core of a CPU ({platform.machine()}). The times are processor times, the
shortest of {ROUNDS} runs of each method. The runs of the two methods alternate.

`naive` scores each context separately, with logits only at the tokens of the answer. `ours` is the
policy with transformers of this package. It computes shared tokens once, and the logits of many
contexts at a time.

| method | forward tokens | seconds |
| --- | --- | --- |
{rows}

`ours` is {plain["seconds"] / ours["seconds"]:.2f} times faster and computes \
{plain["tokens"] / ours["tokens"]:.1f} times fewer tokens. Both numbers of tokens are equal
to their formulas. The largest difference of two log-probabilities is {worst:.1g} nats.
`python benchmarks/turn_likelihood.py` measures this again.
"""


if __name__ == "__main__":
    main()
