"""Measure the likelihoods of igpo beside naive scoring.

    python benchmarks/turn_likelihood.py                # the reference group, on this machine
    python benchmarks/turn_likelihood.py --shape tiny   # a small model, for a test

The likelihood of a gold answer of 4 tokens is measured before the first turn and after each search,
behind a template of 14 tokens. The reference group has 8 rollouts of one prompt with 3 searches
each. Other groups have more and shorter turns. Both methods use the same random weights and tokens.
They run in turn, each time in a process of its own, and the shortest time of each method counts.
"""

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from likelihood import SHAPES, Ids, make_model, naive

RESULT = Path(__file__).resolve().parent / "results" / "turn_likelihood.md"
TEMPLATE, ANSWER = 14, 4


@dataclass(frozen=True)
class Group:
    """A group of rollouts: a prompt of 200 tokens, then searches with their results.

    rollouts  number of rollouts
    searches  number of searches of each rollout
    turn      number of tokens of each search with its results
    """

    rollouts: int = 8
    searches: int = 3
    turn: int = 560
    prompt: int = 200

    def __str__(self) -> str:
        return f"{self.rollouts} × {self.searches} × {self.turn}"

    def lengths(self) -> list[int]:
        """Return the number of tokens of the prompt, and of the context after each search."""
        return [self.prompt + number * self.turn for number in range(self.searches + 1)]

    def requests(self, vocabulary: int) -> tuple[Any, list[Any]]:
        """Return the request of the group, and a request per rollout and context for naive scoring.

        The first token after each context differs from the template.
        """
        from rag_rewards.evidence.protocols import ScoreRequest

        rng = random.Random(0)

        def some(count: int) -> tuple[int, ...]:
            return tuple(rng.randrange(1, vocabulary) for _ in range(count))

        prompt, template, answer = some(self.prompt), (0, *some(TEMPLATE - 1)), some(ANSWER)
        rollouts = [prompt + some(self.searches * self.turn) for _ in range(self.rollouts)]
        contexts = [rollout[:end] + template for rollout in rollouts for end in self.lengths()]
        group = ScoreRequest(tuple(dict.fromkeys(contexts)), (answer,))
        return group, [ScoreRequest((context,), (answer,)) for context in contexts]

    def formula(self) -> tuple[int, int]:
        """Return the forward tokens of naive, and c_0 + Σ(c_T − c_0) + (1 + S)·(h + a − 1)."""
        tail, lengths = TEMPLATE + ANSWER - 1, self.lengths()
        plain = self.rollouts * sum(length + tail for length in lengths)
        contexts = 1 + self.rollouts * self.searches
        return plain, lengths[0] + self.rollouts * (lengths[-1] - lengths[0]) + contexts * tail


GROUPS = (Group(), Group(2, 20, 100), Group(1, 100, 10))


def run_method(method: str, group_of: Group, shape: str) -> dict[str, Any]:
    """Return the seconds of the processor, the forward tokens and the values of a method."""
    model = make_model(shape, "float32", "cpu")
    group, single = group_of.requests(SHAPES[shape]["vocab_size"])
    if method == "ours":
        from rag_rewards.models.transformers import TransformersPolicy

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


def spawn(method: str, group: Group, shape: str) -> dict[str, Any]:
    """Return the result of a method in a process of its own, on one core."""
    arguments = json.dumps([method, asdict(group), shape])
    command = [sys.executable, __file__, "--one", arguments]
    process = subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        timeout=3_600,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    result: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    print(f"  {group}, {method}: {result['seconds']:.1f} s", file=sys.stderr, flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="100m", help="shape of the model")
    parser.add_argument("--rounds", type=int, default=3, help="number of runs of each method")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        method, group, shape = json.loads(options.one)
        print(json.dumps(run_method(method, Group(**group), shape)))
        return
    text = page(options.shape, options.rounds, [measure(group, options) for group in GROUPS])
    print(text)
    if options.shape == "100m":
        RESULT.write_text(text, encoding="utf-8")


def measure(group: Group, options: argparse.Namespace) -> str:
    """Return a row of the table for a group."""
    runs = [
        (spawn("naive", group, options.shape), spawn("ours", group, options.shape))
        for _ in range(options.rounds)
    ]
    plain, ours = (
        min(of_method, key=lambda run: run["seconds"]) for of_method in zip(*runs, strict=True)
    )
    pairs = zip(plain["values"], ours["values"], strict=True)
    worst = max(abs(a - b) for x, y in pairs for a, b in zip(x, y, strict=True))
    if (plain["tokens"], ours["tokens"]) != group.formula() or not worst < 1e-4:
        raise SystemExit(f"wrong: {plain['tokens']}, {ours['tokens']} tokens, {worst} nats apart")
    return (
        f"| {group} | {plain['tokens']:,} | {ours['tokens']:,} "
        f"| {plain['tokens'] / ours['tokens']:.1f} × | {plain['seconds']:.1f} "
        f"| {ours['seconds']:.1f} | {plain['seconds'] / ours['seconds']:.2f} × | {worst:.1g} |"
    )


def page(shape: str, rounds: int, rows: list[str]) -> str:
    """Return the page with the results."""
    lines = "\n".join(rows)
    return f"""# Likelihoods of igpo

Groups of rollouts × searches × tokens of a search with its results, after a prompt of 200 tokens.
A template of {TEMPLATE} tokens and a gold answer of {ANSWER} tokens follow each context. Random
model of the shape {shape}, float32, on one core of a CPU ({platform.machine()}). The times are
processor times, the shortest of {rounds} of each method. The runs of the two methods alternate.

`naive` scores each context separately, with logits only at the tokens of the answer. `ours` is the
policy with transformers of this package. It computes shared tokens once, and the logits of many
contexts at a time. Both numbers of tokens are equal to their formulas. The last column has the
largest difference of two log-probabilities in nats.

| group | naive, tokens | ours, tokens | ratio | naive, s | ours, s | ratio | difference |
| --- | --- | --- | --- | --- | --- | --- | --- |
{lines}

`python benchmarks/turn_likelihood.py` measures this again.
"""


if __name__ == "__main__":
    main()
