"""Replay without a model: the evidence of a run with models, stored in its scored rows."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from rag_rewards import BackendError
from rag_rewards.evidence.protocols import Models
from rag_rewards.loading import RecipeSpec
from rag_rewards.rollout import EVIDENCE_FIELDS
from rag_rewards.rows import Chunk
from rag_rewards.scorer import Scorer
from rag_rewards.scoring.replay import ReplayResult, Variation, replay
from rag_rewards.testing import TableJudge, TablePolicy

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(name: str) -> list[dict[str, Any]]:
    """Return the rows of an example without their evidence, with the text of each reply."""
    rows = []
    for line in (EXAMPLES / f"{name}.jsonl").read_text().splitlines():
        row = {k: v for k, v in json.loads(line).items() if k not in EVIDENCE_FIELDS}
        for turn in row.get("turns", ()):
            if turn.get("results") is not None:
                texts = " ".join(result["text"] for result in turn["results"])
                turn.setdefault("observation", f"<information>{texts}</information>")
        rows.append(row)
    return rows


def score(
    rows: list[dict[str, Any]], recipe: str, models: Models, **settings: Any
) -> list[dict[str, Any]]:
    """Return scored rows with their evidence; the rows are one group."""
    scorer = Scorer.load(recipe, settings, models=models, keep_evidence=True)
    lines = [json.dumps(row).encode() for row in rows]
    numbers = list(range(1, len(lines) + 1))
    scored = scorer.score_rows(Chunk(lines=lines, numbers=numbers, sizes=[len(lines)]))
    assert not scored.errors, scored.errors
    return [json.loads(line) for line in scored.output.splitlines()]


def replayed(path: Path, rows: list[dict[str, Any]], **settings: Any) -> ReplayResult:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return replay(str(path), Variation(RecipeSpec(settings=settings), {}), sort=True)


def mean(rows: list[dict[str, Any]]) -> float:
    return math.fsum(row["reward"] for row in rows) / len(rows)


def policy() -> TablePolicy:
    """Return a policy for which each context and answer has its own likelihood."""
    return TablePolicy(
        lambda context, answer: [-1 / (1 + (sum(context) + 7 * i) % 97) for i in range(len(answer))]
    )


def judge() -> TableJudge:
    """Return a judge with verdicts and names that depend on the question."""
    return TableJudge(
        lambda question: int(sum(map(ord, question.kind + question.response)) % 3 > 0),
        entities=lambda question: dict.fromkeys(question.placeholders, "Bergen"),
    )


RUNS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "igpo": ("igpo", {}, {"gain.kind": "log"}),
    "igpo without hits": ("igpo", {"gain.baseline": "empty"}, {"gain.weight": 0.5}),
    "igpo, the best alias": ("igpo", {"gain.alias": "best"}, {"gain.alias": "first"}),
    "carr": ("carr", {}, {"alpha": 0.5}),
    "binary-rar": ("binary-rar", {}, {"malformed_penalty": 0.5}),
    "truthrl with a judge": ("truthrl", {"verifier": "judge"}, {"scheme": "binary"}),
}


@pytest.mark.parametrize("name", RUNS)
def test_replay_reproduces_the_rewards_of_a_run_with_models(name: str, tmp_path: Path) -> None:
    recipe, settings, changes = RUNS[name]
    models = Models(policy=policy(), judge=judge())
    rows = example(recipe)
    scored = score(rows, recipe, models, **settings)
    again = score(rows, recipe, models, **settings | changes)
    result = replayed(tmp_path / "rows.jsonl", scored, **changes)
    assert (result.rows, result.errors) == (len(rows), 0)
    assert result.means["reward"] == pytest.approx((mean(scored), mean(again)), abs=1e-12)
    before = {row["id"]: row["reward"] for row in scored}
    after = {row["id"]: row["reward"] for row in again}
    assert result.changed == sum(before[i] != after[i] for i in before)
    for change in result.most_changed:
        assert change.before == pytest.approx(before[change.id], abs=1e-12)
        assert change.after == pytest.approx(after[change.id], abs=1e-12)


MISSING = {
    "igpo": ("igpo", {}, "turn_logprobs", {}, "turn_logprobs: missing"),
    "igpo without hits": (
        "igpo",
        {},
        "",
        {"gain.baseline": "empty"},
        "turn_logprobs: missing; add `empty`",
    ),
    "carr, verdicts": ("carr", {}, "verdicts", {}, "verdicts.outcome: missing"),
    "carr, entities": ("carr", {}, "entities", {}, "entities: missing"),
    "truthrl": ("truthrl", {"verifier": "judge"}, "verdicts", {}, "verdicts.outcome: missing"),
}


@pytest.mark.parametrize("name", MISSING)
def test_missing_evidence_is_an_error_that_names_the_way(name: str, tmp_path: Path) -> None:
    recipe, settings, field, changes, words = MISSING[name]
    scored = score(example(recipe), recipe, Models(policy=policy(), judge=judge()), **settings)
    for row in scored:
        row.pop(field, None)
    result = replayed(tmp_path / "rows.jsonl", scored, **changes)
    assert result.errors > 0
    assert words in result.first_error
    assert "score the rows with a model and --keep-evidence" in result.first_error


def test_a_missing_verdict_of_one_row_leaves_the_others(tmp_path: Path) -> None:
    rows = example("truthrl")
    for position, row in enumerate(rows):
        row["group"] = str(position)
    scored = score(rows, "truthrl", Models(judge=judge()), verifier="judge")
    asked = [row for row in scored if row.get("verdicts")]
    del asked[0]["verdicts"]
    result = replayed(tmp_path / "rows.jsonl", scored)
    assert (result.rows, result.errors) == (len(rows) - 1, 1)


def test_a_judge_that_failed_leaves_no_verdict() -> None:
    """A failed request is an error of the run, so that a replay cannot read it as a verdict."""
    down = TableJudge(lambda question: BackendError("down"))
    with pytest.raises(AssertionError, match="down"):
        score(example("truthrl"), "truthrl", Models(judge=down), verifier="judge")
