"""Measure the time that a recipe of rules adds to a rollout in verl's reward loop.

    build/trainers/verl/bin/python benchmarks/trainers/verl_rewards.py

The benchmark runs the real loop under Ray with one reward worker. The reference is verl's naive
manager with a function that returns a constant. Its time is that of verl itself, which includes the
decoding of the tokens. The manager of this package also reads the row of the data set and scores
the response. A response has 1.7 KB.
"""

import argparse
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["RAY_AUTH_MODE"] = "disabled"
HERE = Path(__file__).resolve()
sys.path.append(str(HERE.parents[1]))
sys.path.append(str(HERE.parents[2] / "tests" / "trainers" / "verl"))

import ray  # noqa: E402
import verl  # noqa: E402
from reward_batches import ResponseRow, batch_of, compose_config, saved_tokenizer  # noqa: E402
from rollouts import prose, rollouts  # noqa: E402
from verl.experimental.reward_loop.reward_loop import RewardLoopManager  # noqa: E402

RESULT = HERE.parents[1] / "results" / "trainers-verl.md"
KWARGS = "+reward.custom_reward_function.reward_kwargs"
TARGET_MS, BYTES = 1.0, 1_700
RECIPES = {
    "naive-grpo": (),
    "arena": (),
    "truthrl": ("settings.verifier=exact",),
    "ground-grpo": ("settings.citation.judge_by=gold",),
    "arena, hardened": ("hardened=true",),
}
CONSTANT = (
    "def compute_score(data_source, solution_str, ground_truth, extra_info):\n    return 0.0\n"
)


def sample_rows(style: str, count: int) -> Iterator[ResponseRow]:
    """Yield rows in verl's columns, with responses of 1.7 KB in a style."""
    rng = random.Random(7)
    gold = ("answers", "supporting", "answerable", "out_of_knowledge")
    for i, row in enumerate(rollouts(style, count)):
        first, tag, rest = row["response"].partition(">")
        missing = max(0, BYTES - len(row["response"]))
        filled = prose(rng, missing // 5 + 20)[:missing]
        extra = {"index": i, "question": row["question"], "documents": row.get("documents")}
        truth = {name: row[name] for name in gold if row.get(name) is not None}
        yield ResponseRow(first + tag + filled + rest, truth, extra)


class Loop(RewardLoopManager):
    """verl's loop with an unnamed worker, so that two loops can run side by side."""

    def _init_reward_loop_workers(self) -> None:
        self.reward_loop_workers = [self.reward_loop_workers_class.remote(self.config, None)]

    def seconds(self, data: Any) -> float:
        started = time.perf_counter()
        self.compute_rm_score(data)
        return time.perf_counter() - started

    def end(self) -> None:
        ray.kill(self.reward_loop_workers[0])


def milliseconds(reference: Loop, loop: Loop, data: Any, repeats: int) -> tuple[float, float]:
    """Return the shortest time per rollout of both loops. The first run is a warm-up."""
    runs = [(reference.seconds(data), loop.seconds(data)) for _ in range(repeats + 1)][1:]
    base, own = (min(times) / len(data) * 1000 for times in zip(*runs, strict=True))
    return base, own


def table(count: int, repeats: int) -> list[str]:
    lines = [
        "| recipe | naive with a constant | rag_rewards | difference | ratio | target | met |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer = saved_tokenizer(folder)
        constant = folder / "constant.py"
        constant.write_text(CONSTANT)
        reference = Loop(compose_config(folder, f"reward.custom_reward_function.path={constant}"))
        for recipe, flags in RECIPES.items():
            plain = recipe.partition(",")[0]
            data = batch_of(tokenizer, list(sample_rows(plain, count)))
            config = compose_config(
                folder,
                "reward.reward_manager.name=rag_rewards",
                f"{KWARGS}.recipe={plain}",
                *(f"{KWARGS}.{flag}" for flag in flags),
            )
            loop = Loop(config)
            base, own = milliseconds(reference, loop, data, repeats)
            loop.end()
            is_met = "yes" if own - base < TARGET_MS else "NO"
            lines.append(
                f"| {recipe} | {base:.3f} ms | {own:.3f} ms | {own - base:+.3f} ms "
                f"| {own / base:.2f} × | < {TARGET_MS:.0f} ms | {is_met} |"
            )
            print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        lines = table(arguments.count, arguments.repeats)
    finally:
        ray.shutdown()
    about = (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, load {load:.1f} at the "
        f"start. CPython {platform.python_version()}; verl {verl.__version__}. One reward worker, "
        f"{arguments.count} rollouts per batch, responses of 1.7 KB, best of {arguments.repeats}."
    )
    RESULT.write_text(
        "\n".join(["# Time of rewards in verl's reward loop", "", about, "", *lines, ""])
    )


if __name__ == "__main__":
    main()
