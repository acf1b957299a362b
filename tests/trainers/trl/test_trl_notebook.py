"""examples/train.ipynb, executed on a CPU with small values, with and without data of a hub."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import datasets
import pytest
from trl_runs import make_model, make_tokenizer

NOTEBOOK = Path(__file__).resolve().parents[3] / "examples" / "train.ipynb"
SMALL = {"STEPS": 2, "GROUP": 4, "QUESTIONS": 8, "TOKENS": 24}


def executed(parameters: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Execute the cells, and return the names and the values that a notebook would show."""
    names: dict[str, Any] = {"__name__": "__main__"}
    shown: list[Any] = []
    for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        lines = [line for line in cell["source"] if not line.startswith("%pip install ")]
        tree = ast.parse("".join(lines))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, NOTEBOOK.name, "exec"), names)  # noqa: S102
        if last is not None:
            value = eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names)  # noqa: S307
            shown += [] if value is None else [value]
        if "parameters" in cell["metadata"].get("tags", ()):
            assert parameters.keys() <= names.keys()
            names |= parameters
    return names, shown


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))


def check(names: dict[str, Any], shown: list[Any]) -> None:
    table, group, _, log, last = shown
    assert [row > 1 for row in table["reward"]] == [True, False, False]
    assert "Rhône" in group._repr_html_()
    assert last._repr_html_()
    assert len(last.rollouts) == SMALL["GROUP"]
    assert len(log) == SMALL["STEPS"]
    assert "arena/accuracy" in log
    assert len(names["rollouts"]) == SMALL["STEPS"] * SMALL["GROUP"]


@pytest.mark.optimizer_step
def test_the_tiny_model_earns_different_rewards() -> None:
    names, shown = executed({"MODEL": "tiny", **SMALL})
    check(names, shown)
    assert any(shown[3]["reward"] > 2)


def test_the_notebook_reads_hotpotqa(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train a random model on rows of the form of the hub."""
    row = {
        "id": "a",
        "question": "Which river runs through the capital of France?",
        "answer": "Seine",
        "supporting_facts": {"title": ["Paris", "France"], "sent_id": [0, 0]},
        "context": {
            "title": ["Lyon", "Paris", "France"],
            "sentences": [["Lyon is old."], ["Paris lies on the Seine.", " It is big."], ["Its."]],
        },
    }
    load = datasets.load_dataset

    def from_hub(name: str, *words: str, **options: Any) -> Any:
        if name != "hotpotqa/hotpot_qa":
            return load(name, *words, **options)
        assert (words, options) == (("distractor",), {"split": "train[:8]"})
        return datasets.Dataset.from_list([row] * 8)

    monkeypatch.setattr(datasets, "load_dataset", from_hub)
    make_model("qwen2").save_pretrained(tmp_path / "model")
    make_tokenizer().save_pretrained(tmp_path / "model")
    names, shown = executed({"MODEL": str(tmp_path / "model"), **SMALL})
    check(names, shown)
    first = names["data"][0]
    assert first["supporting"] == ["2", "3"]
    assert "[2] Paris" in first["prompt"][0]["content"].replace("\n", " ")
    assert "It is big." in first["prompt"][0]["content"]
