"""The arms of the tiny search world, and the figures of their comparison."""

from __future__ import annotations

import importlib.util
import json
import random
from pathlib import Path

import harness
import pytest
from tiny_search import page
from tiny_search.arms import ARMS, SETTINGS, PermutedTurns, arm, permute

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
    assert len(set(names)) == len(names) == 9
    assert arm("coverage, return").credit == "return"


def test_a_difference_counts_beyond_its_interval():
    # Mean 0.2, standard deviation 0.1: the error is 0.1/√3 = .058.
    assert page.mean_and_error([0.1, 0.2, 0.3]) == pytest.approx((0.2, 0.0577), abs=1e-4)
    assert page.half_width([0.1, 0.2, 0.3]) == pytest.approx(4.303 * 0.0577, abs=1e-3)
    assert not page.counts([0.1, 0.2, 0.3], 0.04)
    assert page.counts([0.1, 0.12, 0.14], 0.04)
    assert page.counts([-0.1, -0.12, -0.14], 0.04)
    assert not page.counts([0.0, 0.1, 0.2], 0.04)
    assert not page.counts([0.03, 0.031], 0.04)
    with pytest.raises(ValueError, match="1 seeds: an interval needs 2 to 10"):
        page.half_width([0.1])


def test_differences_are_those_of_the_same_seed():
    def figures(**values):
        return {int(seed[1:]): {"area": value} for seed, value in values.items()}

    reference = figures(s0=0.1, s1=0.5, s2=0.9)
    better = figures(s0=0.3, s1=0.7, s2=1.11)
    text = page.difference(better, reference, "area", 0.04)
    assert text == "**+0.203 ± 0.014**"
    assert page.difference(better, {0: reference[0]}, "area", 0.04) == "–"
    some = figures(s0=0.3, s1=0.7, s2=None)
    assert page.difference(some, reference, "area", 0.04) == ("+0.200 ± 0.000 (2 of 3 seeds)")


def test_the_step_of_the_goal_is_on_the_line_between_two_points():
    points = [(0, 0.1), (2, 0.5), (4, 0.7), (6, 0.9), (8, 0.6)]
    assert page.steps_to(points, 0.8) == 5.0
    assert page.steps_to(points, 0.95) is None
    assert page.steps_to([(0, 0.9), (2, 0.9)], 0.8) == 0.0


def runs_of(*accuracies):
    """Return runs with these final accuracies, whose area is half as large."""
    measures = {"first query": 1.0, "second query": 1.0, "turns": 3.0, "malformed turns": 0.0}
    return [
        {
            "seed": seed,
            "final": {**measures, "right": value},
            "points": [[0, {"right": 0.0}], [70, {"right": value}]],
            "dead groups": [0.8, 0.6],
        }
        for seed, value in enumerate(accuracies)
    ]


def test_advice_follows_from_intervals_of_five_seeds():
    outcome = runs_of(0.0, 0.1, 0.2, 0.3, 0.4)
    arms = {
        "better": runs_of(0.1, 0.21, 0.3, 0.39, 0.5),
        "worse": runs_of(0.0, 0.0, 0.0, 0.0, 0.1),
        "spread": runs_of(0.9, 0.0, 0.2, 0.3, 0.4),
        "close": runs_of(0.06, 0.16, 0.26, 0.36, 0.46),
    }
    stored = {"runs": {"rare": {"outcome only": outcome, **arms}}}
    text = " ".join(page.advice(stored).split())
    assert text.startswith(" ".join(page.SOME_ARM.split()))
    # Halved differences of `worse`: 0, -.05, -.1, -.15, -.15; error .0292, interval .0809.
    assert text.endswith(
        "- With a weak search engine, a policy that guesses, and groups of 4. The outcome alone "
        "leaves 70% of the groups without signal, and its final accuracy is 0.20. Larger: "
        "`better` (+0.050 ± 0.004). Smaller: `worse` (-0.090 ± 0.081). No gain of more than .04: "
        "`close` (+0.030 ± 0.000). Undecided: `spread` (+0.080 ± 0.258). Runs that stopped "
        "searching: none."
    )
    stored["runs"]["rare"] = {"outcome only": outcome, "spread": arms["spread"]}
    text = " ".join(page.advice(stored).split())
    assert text.startswith(" ".join(page.NO_ARM.split()))
    assert "all arms are undecided (1 of 1). Larger: no arm. Undecided: `spread`" in text
    outcome[0]["final"]["turns"] = 1.5
    text = " ".join(page.advice(stored).split())
    assert text.endswith("Runs that stopped searching: 1 of 5 of `outcome only`.")


