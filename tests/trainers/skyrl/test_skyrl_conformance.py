"""Golden groups in SkyRL: its generator, its environments and the advantages of its trainer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from rag_rewards_adapters.skyrl import SkyRLRecipe
from skyrl_runs import GIVEN, config, run
from skyrl_runs import batch_of as batch

from rag_rewards.errors import DataError, UsageError
from rag_rewards.training.credit import METHODS

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "docs"))
from build_matrix import cell
from golden import (
    GOLD,
    GROUPS,
    MODELS,
    RECIPES,
    EvidenceGatherer,
    Group,
    advantages,
    bare,
    centred,
)
from turn_groups import SEARCHES

TOLERANCE = {"abs": 2e-5, "rel": 2e-5}


def scored(group: Group, settings: Any, **options: Any) -> tuple[dict[str, Any], list[float]]:
    """Return the output of the generator for a golden group, and an advantage per rollout."""
    recipe = SkyRLRecipe(group.recipe, settings=dict(group.settings), **options)
    recipe._unscored.handle([])  # the first batch of a run raises errors
    recipe.scorer.gatherer, recipe.scorer.models = EvidenceGatherer(group), MODELS
    rows, texts, reasons, env_class, opening = [], [], [], "rag", ""
    for row in group.rows:
        fields = {name: row[name] for name in ("id", *GOLD) if name in row}
        if isinstance(row["response"], str):
            texts.append([row["response"]])
        else:
            first, tool, last = (message["content"] for message in row["response"])
            texts.append([first, last])
            env_class, fields["observation"] = GIVEN, tool
        opening = row.get("response_prefix", "")
        reasons.append(row.get("finish_reason", "stop"))
        rows.append(fields)
    output, data = run(
        recipe, texts, batch(rows, env_class), settings, reasons=reasons, opening=opening
    )
    own = [[a for a, m in zip(*pair, strict=True) if m] for pair in _pairs(data)]
    assert all(len(set(values)) <= 1 for values in own)
    return output, [values[0] if values else 0.0 for values in own]


def _pairs(data: Any) -> Any:
    return zip(data["advantages"].tolist(), data["loss_mask"].tolist(), strict=True)


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.id)
def test_golden_rewards_and_advantages(group: Group) -> None:
    unscaled = config(**{"trainer.algorithm.grpo_norm_by_std": False})
    output, centered = scored(group, unscaled)
    for reward, given, mask in zip(
        group.rewards, output["rewards"], output["loss_masks"], strict=True
    ):
        assert any(mask) == (reward is not None)
        if reward is not None:
            assert given == pytest.approx(reward)
    is_alone = len(group.rows) == 1  # SkyRL returns the reward itself
    expected = list(group.rewards) if is_alone else centred(group)
    assert centered == pytest.approx(expected, **TOLERANCE)
    not_scored = output["rollout_metrics"][f"{group.recipe}/not_scored"]
    assert not_scored == list(group.rewards).count(None)
    if group.whole and not is_alone:
        _, scaled = scored(group, config())
        assert scaled == pytest.approx(advantages(group, epsilon=1e-6), **TOLERANCE)


@pytest.mark.parametrize(
    "group", [g for g in GROUPS if g.recipe == "lear" and len(g.rows) > 1], ids=lambda g: g.case
)
def test_the_advantage_of_lear(group: Group) -> None:
    unscaled = config(**{"trainer.algorithm.grpo_norm_by_std": False})
    _, values = scored(group, unscaled, std_floor=0.1)
    assert values == pytest.approx(advantages(group, std_floor=0.1), **TOLERANCE)


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_column_of_skyrl(recipe: str) -> None:
    entry = cell(recipe, "skyrl")
    rows = bare(recipe)
    made = SkyRLRecipe(recipe)
    texts = [[row["response"]] for row in rows]
    given = batch([{**row, "response": "ignored"} for row in rows], "rag")
    if entry.state == "works":
        output, _ = run(made, texts, given, config())
        assert all(isinstance(reward, float) for reward in output["rewards"])
        return
    with pytest.raises(DataError, match=r"nli|verdicts|logprobs|masked|entities"):
        run(made, texts, given, config())


# --- turns ---------------------------------------------------------------------------------------


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "skyrl_corpus.py").write_text(
        "def search(query):\n"
        "    if query == 'down':\n"
        "        raise TimeoutError('no reply')\n"
        "    return [{'title': 'Paris', 'text': f'About {query}.'}]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return "skyrl_corpus:search"


GROUP_OF_THREE = [
    ["<search>river</search>", "<answer>Seine</answer>"],
    ["<answer>Rhone</answer>"],
    ["<search>a</search>", "<search>b</search>", "<answer>Loire</answer>"],
]


@pytest.mark.parametrize("method", ["return", "igpo", "mt_grpo", "gdpo"])
@pytest.mark.parametrize("is_chat", [False, True])
def test_a_search_agent_gets_an_advantage_for_each_turn(
    corpus: str, is_chat: bool, method: str
) -> None:
    recipe = SkyRLRecipe(SEARCHES, credit=method, environment={"retriever": corpus})
    settings = config(**{"generator.use_conversation_multi_turn": is_chat})
    rows = [{"answers": ["Seine"]}] * 3
    output, data = run(recipe, GROUP_OF_THREE, batch(rows, "rag-search"), settings)
    entries = [[0.5, 1.0], [0.0], [0.5, 0.5, 0.0]]
    expected = METHODS[method](entries)
    for i, (values, mask) in enumerate(_pairs(data)):
        runs = _runs(values, mask)
        assert [turn[0] for turn in runs] == pytest.approx(expected[i], abs=1e-6)
        assert all(len(set(turn)) == 1 for turn in runs)
        assert sum(output["rewards"][i]) == pytest.approx(sum(entries[i]))


def _runs(values: list[float], mask: list[float]) -> list[list[float]]:
    turns: list[list[float]] = []
    before = 0.0
    for value, own in zip(values, mask, strict=True):
        if own and not before:
            turns.append([])
        if own:
            turns[-1].append(value)
        before = own
    return turns


def test_a_failed_retriever_leaves_the_rollout_unscored(corpus: str) -> None:
    recipe = SkyRLRecipe(SEARCHES, credit="return", environment={"retriever": corpus})
    recipe._unscored.handle([])
    texts = [["<search>down</search>"], *GROUP_OF_THREE[1:]]
    rows = [{"answers": ["Seine"]}] * 3
    output, data = run(recipe, texts, batch(rows, "rag-search"), config())
    assert not any(output["loss_masks"][0])
    assert not any(data["advantages"].tolist()[0])


def test_an_invalid_row_ends_the_first_batch() -> None:
    with pytest.raises(DataError, match=r"row 0 of the batch \(question 'q'\): answers: missing"):
        run(SkyRLRecipe("arena"), [["x"]], batch([{"question": "q"}], "rag"), config())


def test_settings_that_change_rewards_are_refused() -> None:
    settings = config(**{"generator.zero_reward_on_non_stop": True})
    with pytest.raises(UsageError, match="zero_reward_on_non_stop"):
        run(SkyRLRecipe("arena"), [["x"]], batch([{}], "rag"), settings)
