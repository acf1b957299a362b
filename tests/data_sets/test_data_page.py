"""Run the commands of docs/data.md on small files with the same names."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml
from constructed_rows import PRGB, PUBMED, RAGQA, TEXTS

from rag_rewards.cli import main
from rag_rewards.datasets.catalog import DATASETS
from rag_rewards.preparation.options import presets
from rag_rewards.recipes import RECIPES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "data.md").read_text("utf-8")
TEMPLATE = re.search(r"`prompt.txt` contains:\n\n```text\n(.*?)^```", PAGE, re.S | re.M)[1]
COMMANDS = re.findall(r"^(rag-rewards prepare .*)$", PAGE, re.MULTILINE)


def hotpotqa(count):
    return [
        {
            "_id": f"{i}",
            "question": f"Question {i}?",
            "answer": f"answer {i}",
            "context": [[f"T{i}.{j}", [f"About {i}.{j}."]] for j in range(10)],
            "supporting_facts": [[f"T{i}.3", 0]],
        }
        for i in range(count)
    ]


def nq(count):
    return [
        {
            "question": f"Question {i}?",
            "answers": [f"answer {i}"],
            "ctxs": [
                {"title": f"T{i}.{j}", "text": f"Text {i}.{j}.", "has_answer": j == 2}
                for j in range(8)
            ],
        }
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def sources(tmp_path_factory, shared):
    """Return a folder with the files that the commands read."""
    folder = tmp_path_factory.mktemp("sources")
    rows = json.loads((shared / "data/musique/musique_ans_row.json").read_text("utf-8"))
    texts = {
        "hotpot_train_v1.1.json": json.dumps(hotpotqa(10_050)),
        "hotpot_dev_distractor_v1.json": json.dumps(hotpotqa(510)),
        "nq-test.json": json.dumps(nq(20)),
        "prompt.txt": TEMPLATE.strip(),
        "musique_ans_v1.0_dev.jsonl": json.dumps(rows[0]) + "\n",
        "musique.jsonl": json.dumps(RAGQA) + "\n",
        "documents_pool.json": json.dumps(TEXTS),
        "en.jsonl": json.dumps(PRGB) + "\n",
        "ori_pqal.json": json.dumps({"21645374": PUBMED}, indent=4),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "nq-train.json.gz").write_bytes(gzip.compress(json.dumps(nq(20)).encode()))
    shutil.copy(shared / "data/crag/dev_data_sample10.jsonl", folder / "crag_task_1_dev.jsonl")
    return folder


@pytest.fixture
def files(sources, tmp_path, monkeypatch):
    for path in sources.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)


def test_number_of_commands():
    assert len(COMMANDS) == 12


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page(files, command, capsys):
    words = shlex.split(command)[1:]
    if "verl" in words:
        pytest.importorskip("pyarrow")
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert not ended.value.code, capsys.readouterr().err
    output = Path(words[words.index("-o") + 1])
    card = Path(f"{output}.card.md").read_text("utf-8").split("---\n")[1]
    counts = yaml.safe_load(card)["counts"]
    assert counts["written"] == {"arena-train": 10_000, "arena-test": 500}.get(
        words[-1], counts["read"] - sum(counts["dropped"].values())
    )
    if "--prompt-template" in words:
        [message] = json.loads(output.read_text("utf-8").splitlines()[0])["prompt"]
        assert "\n\nContext:\n(1) T0.0: About 0.0.\n(2) T0.1: About" in message["content"]
    if "--noise-to" in words:
        assert counts["rows by documents"] == {30: 510}
    if "--noise" in words:
        assert counts["rows by documents"] == {9: 20}


def test_the_page_contains_each_data_set():
    for name in DATASETS:
        assert f"`{name}`" in PAGE, name


def test_the_page_contains_each_prompt():
    for name, definition in RECIPES.items():
        common = {"default", "direct", "closed-book"}
        assert common <= definition.prompts.keys()
        for prompt in definition.prompts.keys() - common:
            row = rf"\| [^|(]*`{prompt}`[^|(]* \([^)]*`{name}`[^)]*\) \|"
            assert re.search(row, PAGE), (name, prompt)


def test_the_page_of_a_recipe_contains_its_presets():
    pages = Path(__file__).resolve().parents[2] / "docs" / "recipes"
    for recipe, definition in RECIPES.items():
        page = (pages / f"{recipe}.md").read_text("utf-8")
        for name, preset in definition.data.presets.items():
            assert f"preset {name}: {preset}" in page
            assert name in presets()
            assert set(preset.sizes) <= set(definition.data.datasets) <= set(DATASETS)
