"""The site: pages that agree with the code, and a build without warnings."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rag_rewards as rr
from rag_rewards import metrics, rewards, testing
from rag_rewards.recipes import RECIPES

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))
build_recipes = importlib.import_module("build_recipes")

# Reaching for the network, in whatever way, ends the build. With --quiet, mkdocs would not count
# its warnings.
BUILD = """
import socket, sys
def refuse(*_):
    raise OSError("the build asks the network")
socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse
from mkdocs.__main__ import cli
cli(["build", "--strict", "--site-dir", sys.argv[1]])
"""


# --- pages of recipes --------------------------------------------------------------------------


def test_the_pages_of_recipes_are_up_to_date() -> None:
    written = {path.name: path.read_text("utf-8") for path in build_recipes.FOLDER.glob("*.md")}
    assert written == build_recipes.pages(), "run: python docs/build_recipes.py"


@pytest.mark.parametrize("name", RECIPES)
def test_every_component_is_described_and_stays_in_its_range(name: str) -> None:
    recipe = rr.recipe(name)
    infos = {component.name: component for component in RECIPES[name].components}
    for score in recipe(build_recipes.rows_of(name)):
        for component, value in score.components.items():
            if value is None:  # such as a gain without a search
                assert name == "rlcr" or "turns" in RECIPES[name].fields
                continue
            assert infos[component].contains(value), (component, value)


def test_values_outside_a_range() -> None:
    def contains(name: str, component: str, value: float) -> bool:
        infos = {each.name: each for each in RECIPES[name].components}
        return infos[component].contains(value)

    assert not contains("arena", "relevance", 0.7)
    assert not contains("lear", "answer", 1.1)
    assert not contains("ctrl-rag", "clr", -0.1)
    assert contains("ctrl-rag", "evidential_contribution", -3.0)


@pytest.mark.parametrize("name", RECIPES)
def test_the_example_of_a_page_is_a_group_with_different_rewards(name: str) -> None:
    rows = build_recipes.rows_of(name)
    group = [row for row in rows if row.group == rows[0].group]
    rewards = {score.value for score in rr.recipe(name)(group)}
    assert len(rewards) > 1
    text = build_recipes.page(RECIPES[name])
    assert all(row.id in text for row in group)


@pytest.mark.parametrize("name", RECIPES)
def test_a_page_shows_every_message_and_result_of_its_example(name: str) -> None:
    row = build_recipes.rows_of(name)[0]
    text = build_recipes.page(RECIPES[name])
    assert row.question in text
    for turn in row.steps():
        assert turn.text.strip() in text
    for document in row.documents or ():
        assert document.text in text


# --- the site ----------------------------------------------------------------------------------
# The build takes half a minute, so its tests are slow. One process builds the site once.


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, built in a process without network access."""
    pytest.importorskip("material", reason='pip install "rag-rewards[docs]"')
    pytest.importorskip("mkdocstrings", reason='pip install "rag-rewards[docs]"')
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_the_site_builds_without_a_warning_and_has_every_page(site: Path) -> None:
    pages = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")}
    assert pages <= {path.relative_to(site) for path in site.rglob("*.html")}
    assert not list(site.rglob("*.py"))


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_no_page_loads_external_files(site: Path) -> None:
    loads = re.compile(r"<(?:script|img|iframe|source)[^>]+src=\"(?:https?:)?//[^\"]+|<link[^>]+>")
    for path in site.rglob("*.html"):
        for tag in loads.findall(path.read_text("utf-8")):
            assert tag.startswith("<link"), (path, tag)
            assert 'href="http' not in tag or "canonical" in tag, (path, tag)


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_bars_and_figures_reach_a_page(site: Path) -> None:
    selection = (site / "selection.html").read_text("utf-8")
    assert "<code>--std-of S|E --min-std X</code>" in selection
    trl = (site / "trl.html").read_text("utf-8")
    assert 'href="benchmarks/trainers-trl.html"' in trl
    assert (site / "benchmarks" / "trainers-trl.html").exists()


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_long_references_on_the_page_of_the_papers_can_break(site: Path) -> None:
    papers = (site / "papers.html").read_text("utf-8")
    assert "<code>rag_<wbr>rewards.<wbr>compose:<wbr>Gate</code>" in papers
    assert "<wbr>" not in (site / "hardened.html").read_text("utf-8")


def test_figures_that_are_not_measured_have_no_link(monkeypatch, tmp_path) -> None:
    pytest.importorskip("mkdocs")
    hooks = importlib.import_module("site_hooks")
    monkeypatch.setattr(hooks, "RESULTS", tmp_path)
    (tmp_path / "there.md").write_text("x")
    shown = hooks.on_page_markdown(
        "[a](../benchmarks/results/there.md) [b](../benchmarks/results/gone.md)", None
    )
    assert shown == "[a](benchmarks/there.md) `b`"


def test_links_from_and_to_the_page_on_security():
    pytest.importorskip("mkdocs")
    hooks = importlib.import_module("site_hooks")
    assert hooks.on_page_markdown("[a](../SECURITY.md)", None) == "[a](SECURITY.md)"
    assert hooks.on_page_markdown("[a](docs/serve.md#batches)", None) == "[a](serve.md#batches)"
    figures = "[a](benchmarks/results/judge_injection.md)"
    assert hooks.on_page_markdown(figures, None) == "[a](benchmarks/judge_injection.md)"


PUBLIC = {
    "rag_rewards": rr.__all__,
    "rag_rewards.rewards": rewards.__all__,
    "rag_rewards.metrics": metrics.__all__,
    "rag_rewards.testing": [name for name in vars(testing) if name.startswith("Table")],
    "rag_rewards.training": ["group_advantages", "advantages_of_groups", "zscores", "Training"],
    "rag_rewards.scorer": ["Scorer"],
    "rag_rewards.loading": ["load_recipe", "RecipeSpec"],
    "rag_rewards.models.model_options": ["ModelOptions"],
    "rag_rewards.evidence.gather": ["Gatherer"],
    "rag_rewards.server": ["ServerOptions"],
    "rag_rewards_adapters.trl": ["RagReward", "AsyncRagReward"],
    "rag_rewards_adapters.verl": ["ComputeScore", "RagGroupAgentLoop", "grpo_clip_std"],
    "rag_rewards_adapters.openrlhf": ["reward_function", "executor"],
    "rag_rewards_adapters.ms_swift": ["register", "RagReward"],
    "rag_rewards_adapters.callables": ["each", "batch"],
    "rag_rewards_adapters.verifiers": ["reward", "EpisodeReward"],
    "rag_rewards_adapters.tinker": ["GroupRewards"],
}


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_every_public_name_has_its_place_in_the_api(site: Path) -> None:
    text = "".join(path.read_text("utf-8") for path in (site / "api").glob("*.html"))
    for module, names in PUBLIC.items():
        anchors = re.findall(rf'id="({re.escape(module)}[\w.]*)"', text)
        missing = {name for name in names if not name.startswith("_")}
        assert not missing - {anchor.rpartition(".")[2] for anchor in anchors}, module


def test_docstrings_as_markdown() -> None:
    pytest.importorskip("griffe")
    markdown = importlib.import_module("docstrings").markdown
    assert markdown("1.\n\n>>> 1\n1") == "1.\n\n```pycon\n>>> 1\n1\n```"
    assert markdown("a     one\nb     two") == "```text\na     one\nb     two\n```"
    assert markdown("reads <answer>, `[<a>]`, x*y*z") == r"reads &lt;answer>, `[<a>]`, x\*y\*z"
