"""`rag-rewards probe`: labels from rollouts, and from sampled responses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import ROOT, card_of, read_rows
from processes import finish

from rag_rewards.errors import BackendError, UsageError
from rag_rewards.evidence.protocols import GenerateAnswer, Models
from rag_rewards.loading import RecipeSpec
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.selection.probe import ProbeOptions, probe
from rag_rewards.selection.sampling import MAX_FAILED_BATCHES, Sampler, SamplingOptions
from rag_rewards.testing import TableJudge, TablePolicy

sys.path.append(str(Path(__file__).parents[1] / "models"))


def question(name, **fields):
    return {
        "id": name,
        "question": f"What of {name}?",
        "documents": [{"text": f"About {name}."}],
        "answers": ["right"],
        **fields,
    }


# --- from rollouts -------------------------------------------------------------------------------


def boxed(name, *answers):
    return [
        question(name) | {"id": f"{name}-{i}", "group": name, "response": f"\\boxed{{{text}}}"}
        for i, text in enumerate(answers)
    ]


def test_a_question_without_a_right_response_is_out_of_knowledge(cli, write, tmp_path):
    rows = boxed("a", "right", "wrong") + boxed("b", "wrong", "I don't know")
    out = tmp_path / "out.jsonl"
    recipe = ("-r", "truthrl", "--set", "verifier=exact")
    ran = cli("probe", write(rows), "-o", out, *recipe, code=0)
    labels = [
        (r["id"], r["out_of_knowledge"], r["pass_rate"], r["samples"]) for r in read_rows(out)
    ]
    assert labels == [("a", False, 0.5, 2), ("b", True, 0.0, 2)]
    assert "response" not in read_rows(out)[0]
    assert ran.err.splitlines() == [
        f"2 questions → {out}",
        "1 out of knowledge (50.0%): no response is correct",
        "mean pass rate 0.2500 over 4 responses",
    ]
    assert card_of(out)["counts"]["out of knowledge"] == 1
    assert "truthrl" in card_of(out)["correct"]


def test_correctness_from_scored_rows(cli, write, tmp_path):
    scored, out = tmp_path / "scored.jsonl", tmp_path / "out.jsonl"
    rows = write(boxed("a", "right", "wrong"))
    assert "missing; score the rows first" in cli("probe", rows, "-o", out, code=2).err
    cli("score", rows, "-o", scored, "-r", "truthrl", "--set", "verifier=exact", code=0)
    cli("probe", scored, "-o", out, code=0)
    assert read_rows(out)[0]["pass_rate"] == 0.5


def test_an_earlier_label_is_replaced(cli, write, tmp_path):
    rows = [row | {"out_of_knowledge": True, "pass_rate": 0} for row in boxed("a", "right")]
    out = tmp_path / "out.jsonl"
    cli("probe", write(rows), "-o", out, "-r", "truthrl", "--set", "verifier=exact", code=0)
    assert (read_rows(out)[0]["out_of_knowledge"], read_rows(out)[0]["pass_rate"]) == (False, 1.0)


def test_evidence_of_other_components_is_not_needed(cli, write, likely, tmp_path):
    # The accuracy of ctrl-rag needs no log-probabilities.
    rows = [likely(logprobs=None), likely(response="Rome.", logprobs=None)]
    out = tmp_path / "out.jsonl"
    cli("probe", write(rows), "-o", out, "-r", "ctrl-rag", code=0)
    assert read_rows(out)[0]["pass_rate"] == 0.5


def test_labels_for_the_knowledge_enhanced_reward(cli, write, tmp_path):
    out, again = tmp_path / "out.jsonl", tmp_path / "again.jsonl"
    recipe = ("-r", "truthrl", "--set", "verifier=exact")
    cli("probe", write(boxed("b", "wrong")), "-o", out, *recipe, code=0)
    rows = [row | {"response": "\\boxed{I don't know}"} for row in read_rows(out)]
    enhanced = (*recipe, "--set", "knowledge_enhanced=true")
    cli("score", write(rows), "-o", again, *enhanced, code=0)
    assert read_rows(again)[0]["reward"] == 1.0


def test_rows_in_error(cli, write, tmp_path):
    rows = [*boxed("a", "right"), *boxed("b", "right", "x"), "{", *boxed("c", "right")]
    rows[2]["answers"] = []
    out = tmp_path / "out.jsonl"
    ran = cli(
        *("probe", write(rows), "-o", out, "-r", "truthrl", "--set", "verifier=exact"), code=3
    )
    assert [row["id"] for row in read_rows(out)] == ["a"]
    errors = read_rows(tmp_path / "out.jsonl.errors.jsonl")
    assert [error["line"] for error in errors] == [2, 3, 4, 5]
    assert "rows in error" in ran.err


def test_rows_without_correctness(cli, write, tmp_path):
    rows = [row | {"reward": 1.0, "correct": None} for row in boxed("a", "x")]
    error = cli("probe", write(rows), "-o", tmp_path / "out.jsonl", code=2).err
    assert "line 1: correct: missing for a response of the group" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "line 1 has no response: set a model"),
        (["--model", "m"], "no recipe is given, which decides whether a response is correct"),
        (["--model", "m", "-r", "arena", "--sort"], "--model samples new ones"),
        (["--keep-rollouts", "x.jsonl"], "--keep-rollouts requires --model"),
        (["--samples", "0"], "--samples must be at least 1"),
        (["--temperature", "0"], "set --samples to 1"),
        (["--temperature", "-1"], "--temperature must be at least 0"),
        (["--stop", ""], "--stop is empty: set it to the text that ends a response"),
        (["--top-p", "0"], "--top-p must be above 0 and at most 1, found 0"),
        (["--top-p", "1.1"], "--top-p must be above 0 and at most 1, found 1.1"),
        (["--right-at", "2"], "--right-at must be above 0"),
    ],
)
def test_unusable_arguments(cli, write, tmp_path, arguments, message):
    out = tmp_path / "out.jsonl"
    assert message in cli("probe", write([question("a")]), "-o", out, *arguments, code=2).err
    assert not out.exists()


# --- sampling from a test double -----------------------------------------------------------------


class Policy(TablePolicy):
    """A policy whose responses, or errors, are a function of prompt and seed."""

    def __init__(self, respond, **options):
        super().__init__(texts={}, **options)
        self.respond = respond
        self.seeds = []

    async def generate(self, requests):
        self.seeds += [request.seed for request in requests]
        self.requests += requests
        return [
            self.answer(self.respond(self.tokenizer.decode(r.prompt), r.seed)) for r in requests
        ]

    def answer(self, response):
        if isinstance(response, Exception):
            return response
        return GenerateAnswer(response, (), "stop")


@pytest.fixture
def run(monkeypatch, write, tmp_path):
    """Return a function that labels rows with a policy in this process."""

    def probe_rows(rows, policy, judge=None, **options):
        loaded = Models(policy=policy, judge=judge)
        monkeypatch.setattr(ModelOptions, "load", lambda self: loaded)
        monkeypatch.setattr(Sampler, "batch", options.pop("batch", 2))
        defaults = {"samples": 4, "temperature": 1.0, "top_p": 1.0}
        sampling = SamplingOptions(**{n: options.pop(n, own) for n, own in defaults.items()})
        settings = {"verifier": options.pop("verifier", "exact")}
        recipe = options.pop("recipe", RecipeSpec(recipe="truthrl", settings=settings))
        source, out = str(write(rows)), str(tmp_path / "out.jsonl")
        models = ModelOptions(model="double")
        return probe(ProbeOptions(source, out, recipe, models=models, sampling=sampling, **options))

    return probe_rows


def answers_a(prompt, seed):
    return "\\boxed{right}" if "What of a" in prompt and seed % 2 else "\\boxed{wrong}"


def test_responses_are_sampled_scored_and_stored(run, tmp_path):
    policy = Policy(answers_a)
    result = run([question("a"), question("b", note=1)], policy, samples=20, batch=6)
    a, b = read_rows(tmp_path / "out.jsonl")
    assert (a["id"], a["samples"]) == ("a", 20)
    assert 0 < a["pass_rate"] < 1
    assert (b["out_of_knowledge"], b["pass_rate"], b["note"]) == (True, 0.0, 1)
    assert (result.new_texts, result.stored_texts) == (40, 0)
    assert len(set(policy.seeds)) == 40
    head, *samples = read_rows(tmp_path / "out.jsonl.samples.jsonl")
    assert head["sampled_with"]["model"] == "table"
    assert [sample["sample"] for sample in samples] == [*range(20), *range(20)]
    assert policy.closed


def test_a_second_run_requests_only_missing_responses(run, tmp_path):
    rows = [question("a"), question("b")]
    run(rows, Policy(answers_a), samples=4)
    first = read_rows(tmp_path / "out.jsonl")
    policy = Policy(answers_a)
    result = run(rows, policy, samples=4)
    assert (policy.requests, result.new_texts, result.stored_texts) == ([], 0, 8)
    assert read_rows(tmp_path / "out.jsonl") == first
    result = run(rows, Policy(answers_a), samples=6)
    assert (result.new_texts, result.stored_texts) == (4, 8)


def test_the_next_run_samples_failed_responses_again(run, tmp_path):
    failed_seeds = []

    def once(prompt, seed):
        if "What of a" in prompt and not failed_seeds:
            failed_seeds.append(seed)
            return BackendError("busy")
        return "\\boxed{right}"

    rows = [question("a"), question("b")]
    result = run(rows, Policy(once), samples=4, batch=4)
    assert result.rows_in_error == 1
    assert [row["id"] for row in read_rows(tmp_path / "out.jsonl")] == ["b"]
    [error] = read_rows(tmp_path / "out.jsonl.errors.jsonl")
    assert (error["line"], error["error"]["type"]) == (1, "BackendError")
    policy = Policy(once)
    result = run(rows, policy, samples=4)
    assert (result.rows_in_error, policy.seeds) == (0, failed_seeds)
    assert not (tmp_path / "out.jsonl.errors.jsonl").exists()


def test_a_policy_that_is_down_ends_the_run_and_samples_remain(run, tmp_path):
    def until_d(prompt, seed):
        return (
            BackendError("refused") if any(f"of {n}?" in prompt for n in "defg") else "\\boxed{x}"
        )

    policy = Policy(until_d)
    with pytest.raises(BackendError, match="refused; the sampled responses are in"):
        run([question(name) for name in "abcdefg"], policy, samples=2, batch=2)
    assert len(policy.requests) == 6 + 2 * MAX_FAILED_BATCHES
    assert len(read_rows(tmp_path / "out.jsonl.samples.jsonl")) == 7
    assert not (tmp_path / "out.jsonl").exists()
    result = run([question(name) for name in "abcdefg"], Policy(lambda *_: "\\boxed{x}"), samples=2)
    assert (result.new_texts, result.stored_texts) == (8, 6)


def test_a_judge_and_its_failure(run, tmp_path):
    judge = TableJudge(lambda question: int(question.response == "nearly right"))
    result = run(
        [question("a")], Policy(lambda *_: "\\boxed{nearly right}"), judge, verifier="judge"
    )
    assert (result.out_of_knowledge, len(judge.requests)) == (0, 1)
    judge = TableJudge(lambda question: BackendError("quota"))
    with pytest.raises(UsageError, match="quota"):
        run([question("a")], Policy(lambda *_: "\\boxed{nearly right}"), judge, verifier="judge")


def test_equal_prompts_share_their_responses(run, tmp_path):
    policy = Policy(answers_a)
    result = run([question("a"), question("a")], policy, samples=3)
    assert (len(policy.requests), result.questions) == (3, 2)


def test_prompt_of_the_row_or_of_the_recipe(run, tmp_path):
    prompts = []

    def respond(prompt, seed):
        prompts.append(prompt)
        return "so</think>\\boxed{right}"

    rollouts = tmp_path / "rollouts.jsonl"
    own = question("a", prompt="my own words\n<think>\n")
    run([own], Policy(respond), samples=1, keep_rollouts=str(rollouts))
    assert prompts[0] == "my own words\n<think>\n"
    assert read_rows(rollouts)[0]["response_prefix"] == "<think>\n"
    assert read_rows(tmp_path / "out.jsonl")[0]["pass_rate"] == 1.0
    run([question("b")], Policy(respond), samples=1)
    assert "[1] About b." in prompts[1]


def test_a_training_set_from_sampled_rollouts(run, cli, tmp_path):
    rollouts, out = tmp_path / "rollouts.jsonl", tmp_path / "dpo.jsonl"
    run([question("a"), question("b")], Policy(answers_a), samples=8, keep_rollouts=str(rollouts))
    cli("select", rollouts, "-o", out, "--make", "dpo", code=0)
    a, b = read_rows(out)
    assert a["chosen"][0]["content"] == "\\boxed{right}"
    assert b["chosen"][0]["content"] == "\\boxed{I don't know}"
    assert a["rejected"] == b["rejected"]


def test_traces_for_rft_keep_the_labels_of_the_first_policy(run, cli, tmp_path):
    """TruthRL: labels from 256 responses, then RFT from 64 with temperature 0.6 and top-p 0.9."""
    out = tmp_path / "out.jsonl"
    run([question("a"), question("b")], Policy(answers_a), samples=16)
    labelled = read_rows(out)
    assert [row["out_of_knowledge"] for row in labelled] == [False, True]
    for path in tmp_path.glob("out.jsonl*"):
        path.unlink()

    def tuned(prompt, seed):
        if seed % 2:
            return "\\boxed{right}"
        return "\\boxed{I don't know}" if "What of b" in prompt else "\\boxed{wrong}"

    policy, traces, rft = Policy(tuned), tmp_path / "traces.jsonl", tmp_path / "rft.jsonl"
    run(labelled, policy, samples=16, temperature=0.6, top_p=0.9, keep_rollouts=str(traces))
    assert {(r.temperature, r.top_p) for r in policy.requests} == {(0.6, 0.9)}
    head = read_rows(tmp_path / "out.jsonl.samples.jsonl")[0]["sampled_with"]
    assert (head["temperature"], head["top_p"]) == (0.6, 0.9)
    assert [row["out_of_knowledge"] for row in read_rows(traces)] == [False] * 16 + [True] * 16
    cli("select", traces, "-o", rft, "--make", "rft", code=0)
    texts = [row["completion"][0]["content"] for row in read_rows(rft)]
    assert texts == ["\\boxed{right}", "\\boxed{I don't know}"]
    # Iterative DPO: the pairs of the next policy use the same labels.
    cli("select", traces, "-o", rft, "--make", "dpo", code=0)
    [pair] = read_rows(rft)
    assert (pair["id"], pair["chosen"][0]["content"]) == ("a", "\\boxed{right}")
    with pytest.raises(UsageError, match="has samples with top_p"):
        run(labelled, policy, samples=16, temperature=0.6)


def test_rows_without_a_usable_prompt(run, tmp_path):
    rows = [question("a"), question("long", documents=[{"text": "x" * 5_000}]), "{", {"id": "no"}]
    result = run(rows, Policy(answers_a, max_length=4_000), samples=1)
    assert (result.questions, result.rows_in_error) == (1, 3)
    errors = {e["line"]: e["error"] for e in read_rows(tmp_path / "out.jsonl.errors.jsonl")}
    assert errors[2]["type"] == "DataError"
    assert "more than the model's maximum of 4,000" in errors[2]["message"]
    assert errors[4]["path"] == "question"


def test_rows_with_a_response_are_not_sampled(run, tmp_path):
    with pytest.raises(UsageError, match="line 1: "):
        run(boxed("a", "x"), Policy(answers_a))
    result = run([question("b"), *boxed("a", "x")], Policy(answers_a))
    assert (result.questions, result.rows_in_error) == (1, 1)


def test_a_row_without_a_response_among_rollouts(cli, write, tmp_path):
    rows = [*boxed("a", "right"), question("b")]
    out = tmp_path / "out.jsonl"
    recipe = ("-r", "truthrl", "--set", "verifier=exact")
    error = cli("probe", write(rows), "-o", out, *recipe, code=3).err
    assert "line 2: response: missing" in error


def test_progress_is_not_on_standard_output(run, capsys):
    run([question("a"), question("b")], Policy(answers_a), progress=True)
    assert capsys.readouterr().out == ""


def test_samples_of_another_model(run):
    run([question("a")], Policy(answers_a))
    with pytest.raises(UsageError, match="has samples with model table, not other"):
        run([question("a")], Policy(answers_a, fingerprint="other"))


def test_a_curriculum_is_refused(run):
    stages = [{"recipe": "arena", "until_step": 3}, {"recipe": "truthrl"}]
    with pytest.raises(UsageError, match="a curriculum has several"):
        run([question("a")], Policy(answers_a), recipe=RecipeSpec(stages=stages))


# --- sampling from real models -------------------------------------------------------------------


RECIPE = ("-r", "naive-grpo", "--set", "accuracy.metric=substring")


def sampling_options(model, samples=6, tokens=3, **more):
    options = {"--model": model, "--samples": samples, "--max-tokens": tokens, **more}
    return [*RECIPE, *(str(part) for pair in options.items() for part in pair)]


def test_the_seed_determines_the_responses_of_a_real_policy(cli, write, model, tmp_path):
    source = write([question("a"), question("b")])
    responses = {}
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        out = tmp_path / f"{name}.jsonl"
        ran = cli("probe", source, "-o", out, *sampling_options(model, **{"--seed": seed}), code=0)
        assert "12 new, 0 from earlier runs" in ran.err
        responses[name] = [
            s["response"] for s in read_rows(tmp_path / f"{name}.jsonl.samples.jsonl")[1:]
        ]
    assert responses["one"] == responses["two"] != responses["three"]
    assert len(set(responses["one"])) > 6


KILLED = """
import os, signal, sys
from rag_rewards.cli.entry import main
from rag_rewards.selection.sampling import SampleFile, Sampler
Sampler.batch = 2
append, lines = SampleFile._append, []
def append_and_kill(file, line):
    append(file, line)
    lines.append(line)
    if len(lines) == 6:
        os.kill(os.getpid(), signal.SIGKILL)