def test_the_page_contains_the_stored_figures_and_the_notes(benchmark):
    stored = json.loads(benchmark.FILE.read_text("utf-8"))
    for name, runs in stored["runs"].items():
        assert list(runs) == list(SETTINGS[name].arms)
        assert all(len(results) == len(benchmark.SEEDS) for results in runs.values())
    assert page.page(stored) == benchmark.FILE.with_suffix(".md").read_text("utf-8")


def test_finished_runs_without_the_reference_do_not_change_the_stored_figures(
    benchmark, monkeypatch, tmp_path
):
    file = tmp_path / "search_agents.json"
    before = '{"versions": {}, "runs": {}}'
    file.write_text(before, "utf-8")
    monkeypatch.setattr(benchmark, "FILE", file)
    monkeypatch.setattr(benchmark, "FOLDER", tmp_path)
    monkeypatch.setattr("sys.argv", ["search_agents.py", "--finished", "--settings", "rare"])
    monkeypatch.setattr(benchmark, "picture", lambda name, runs: None)
    more = {"seconds": 1.0, "steps": 70, "versions": {"torch": "1"}}

    def finish(name):
        run = runs_of(0.2)[0] | more
        benchmark.file_of(name, "rare", 0).write_text(json.dumps(run), "utf-8")

    finish("gigpo")
    with pytest.raises(ValueError, match="no run of the reference 'outcome only'"):
        benchmark.main()
    assert file.read_text("utf-8") == before
    finish("outcome only")
    assert benchmark.main() == 0
    assert "| gigpo | – | – | – |" in (text := file.with_suffix(".md").read_text("utf-8"))
    assert "Larger: no arm. Undecided: `gigpo` (–)." in text
    assert list(json.loads(file.read_text("utf-8"))["runs"]["rare"]) == ["outcome only", "gigpo"]


def test_a_training_names_a_processor_on_any_system(monkeypatch, tmp_path):
    for text in (None, "Features : fp\n", "model name\t: CPU X\n"):
        file = tmp_path / "cpuinfo"
        if text is not None:
            file.write_text(text, "utf-8")
        monkeypatch.setattr(harness, "Path", lambda name, file=file: file)
        name, _, cores = harness.processor().rpartition(", ")
        assert name == "CPU X" if "CPU X" in (text or "") else name
        assert cores.endswith(" cores")


def test_a_stored_run_contains_what_the_page_needs(benchmark):
    final = {"right": 0.912345, "first query": 1.0, "second query": None, "turns": 3.0}
    run = {
        "seed": 0,
        "steps": 40,
        "seconds": 61.0,
        "final": final | {"malformed turns": 0.0},
        "points": [(0, {"right": 0.1}), (2, {"right": 0.9})],
        "dead groups": [0.5, 0.25],
    }
    other = run | {"seed": 1, "points": [(0, {"right": 0.1}), (2, {"right": 0.3})]}
    runs = {"outcome only": [run, other], "igpo, joint": [run, other]}
    stored = {"versions": {"noisy": {"torch": "1"}}, "runs": {"noisy": runs}}
    stored = json.loads(benchmark.text_of(stored))
    assert stored["runs"]["noisy"]["outcome only"][0] == {
        "seed": 0,
        "steps": 40,
        "seconds": 61.0,
        "final": {**final, "right": 0.9123, "malformed turns": 0.0},
        "points": [[0, {"right": 0.1}], [2, {"right": 0.9}]],
        "dead groups": [0.5, 0.25],
    }
    text = page.page(stored)
    assert "| outcome only | 1.750 (1 of 2) | 0.350 ± 0.212 | 0.912 ± 0.000 | 0.375 ± " in text
    assert "| igpo, joint | – | +0.000 ± 0.000 | +0.000 ± 0.000 |" in text
