"""The arms of the tiny search world, and the figures of their comparison."""

from __future__ import annotations

import importlib.util
import json
import random
from pathlib import Path

import pytest
from tiny_search.arms import ARMS, PermutedTurns, arm, permute

from rag_rewards.reward import Batch
from rag_rewards.rollout import Rollout, Score

FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "search_agents.py"


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("search_agents", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_permutation_moves_process_rewards_and_nothing_else():
    turns = [(0.1, None, 1.0), (0.2, 0.3, 0.0), (0.5,), ()]
    results = {tuple(permute(turns, random.Random(seed))) for seed in range(50)}
    assert len(results) == 6
    for result in results:
        assert [len(entries) for entries in result] == [3, 3, 1, 0]
        assert sorted([result[0][0], *result[1][:2]]) == [0.1, 0.2, 0.3]
        assert (result[0][1], result[0][2], result[1][2], result[2]) == (None, 1.0, 0.0, (0.5,))


def test_a_permuted_reward_keeps_each_group_and_its_sums():
    class Given:
        name, scope = "given", "rollout"
        rows = ((0.1, 1.0), (0.2, 0.0), (0.7, 0.0), (0.9, 1.0))

        def needs(self, rollout):
            return []

        def __call__(self, rollouts):
            return [Score(sum(row), turns=row) for row in self.rows]

    rollouts = [Rollout(response=text) for text in "abcd"]
    reward = PermutedTurns(Given())
    assert reward.scope == "group"
    seen = set()
    for texts in ("abcd", "efgh", "ijkl", "mnop"):
        rollouts = [Rollout(response=text) for text in texts]
        (scores,) = [Batch(rollouts, [[0, 1], [2, 3]])(reward)]
        entries = [score.turns for score in scores]
        assert [row[-1] for row in entries] == [1.0, 0.0, 0.0, 1.0]
        assert sorted(row[0] for row in entries[:2]) == [0.1, 0.2]
        assert sorted(row[0] for row in entries[2:]) == [0.7, 0.9]
        assert [score.value for score in scores] == pytest.approx([sum(row) for row in entries])
        seen.add(tuple(entries))
    assert len(seen) > 1


def test_the_arms_have_different_names():
    names = [each.name for each in ARMS]
    assert len(set(names)) == len(names) == 8
    assert arm("coverage, return").credit == "return"


def test_a_difference_counts_beyond_two_standard_errors(benchmark):
    # Mean 0.2, standard deviation 0.1: the error is 0.1/√3 = .058.
    assert benchmark.mean_and_error([0.1, 0.2, 0.3]) == pytest.approx((0.2, 0.0577), abs=1e-4)
    assert benchmark.counts([0.1, 0.2, 0.3], 0.04)
    assert benchmark.counts([-0.1, -0.2, -0.3], 0.04)
    assert not benchmark.counts([0.0, 0.1, 0.2], 0.04)
    assert not benchmark.counts([0.03, 0.031], 0.04)


def test_differences_are_those_of_the_same_seed(benchmark):
    def figures(**values):
        return {int(seed[1:]): {"area": value} for seed, value in values.items()}

    reference = figures(s0=0.1, s1=0.5, s2=0.9)
    better = figures(s0=0.3, s1=0.7, s2=1.11)
    text = benchmark.difference(better, reference, "area", 0.04)
    assert text == "**+0.203 ± 0.003**"
    assert benchmark.difference(better, {0: reference[0]}, "area", 0.04) == "–"
    some = figures(s0=0.3, s1=0.7, s2=None)
    assert benchmark.difference(some, reference, "area", 0.04) == ("+0.200 ± 0.000 (2 of 3 seeds)")


def test_the_step_of_the_goal_is_on_the_line_between_two_points(benchmark):
    points = [(0, 0.1), (2, 0.5), (4, 0.7), (6, 0.9), (8, 0.6)]
    assert benchmark.steps_to(points, 0.8) == 5.0
    assert benchmark.steps_to(points, 0.95) is None
    assert benchmark.steps_to([(0, 0.9), (2, 0.9)], 0.8) == 0.0


def test_the_page_contains_the_stored_figures_and_the_notes(benchmark):
    if not benchmark.FILE.exists():
        pytest.skip("no complete comparison is stored")
    stored = json.loads(benchmark.FILE.read_text("utf-8"))
    assert "noisy" in stored["runs"]
    for runs in stored["runs"].values():
        assert set(runs) == {each.name for each in ARMS}
        assert all(len(results) == len(benchmark.SEEDS) for results in runs.values())
    assert benchmark.page(stored) == benchmark.FILE.with_suffix(".md").read_text("utf-8")


def test_a_stored_run_contains_what_the_page_needs(benchmark, monkeypatch, tmp_path):
    monkeypatch.setattr(benchmark, "FILE", tmp_path / "search_agents.json")
    final = {"right": 0.912345, "first query": 1.0, "second query": None, "turns": 3.0}
    run = {
        "seed": 0,
        "steps": 40,
        "seconds": 61.0,
        "versions": {"torch": "1"},
        "final": final | {"malformed turns": 0.0},
        "points": [(0, {"right": 0.1}), (2, {"right": 0.9})],
        "dead groups": [0.5, 0.25],
    }
    other = run | {"seed": 1, "points": [(0, {"right": 0.1}), (2, {"right": 0.3})]}
    benchmark.store({"noisy": {"outcome only": [run, other], "igpo, joint": [run, other]}})
    stored = json.loads(benchmark.FILE.read_text("utf-8"))
    assert stored["runs"]["noisy"]["outcome only"][0] == {
        "seed": 0,
        "steps": 40,
        "seconds": 61.0,
        "final": {**final, "right": 0.9123, "malformed turns": 0.0},
        "points": [[0, {"right": 0.1}], [2, {"right": 0.9}]],
        "dead groups": [0.5, 0.25],
    }
    text = benchmark.page(stored)
    assert "| outcome only | 1.750 (1 of 2) | 0.350 ± 0.212 | 0.912 ± 0.000 | 0.375 ± " in text
    assert "| igpo, joint | – | +0.000 ± 0.000 | +0.000 ± 0.000 |" in text