SampleFile._append = append_and_kill
main(sys.argv[1:])
"""
"""A command that is killed when it has written its settings and five responses."""


@pytest.mark.slow
def test_a_killed_run_continues(cli, write, model, tmp_path):
    source = write([question(f"q{i}") for i in range(4)])
    out, side = tmp_path / "out.jsonl", tmp_path / "out.jsonl.samples.jsonl"
    options = sampling_options(model, samples=8, tokens=12)
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, "probe", str(source), "-o", str(out), *options],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stderr=subprocess.DEVNULL,
    )
    finish(process)
    assert process.returncode == -signal.SIGKILL
    assert not out.exists()
    before = side.read_bytes().rpartition(b"\n")[0]
    stored = before.count(b"\n")
    assert stored == 5
    ran = cli("probe", source, "-o", out, *options, code=0)
    assert f"{32 - stored} new, {stored} from earlier runs" in ran.err
    assert side.read_bytes().startswith(before)
    whole = tmp_path / "whole.jsonl"
    cli("probe", source, "-o", whole, *options, code=0)
    assert out.read_bytes() == whole.read_bytes()
    assert side.read_bytes() == (tmp_path / "whole.jsonl.samples.jsonl").read_bytes()


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_sampling_from_a_server(cli, write, model, tmp_path, kind):
    pytest.importorskip("httpx")
    from engine_servers import SglangDouble, VllmDouble

    class AnyToken(VllmDouble):
        def refuse(self, tokens):
            """Accept all tokens: the double has a smaller vocabulary than the tokenizer."""

    out = tmp_path / "out.jsonl"
    with {"vllm": AnyToken, "sglang": SglangDouble}[kind]() as server:
        more = {"--backend": kind, "--set": f"models.tokenizer={model}"}
        ran = cli(
            *("probe", write([question("a")]), "-o", out),
            *sampling_options(server.url, samples=5, **more),
            code=0,
        )
        seeds = {
            post.get("seed") or post["sampling_params"]["sampling_seed"] for post in server.posts
        }
    assert "5 new, 0 from earlier runs" in ran.err
    assert len(seeds) == 5
    assert read_rows(out)[0]["samples"] == 5
