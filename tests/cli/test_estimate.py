"""`score --estimate`: the requests and tokens of a run, compared with those of a real run."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))

from judge_server import JudgeServer, Reply, Request

from rag_rewards.testing import CodePoints

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CRITERIA = [{"criterion": f"The response names river {i}."} for i in range(3)]
ROWS = [
    {
        "question": f"Which river runs through town {i // 4}?",
        "response": f"\\boxed{{the long river number {min(i, 6)}}}",
        "answers": [f"river {i // 4} of the north"],
        "rubric": CRITERIA,
        "group": str(i // 4),
    }
    for i in range(8)
]


def best(request: Request) -> Reply:
    """Return the best score for each criterion or response of a request, with its code."""
    code = re.match(r"The code is (\w+)", request.material)[1]
    numbers = re.findall(r"^<(?:criterion|response)-([0-9]+)-", request.material, re.M)
    score = {"scores": dict.fromkeys(numbers, 1)} if numbers else {"score": 1}
    return Reply(json.dumps({"explanation": "x" * 100, "code": code, **score}))


def estimate_json(cli, *arguments, **options):
    command = ("score", *arguments, "--estimate", "--jsonl")
    [line] = cli(*command, code=0, **options).out.splitlines()
    return json.loads(line)


@pytest.mark.parametrize(
    ("options", "requests"),
    [
        # Rows 6 and 7 are equal. A group question has the distinct responses of its group.
        (["-r", "truthrl"], 7),
        (["-r", "truthrl", "--hardened"], None),
        (["-r", "rubric"], 7),
        (
            ["-r", "rubric", "--set", "criteria_per_call=2", "--set", "models.judge_checks=always"],
            None,
        ),
        (["-r", "ruler", "--set", "orders=3", "--set", "best=1"], 6),
        (["-r", "naive-grpo"], 0),
    ],
)
def test_the_estimate_equals_a_run(cli, write, tmp_path, options, requests):
    pytest.importorskip("httpx")
    source = write(ROWS)
    estimate = estimate_json(cli, source, *options, "--price-in", "2", "--price-out", "8")
    with JudgeServer(best) as server:
        judge = ("--judge", server.url, "--judge-model", "m")
        cli("score", source, "-o", tmp_path / "out.jsonl", *options, *judge)
        messages = [request.body["messages"] for request in server.requests]
    prompt = sum(len(message["content"]) for each in messages for message in each)
    work = estimate["work"].get("judge", {"requests": 0, "prompt_tokens": 0})
    assert work["requests"] == len(messages)
    assert requests in (None, work["requests"])
    assert work["prompt_tokens"] == -(-prompt // 4)
    assert (estimate["rows"], estimate["errors"]) == (8, 0)
    price = 2 * work["prompt_tokens"] + 8 * work.get("completion_tokens", 0)
    assert estimate["cost"] == price / 1e6


def test_a_list_of_claims_is_estimated(cli, write, tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(
        "from rag_rewards.rewards.claims import Claims\n"
        "listed = Claims(claims_by='judge', checked_by='judge')\n"
    )
    monkeypatch.chdir(tmp_path)
    rows = [{**ROWS[0], "response": "Paris is large.", "documents": [{"text": "Paris."}]}]
    estimate = estimate_json(cli, write(rows), "-r", "own.py:listed")
    assert estimate["errors"] == 0
    assert estimate["work"]["judge"]["requests"] > 1  # the list, and the claims in it


def test_equal_questions_of_the_file_count_once_with_a_cache(cli, write, tmp_path, monkeypatch):
    pytest.importorskip("httpx")
    monkeypatch.setattr("rag_rewards.files.sources.CHUNK_ROWS", 4)
    rows = [{**row, "question": "Which river?", "group": str(i)} for i, row in enumerate(ROWS)]
    source = write([*rows, *rows])
    with JudgeServer(best) as server:
        judge = ("--judge", server.url, "--judge-model", "m", "--judge-cache", tmp_path / "v.db")
        cli("score", source, "-o", tmp_path / "out.jsonl", "-r", "rubric", *judge, code=0)
    assert estimate_json(cli, source, "-r", "rubric", *judge)["work"] == {}
    counts = [
        estimate_json(cli, source, "-r", "rubric", *cache)["work"]["judge"]["requests"]
        for cache in ((), ("--judge-cache", tmp_path / "other.db"))
    ]
    assert counts == [14, 7]


def test_the_pairs_of_an_entailment_model_and_the_tokens_of_a_policy(cli):
    lines = (EXAMPLES / "ctrl-rag.jsonl").read_text().splitlines()
    rows = [json.loads(line) | {"logprobs": None} for line in lines]
    stdin = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    policy = estimate_json(cli, "-", "-r", "ctrl-rag", stdin=stdin)["work"]["policy"]
    assert policy["requests"] == len({row["question"] for row in rows})
    assert policy["prompt_tokens"] > 1000
    row = json.loads((EXAMPLES / "ground-grpo.jsonl").read_text().splitlines()[0])
    pairs = row.pop("nli")
    stdin = json.dumps(row).encode()
    tokens = -(-sum(len(pair["premise"] + pair["hypothesis"]) for pair in pairs) // 4)
    assert estimate_json(cli, "-", "-r", "ground-grpo", stdin=stdin)["work"] == {
        "entailment": {"requests": 2, "prompt_tokens": tokens, "completion_tokens": 0}
    }


def test_a_tokenizer_counts_the_tokens_of_a_policy_and_the_generator_is_separate(cli, monkeypatch):
    class Pairs(CodePoints):
        def encode(self, text, **_):
            return list(range(-(-len(text) // 2)))

    monkeypatch.setattr("rag_rewards.scoring.estimate.resolve_tokenizer", lambda *_: Pairs())
    lines = (EXAMPLES / "s3.jsonl").read_text().splitlines()
    rows = [json.loads(line) | {"generated_answers": None} for line in lines]
    stdin = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    command = ("-", "-r", "s3", "--set")
    plain = estimate_json(cli, *command, "models.tokenizer=null", stdin=stdin)
    exact = estimate_json(cli, *command, "models.tokenizer=folder", stdin=stdin)
    own = estimate_json(cli, *command, "models.generator=http://host:1", stdin=stdin)
    assert (plain["exact"], exact["exact"], own["exact"]) == ([], ["policy"], [])
    assert own["work"] == {"generator": plain["work"]["policy"]}
    characters = 4 * plain["work"]["policy"]["prompt_tokens"]
    assert characters / 2 - 4 <= exact["work"]["policy"]["prompt_tokens"] <= characters / 2 + 4
    assert exact["work"]["policy"]["completion_tokens"] == 3 * 256


def test_the_table_has_equal_bytes_and_states_how_tokens_are_counted(cli, write, tmp_path):
    command = ("score", write([*ROWS, b"{"]), "-r", "truthrl", "--estimate", "-o", tmp_path / "out")
    first = cli(*command, "--price-in", "1", code=3).out
    assert cli(*command, "--price-in", "1", code=3).out == first
    assert "characters / 4" in first
    assert "1 rows cannot be scored" in first
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--price-in", "1"], "--price-in is for an estimate: set --estimate"),
        (["--estimate", "--price-out", "-1"], "--price-out must be at least 0, found -1"),
        (["--estimate", "--price-out", "inf"], "--price-out must be at least 0, found inf"),
        *(
            (["--estimate", *option.split(), "/no-folder"], "there is no folder /no-folder")
            for option in ("--model", "--nli", "--similarity")
        ),
        (["--estimate", "--set", "models.generator=/no-folder"], "no folder /no-folder"),
    ],
)
def test_invalid_options(cli, write, options, message):
    assert message in cli("score", write(ROWS), "-r", "truthrl", *options, code=2).err
