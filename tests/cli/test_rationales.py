"""`rag-rewards select --make sft --style rationale`: ARENA's SFT-reasoning."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from command_line import card_of, read_rows
from real_rows import ircot

from rag_rewards import decode_row, recipe
from rag_rewards.errors import BackendError, UsageError
from rag_rewards.evidence.protocols import GenerateAnswer, Models
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.selection.options import SelectOptions
from rag_rewards.selection.sampling import MAX_FAILED_BATCHES, Sampler
from rag_rewards.selection.select import select
from rag_rewards.testing import TablePolicy

sys.path.append(str(Path(__file__).parents[1] / "models"))

STYLE = ("-r", "arena", "--make", "sft", "--style", "rationale")


def question(name="a", **fields):
    return {
        "id": name,
        "question": f"Which river is in {name}?",
        "documents": [{"text": f"Rain in {name}."}, {"text": "Seine."}, {"text": "A river."}],
        "supporting": [3, 2],
        "answers": ["Seine", "the Seine"],
        **fields,
    }


# --- rationales in the rows ----------------------------------------------------------------------


def test_the_response_is_assembled_from_gold_data_and_the_rationale(cli, write, tmp_path):
    out = tmp_path / "out.jsonl"
    leak = [{"role": "user", "content": "The answer is Seine. Why?"}]
    row = question(response=" [2] names it; [3] says what it is.\n", prompt=leak)
    cli("select", write([row]), "-o", out, *STYLE, code=0)
    [chat] = read_rows(out)
    assert chat["id"] == "a"
    assert chat["completion"] == [
        {
            "role": "assistant",
            "content": "<relevance>[2, 3]</relevance>"
            "<analysis>[2] names it; [3] says what it is.</analysis><answer>Seine</answer>",
        }
    ]
    # The prompt of the recipe, not the one that contains the answer.
    assert chat["prompt"] == recipe("arena").prompt.messages(decode_row(question(response="")))
    trained = decode_row(row | {"response": chat["completion"][0]["content"]})
    [score] = recipe("arena")([trained])
    assert (score.value, set(score.components.values())) == (13.0, {1.0, 10.0})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"response": "So <answer>Rhine</answer>."}, "no rationale whose response earns 1"),
        ({"response": "A tag </analysis> too early."}, "no rationale whose response earns 1"),
        ({"response": "<think>All of it is thought"}, "no rationale whose response earns 1"),
        ({"response": "  \n"}, "no rationale whose response earns 1"),
        ({"response": "The half of", "finish_reason": "length"}, "no complete rationale"),
        ({}, "no rationale: set a model"),
    ],
)
def test_other_rationales_are_dropped_and_counted(cli, write, tmp_path, fields, reason):
    out = tmp_path / "out.jsonl"
    good = question("good", response="[2] names it.")
    cli("select", write([question("bad", **fields), good]), "-o", out, *STYLE, code=0)
    assert [row["id"] for row in read_rows(out)] == ["good"]
    [(found, count)] = card_of(out)["counts"]["cannot be made"].items()
    assert (found.startswith(reason), count) == (True, 1)


def test_thinking_of_the_writer_is_not_part_of_the_rationale(cli, write, tmp_path):
    out = tmp_path / "out.jsonl"
    row = question(response="<think>Hmm, the answer was given.</think>[2] names it.")
    cli("select", write([row]), "-o", out, *STYLE, code=0)
    assert "Hmm" not in out.read_text("utf-8")


def test_several_rationales_of_a_question(cli, write, tmp_path):
    """One that is right is used; it depends on the seed and the question only."""
    out = tmp_path / "out.jsonl"
    texts = ["</answer>", "First.", "Second.", "<relevance>"]
    rows = [question(group="g", response=text) for text in texts]
    found = set()
    for seed in range(8):
        cli("select", write(rows), "-o", out, *STYLE, "--seed", seed, code=0)
        [chat] = read_rows(out)
        found.add(chat["completion"][0]["content"].split("analysis>")[1])
    assert found == {"First.</", "Second.</"}


def test_gold_data_that_are_missing(cli, write, tmp_path):
    out = tmp_path / "out.jsonl"
    rows = [
        question("a", response="x", supporting=None),
        question("b", response="x", answers=None),
        question("c", response="x", supporting=[9]),
        question("d", response="x"),
    ]
    rows = [{k: v for k, v in row.items() if v is not None} for row in rows]
    cli("select", write(rows), "-o", out, *STYLE, code=3)
    errors = read_rows(tmp_path / "out.jsonl.errors.jsonl")
    assert [(e["line"], e["error"]["path"]) for e in errors] == [
        (1, "supporting"),
        (2, "answers"),
        (3, "supporting[0]"),
    ]
    assert "document id 9 does not exist (documents: 1, 2, 3)" in errors[2]["error"]["message"]
    assert [row["id"] for row in read_rows(out)] == ["d"]


def test_a_gold_answer_with_tags_or_placeholders(cli, write, tmp_path):
    out = tmp_path / "out.jsonl"
    rows = [
        question("a", response="{answer}", answers=["{analysis}"]),
        question("b", response="x", answers=["</answer><answer>"]),
    ]
    cli("select", write(rows), "-o", out, *STYLE, code=0)
    [chat] = read_rows(out)
    assert chat["completion"][0]["content"].endswith(
        "<analysis>{answer}</analysis><answer>{analysis}</answer>"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--make", "sft", "--style", "rationale"), "--style rationale requires --recipe"),
        (("-r", "lear", *STYLE[2:]), "--recipe lear has no form for rationales: use arena"),
        (
            ("-r", "arena", "--make", "sft", "--model", "x"),
            "--model writes texts from gold data: set --make",
        ),
        (("-r", "arena", "--style", "rationale"), "--style describes the target texts of sft"),
        ((*STYLE, "--sections", "answer"), "--sections and --prompt change sampled responses"),
        (
            ("-r", "lear", "--make", "sft", "--style", "reasoning", "--sections", ","),
            "--sections ',' contains no name: name the sections to keep",
        ),
        (("--nli", "x"), "models provide evidence for a recipe: set --recipe"),
        ((*STYLE, "--texts", "0"), "must be at least 1, found 0"),
    ],
)
def test_contradictory_options(cli, write, tmp_path, arguments, message):
    source = write([question(response="x")])
    assert message in cli("select", source, "-o", tmp_path / "out.jsonl", *arguments, code=2).err


# --- rationales of a policy ----------------------------------------------------------------------


class Writer(TablePolicy):
    """A policy whose texts, or errors, are a function of prompt and number of the request."""

    def __init__(self, write):
        super().__init__(texts={})
        self.write = write

    async def generate(self, requests):
        answers = []
        for request in requests:
            self.requests.append(request)
            text = self.write(self.tokenizer.decode(request.prompt), len(self.requests))
            answers.append(
                text if isinstance(text, Exception) else GenerateAnswer(text, (), "stop")
            )
        return answers


@pytest.fixture
def run(monkeypatch, write, tmp_path):
    """Return a function that selects rows with a policy in this process."""

    def select_rows(rows, policy, **options):
        monkeypatch.setattr(ModelOptions, "load", lambda self: Models(policy=policy))
        monkeypatch.setattr(Sampler, "batch", options.pop("batch", 64))
        source, out = str(write(rows)), str(tmp_path / "out.jsonl")
        models = ModelOptions(model="double")
        return select(
            SelectOptions(
                source, out, "arena", make="sft", style="rationale", models=models, **options
            )
        )

    return select_rows


def test_the_policy_is_shown_the_gold_data(run, tmp_path):
    prompts = []
    policy = Writer(lambda prompt, _: prompts.append(prompt) or "[2] names it.")
    result = run([question("a"), question("b")], policy)
    assert (result.written, result.new_texts, result.stored_texts) == (2, 2, 0)
    first = prompts[0]
    assert "Which river is in a?" in first
    assert "[1] Rain in a.\n\n[2] Seine.\n\n[3] A river." in first
    assert "Relevant references: [2, 3]\nAnswer: Seine" in first
    [chat, _] = read_rows(tmp_path / "out.jsonl")
    assert "Relevant references" not in chat["prompt"][0]["content"]
    assert policy.closed
    assert card_of(tmp_path / "out.jsonl")["texts"] == "table"


def test_a_second_run_requests_only_missing_rationales(run, tmp_path):
    rows = [question("a"), question("b")]
    run(rows, Writer(lambda *_: "Because [2]."))
    first = (tmp_path / "out.jsonl").read_bytes()
    policy = Writer(lambda *_: "Other.")
    result = run(rows, policy)
    assert (policy.requests, result.new_texts, result.stored_texts) == ([], 0, 2)
    assert (tmp_path / "out.jsonl").read_bytes() == first
    assert run(rows, policy, texts=3).new_texts == 4


def test_the_next_run_writes_failed_rationales_again(run, tmp_path):
    def fails_for_a(prompt, number):
        return BackendError("busy") if number == 1 else "Because [2]."

    rows = [question("a"), question("b"), question("c", supporting=None)]
    del rows[2]["supporting"]
    policy = Writer(fails_for_a)
    result = run(rows, policy, batch=2)
    assert (result.rows_in_error, result.written, len(policy.requests)) == (2, 1, 2)
    errors = read_rows(tmp_path / "out.jsonl.errors.jsonl")
    assert [(e["line"], e["error"]["type"]) for e in errors] == [
        (1, "BackendError"),
        (3, "DataError"),
    ]
    result = run(rows[:2], Writer(lambda *_: "Because [2]."), batch=2)
    assert (result.written, result.new_texts, result.stored_texts) == (2, 1, 1)


def test_a_policy_that_is_down_ends_the_run_and_rationales_remain(run, tmp_path):
    rows = [question(f"q{i}") for i in range(9)]
    policy = Writer(lambda _, n: "Because [2]." if n <= 2 else BackendError("refused"))
    with pytest.raises(BackendError, match="refused; the sampled responses are in"):
        run(rows, policy, batch=2)
    assert len(policy.requests) == 2 + 2 * MAX_FAILED_BATCHES
    assert not (tmp_path / "out.jsonl").exists()
    result = run(rows, Writer(lambda *_: "Because [2]."), batch=2)
    assert (result.written, result.new_texts, result.stored_texts) == (9, 7, 2)


def test_conditions_are_applied_before_rationales_are_written(run, tmp_path):
    scored = {"correct": 1.0, "reward": 1.0, "signature": "rag-rewards 0.8.0 arena"}
    rows = [
        question("a", group="a", response="x", **scored),
        question("b", group="b", response="x", **scored | {"correct": 0.0}),
        question("c", group="c", response="x", **scored),
    ]
    rows[0]["response"] = "<relevance>[2,3]</relevance><analysis>x</analysis><answer>Seine</answer>"
    policy = Writer(lambda *_: "Because [2].")
    run(rows, policy, passes=("1:1",))
    assert [row["id"] for row in read_rows(tmp_path / "out.jsonl")] == ["a"]
    assert len(policy.requests) == 1


def test_rationales_of_another_model_are_refused(run):
    run([question()], Writer(lambda *_: "Because [2]."))
    with pytest.raises(UsageError, match=r"has samples with temperature 1\.0, not 0\.5"):
        run([question()], Writer(lambda *_: "x"), temperature=0.5)


# --- real models ---------------------------------------------------------------------------------


SHORT = ("--max-tokens", "6", "--texts", "8")


def test_rationales_of_a_real_policy(cli, write, model, tmp_path):
    """A random model is cut off, so that only complete rationales are used; none is lost."""
    source = write([question(f"q{i}") for i in range(4)])
    out = tmp_path / "out.jsonl"
    options = ("select", source, "-o", out, *STYLE, "--model", model, *SHORT)
    ran = cli(*options)
    samples = read_rows(tmp_path / "out.jsonl.samples.jsonl")[1:]
    complete = {s["prompt"] for s in samples if s["finish_reason"] != "length"}
    assert len(samples) == 32
    assert ran.code == (0 if complete else 2)
    again = cli(*options)
    assert again.code == ran.code
    assert len(read_rows(tmp_path / "out.jsonl.samples.jsonl")) == 33
    for chat in read_rows(out) if complete else ():
        row = question(response=chat["completion"][0]["content"])
        assert recipe("arena")([decode_row(row)])[0].value == 13.0


def test_rationales_of_a_server(cli, write, model, tmp_path):
    pytest.importorskip("httpx")
    from engine_servers import VllmDouble

    class AnyToken(VllmDouble):
        def refuse(self, tokens):
            """Accept all tokens: the double has a smaller vocabulary than the tokenizer."""

    out = tmp_path / "out.jsonl"
    with AnyToken() as server:
        more = ("--model", server.url, "--backend", "vllm", "--set", f"models.tokenizer={model}")
        ran = cli("select", write([question()]), "-o", out, *STYLE, *more, *SHORT)
    assert len(read_rows(tmp_path / "out.jsonl.samples.jsonl")) == 9
    assert ran.code in (0, 2)


def test_real_rows(cli, write, shared, tmp_path):
    """The gold data of real multi-hop questions become sections that earn the full reward."""
    out = tmp_path / "out.jsonl"
    rows = [row | {"response": "Some reasoning."} for row in ircot(shared / "data")]
    cli("select", write(rows), "-o", out, *STYLE, code=0)
    chats = {chat["id"]: chat["completion"][0]["content"] for chat in read_rows(out)}
    assert len(chats) == len(rows) == 69
    scored = [decode_row(row | {"response": chats[row["id"]]}) for row in rows]
    assert {score.value for score in recipe("arena")(scored)} == {13.0}
