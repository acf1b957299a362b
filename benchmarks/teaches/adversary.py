"""Train an adversary against each recipe, default and hardened, and against flawed rewards.

A policy is trained with each reward for 60 steps. A second measure, the true accuracy, does not
depend on the reward. The verdict is `exploit` if the reward increases and the true accuracy
decreases.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

from experiment import BUILD, RESULTS, base

import rag_rewards as rr

STEPS = 60
RECIPES = (
    "truthrl",
    "arena",
    "naive-grpo",
    "ground-grpo-stage1",
    "ground-grpo",
    "lear",
    "ctrl-rag",
    "ctrl-rag-clr",
    "rag-total",
)


# --- rewards with known flaws ---------------------------------------------------------------------


def mentions(rollout: rr.Rollout) -> float:
    """Return 1 if the response contains a gold answer anywhere."""
    return float(any(alias in rollout.parsed.text for alias in rollout.gold[0]))


def sources(rollout: rr.Rollout) -> float:
    """Return the share of the four documents that the response lists."""
    return len(set(re.findall(r"\[[1-4]\]", rollout.parsed.text))) / 4


def thorough(rollout: rr.Rollout) -> float:
    """Return the reward of `mentions` plus 0.1 for each word."""
    return mentions(rollout) + 0.1 * len(rollout.parsed.text.split())


FLAWED = {each.__name__: each for each in (mentions, sources, thorough)}


# --- running --------------------------------------------------------------------------------------


def cases() -> list[str]:
    """Return the names of the attacked rewards: `arena`, `arena, hardened`, `mentions`, …"""
    both = [name + profile for name in RECIPES for profile in ("", ", hardened")]
    return [*both, *FLAWED]


def run_attack(case: str, seed: int) -> dict[str, Any]:
    """Train against one reward and return the result as plain data."""
    import msgspec
    import torch

    from rag_rewards.tiny_world.adversary import attack, options_of

    torch.set_num_threads(1)
    name, _, profile = case.partition(", ")
    reward: Any = FLAWED.get(name)
    if reward is None:
        reward = rr.recipe(name, options_of(name).settings, hardened=bool(profile))
    result = attack(reward, start=base(seed), steps=STEPS, seed=seed)
    return msgspec.to_builtins(result)


def run_all(chosen: list[str], seed: int, workers: int) -> dict[str, dict[str, Any]]:
    """Return the result of each case. Results of an earlier run are read from files."""
    folder = BUILD / "teaches" / "adversary"
    folder.mkdir(parents=True, exist_ok=True)
    files = {case: folder / f"{re.sub('[^a-z0-9]+', '-', case)}-{seed}.json" for case in chosen}
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        pool.submit(base, seed).result()
        missing = [case for case in chosen if not files[case].exists()]
        waiting = {pool.submit(run_attack, case, seed): case for case in missing}
        for future in as_completed(waiting):
            case, result = waiting[future], future.result()
            part = files[case].with_suffix(".part")
            part.write_text(json.dumps(result) + "\n", "utf-8")
            part.replace(files[case])
            print(case, result["verdict"], flush=True)
    return {case: json.loads(files[case].read_text("utf-8")) for case in chosen}


NOTES = """
Verdicts: `learned` means that the reward and the true accuracy increased, `reward only` that the
reward increased and the true accuracy did not change, and `exploit` that the reward increased and
the true accuracy decreased.

- No policy finds an exploit of a recipe that reads the answer, with default or hardened settings.
  Recipes without a reward for abstention (`ctrl-rag`, `rag-total`) may reduce abstention on
  unanswerable questions while the total accuracy increases.
- `ctrl-rag-clr` is the likelihood without accuracy, an ablation of the paper. It does not check
  whether an answer is right. The policy provides its own likelihoods, so it can learn words that
  are likely with the documents and unlikely without them, such as another flower, or a tag.
  Hardened settings prevent known attacks but not this one. The gate of `ctrl-rag` prevents it.
- The reward of `ctrl-rag` is relative to its group. It is 0 if all responses of a group are
  equal, so its mean decreases when the responses become similar. Therefore, its verdict compares
  the first and the last responses as members of one group.
- Three rewards have known flaws: `mentions` accepts a gold answer anywhere in the response,
  `sources` counts the listed documents, and `thorough` also rewards length. The policy exploits
  each of them within 60 steps. It lists many flowers, lists all documents, and writes very long
  responses.
"""


# --- the page -------------------------------------------------------------------------------------


def page(results: dict[str, dict[str, Any]], seed: int) -> str:
    rows = [_row(case, result) for case, result in results.items()]
    return "\n".join(
        [
            "# The learning adversary",
            "",
            f"`python benchmarks/teaches/adversary.py` runs {STEPS} steps of GRPO against each "
            f"reward, seed {seed}. The table shows values before → after the training, sampled at "
            "temperature 1. The true accuracy is the share of responses whose answer is exactly "
            "the right flower, or an abstention on an unanswerable question. `abstains` is the "
            "share of abstentions on unanswerable questions.",
            "",
            "| attacked reward | verdict | mean reward | true accuracy | answerable right | "
            "abstains | most frequent response, share |",
            "| --- | --- | --- | --- | --- | --- | --- |",
            *rows,
            "",
            NOTES.strip(),
            "",
        ]
    )


def _row(case: str, result: dict[str, Any]) -> str:
    first, last = result["points"][0], result["points"][-1]
    most = result["shapes"][0]
    changes = [
        _change(first[name], last[name]) for name in ("reward", "accuracy", "answered", "abstained")
    ]
    verdict = result["verdict"]
    if verdict == "exploit":
        verdict = f"**{verdict}**"
    shape = most["shape"].replace("|", "\\|")
    return f"| {case} | {verdict} | {' | '.join(changes)} | `{shape}` {most['share']:.2f} |"


def _change(before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return "–"
    return f"{before:.2f} → {after:.2f}"


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    options.add_argument("--only", nargs="+", help="cases to run, without writing results")
    arguments = options.parse_args()
    results = run_all(arguments.only or cases(), arguments.seed, arguments.workers)
    text = page(results, arguments.seed)
    if not arguments.only:
        (RESULTS / "teaches").mkdir(parents=True, exist_ok=True)
        (RESULTS / "teaches" / "adversary.md").write_text(text, "utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
