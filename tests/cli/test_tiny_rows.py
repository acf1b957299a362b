"""The example rows of the tiny world, scored and explained with its model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from rag_rewards.tiny_world.formats import PLAIN
from rag_rewards.tiny_world.model import CHECKPOINT
from rag_rewards.tiny_world.world import WorldQuestion

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ROWS = EXAMPLES / "tiny-world.jsonl"
MODEL = [
    "--model",
    CHECKPOINT,
    "--set",
    "models.dtype=float32",
]
STANDS = [
    "--set",
    "models.document_form={text} [{label}] .",
    "--set",
    "models.document_separator= ",
]
ASKED = ["--recipe", "ctrl-rag", "--set", "on_missing_support=zero"]


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in map(json.loads, ROWS.read_text("utf-8").splitlines())}


@pytest.fixture
def scored(cli: Callable[..., Any], tmp_path: Path) -> dict[str, dict[str, Any]]:
    out = tmp_path / "scored.jsonl"
    cli("score", ROWS, "-o", out, *ASKED, *MODEL, *STANDS, "--keep-evidence", code=0)
    return {row["id"]: row for row in map(json.loads, out.read_text("utf-8").splitlines())}


def test_the_rows_belong_to_the_world(rows: dict[str, dict[str, Any]]) -> None:
    assert len(rows) == 12
    for row in rows.values():
        documents = tuple(tuple(each["text"].split()) for each in row["documents"])
        question = WorldQuestion(documents, row["question"], row["answers"][0][0])
        own = {key: row[key] for key in row if key not in ("id", "group", "response")}
        assert own == PLAIN.row(question)
        assert row["id"].startswith(f"{row['group']}-")


def test_contributions_of_documents_under_the_model(scored: dict[str, dict[str, Any]]) -> None:
    added = {name: row["components"]["evidential_contribution"] for name, row in scored.items()}
    # The document against the memory, the document that the memory knows, no document at all.
    assert added["ben-grounded"] > added["fay-known"] > 1
    assert added["fay-known"] > 0 > added["fay-abstains"]
    # A marker that names another document costs what the right one brings.
    assert added["ben-grounded"] > added["ben-wrong-citation"] + 1
    assert added["fay-known"] > added["fay-wrong-citation"] + 1
    for other in ("memory", "other"):
        assert added["ben-grounded"] > added[f"ben-{other}"] + 1


def test_answers_from_the_documents_earn_most(
    scored: dict[str, dict[str, Any]],
) -> None:
    reward = {name: row["reward"] for name, row in scored.items()}
    assert reward["ben-grounded"] == pytest.approx(1)
    assert reward["fay-known"] == pytest.approx(1)
    assert 0 <= reward["ben-wrong-citation"] < 1
    for name, row in scored.items():
        if row["correct"] == 0 or name.startswith("zoe"):
            assert row["reward"] == 0


def test_the_supporting_document_is_left_out(scored: dict[str, dict[str, Any]]) -> None:
    logprobs = scored["ben-grounded"]["logprobs"]
    assert list(logprobs["without"]) == ["2"]
    assert len(logprobs["full"]) == len(logprobs["without"]["2"]) == 2
    assert scored["zoe-abstains"].get("logprobs") is None  # nothing supports: nothing to ask


def test_an_explanation_colors_the_words(cli: Callable[..., Any], tmp_path: Path) -> None:
    command = ["explain", ROWS, "--id", "ben-wrong-citation", "-r", "ctrl-rag", *MODEL, *STANDS]
    data = json.loads(cli(*command, "--json", code=0).out)
    answer, marker = data["segments"]
    assert (answer["t"], marker["t"], marker["c"]) == ("lily ", "[4]", ["4"])
    assert answer["v"] > 1
    assert marker["v"] < 0
    effects = {each["label"]: each["effect"] for each in data["passages"]}
    assert list(effects) == ["1", "2", "3", "4"]
    assert effects["2"] == pytest.approx(answer["v"] + marker["v"], abs=0.002)

    picture = tmp_path / "row.svg"
    assert cli(*command, "--svg", picture, code=0).out == ""
    svg = ElementTree.parse(picture).getroot()  # noqa: S314 (just written)
    texts = [each.text or "" for each in svg.iter("{http://www.w3.org/2000/svg}text")]
    shown = {text.replace("\xa0", " ") for text in texts}
    assert {"ben-wrong-citation", "lily", "[4]", "Ben lily"} <= shown


def test_variants_with_the_same_reward_are_left_out(cli: Callable[..., Any]) -> None:
    command = ["explain", ROWS, "--id", "ben-grounded", "-r", "ctrl-rag", *MODEL, *STANDS]
    data = json.loads(cli(*command, "--json", code=0).out)
    changes = {each["what"]: each["reward"] for each in data["changes"]}
    assert changes["with “I don't know”"] == 0
    assert all(abs(reward - data["reward"]) > 1e-6 for reward in changes.values())


def test_documents_in_another_form_cannot_be_left_out(
    cli: Callable[..., Any], tmp_path: Path
) -> None:
    out = tmp_path / "scored.jsonl"
    result = cli("score", ROWS, "-o", out, *ASKED, *MODEL)
    assert result.code == 3
    written = Path(f"{out}.errors.jsonl").read_text("utf-8")
    errors = [json.loads(line)["error"] for line in written.splitlines()]
    assert len(errors) == 8
    assert errors[0]["message"].startswith('document 2 cannot be left out: "[2] Ben lily"… is not')
    assert errors[0]["message"].endswith("with a Prompt, or set the option `document_form`")
