"""All engines return the same numbers: Python, the command, its workers and the server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from results import EXAMPLES, files_of, run

import rag_rewards as rr
from rag_rewards import RECIPES
from rag_rewards.loading import RecipeSpec, load_recipe
from rag_rewards.scorer import Scorer
from rag_rewards.server.app import RewardServer
from rag_rewards.server.options import ServerOptions
from rag_rewards.server.routes import Application

Row = dict[str, Any]
FIELDS = ("reward", "components", "correct", "turn_rewards")


def numbers(rows: list[Row]) -> list[Row]:
    """Return the scores, as JSON so that tuples equal lists, without fields that are missing."""
    return [
        json.loads(json.dumps({name: row[name] for name in FIELDS if row.get(name) is not None}))
        for row in rows
        if row["reward"] is not None
    ]


def lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize("hardened", [False, True])
@pytest.mark.parametrize("recipe", RECIPES)
def test_python_the_command_and_the_server(recipe: str, hardened: bool, tmp_path: Path) -> None:
    file, out = files_of(recipe)[0], tmp_path / "out.jsonl"
    rows = lines(file)
    expected = numbers(rr.score(rows, recipe, hardened=hardened))
    assert run("score", file, "-r", recipe, "-o", out, *["--hardened"] * hardened) in (0, 3)
    assert numbers(lines(out)) == expected
    answer = asyncio.run(posted(RecipeSpec(recipe=recipe, hardened=hardened), rows))
    assert numbers(answer["scores"]) == expected


async def posted(plan: RecipeSpec, rows: list[Row]) -> Any:
    """Return the answer of a server without a socket."""
    server = RewardServer(
        lambda: Scorer.load(plan), load_recipe(plan).component_names, ServerOptions()
    )
    await server.start()
    transport = httpx.ASGITransport(Application(server))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        response = await client.post("/score", json={"rollouts": rows})
    assert response.status_code == 200, response.text
    return response.json()


def test_workers(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    rows = [
        {**row, "group": f"{copy} {row.get('group', row['question'])}"}
        for copy in range(15)
        for row in lines(EXAMPLES / "ctrl-rag.jsonl")
    ]
    source.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    outputs = []
    for workers in (1, 3):
        out = tmp_path / f"{workers}.jsonl"
        options = ("-o", out, "--workers", workers)
        assert run("score", source, "-r", "ctrl-rag", "--sort", *options) == 0
        outputs.append(out.read_bytes())
    assert outputs[0] == outputs[1]
    assert outputs[0].count(b"\n") == len(rows)
