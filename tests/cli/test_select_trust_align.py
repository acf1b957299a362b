"""`rag-rewards select --make trust-sft` and `trust-dpo`: the baselines of Ground-GRPO."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from command_line import card_of, read_rows

from rag_rewards.errors import BackendError
from rag_rewards.evidence.protocols import GenerateAnswer, Models
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.selection.options import SelectOptions
from rag_rewards.selection.select import select
from rag_rewards.testing import TableEntailment, TablePolicy
from rag_rewards.text.refusal import REFUSAL

sys.path.append(str(Path(__file__).parents[1] / "models"))

FRANCE, ITALY = "Paris is in France.", "Rome is in Italy."


def rollout(name, response, *, supported=True, **fields):
    return {
        "group": name,
        "question": f"Which cities of {name}?",
        "answers": [["Paris", "Lutetia"], ["Rome"]],
        "documents": [
            {"text": FRANCE, "supports": [supported, False]},
            {"text": ITALY, "supports": [False, supported]},
        ],
        "response": response,
        "nli": [
            {"premise": FRANCE, "hypothesis": "Paris.", "entailment": 0.9},
            {"premise": ITALY, "hypothesis": "Rome.", "entailment": 0.9},
            {"premise": FRANCE, "hypothesis": "Rome.", "entailment": 0.1},
        ],
        **fields,
    }


GOOD = "Paris [1]. Rome [2]."


def texts(row, *columns):
    return tuple(row[column][0]["content"] for column in columns)


def test_pairs_of_all_kinds_of_questions(cli, write, tmp_path):
    out = tmp_path / "out.jsonl"
    rows = [
        # answerable: the response without hallucination, and the most severe one
        rollout("a", GOOD),
        rollout("a", "Paris [1]."),
        rollout("a", f"<think>No.</think><answer>{REFUSAL}</answer>"),
        rollout("a", "Rome [1]."),
        # unanswerable: the refusal, although no response refuses
        rollout("b", "Paris [1].", supported=False),
        # a list: the gold answers with citations
        rollout(
            "c",
            "Oslo [2]",
            answer_kind="list",
            nli=[
                {"premise": ITALY, "hypothesis": "Which cities of c? Oslo", "entailment": 0.0},
            ],
        ),
    ]
    cli("select", write(rows), "-o", out, "--make", "trust-dpo", code=0)
    a, b, c = read_rows(out)
    assert texts(a, "chosen", "rejected") == (GOOD, "Rome [1].")
    # one of two answers, and the only citation is wrong
    assert (a["severity"], a["hallucination"]) == (2.5, "improper_citation")
    assert texts(b, "chosen", "rejected") == (REFUSAL, "Paris [1].")
    assert (b["severity"], b["hallucination"]) == (1.0, "over_responsiveness")
    assert texts(c, "chosen", "rejected") == ("Paris [1], Rome [2].", "Oslo [2]")
    assert (c["severity"], c["hallucination"]) == (3.0, "inaccurate_answer")
    prompt = a["prompt"][0]["content"]
    assert "<think>" not in prompt
    assert REFUSAL in prompt
    assert "at least one and at most three documents" in prompt
    assert "exactly one document" in c["prompt"][0]["content"]


def test_an_excessive_refusal_is_rejected(cli, write, tmp_path):
    out = tmp_path / "out.jsonl"
    refusal = REFUSAL.replace("'", "’")
    cli(
        *("select", write([rollout("a", GOOD), rollout("a", refusal)])),
        *("-o", out, "--make", "trust-dpo"),
        code=0,
    )
    [row] = read_rows(out)
    assert texts(row, "chosen", "rejected") == (GOOD, refusal)
    assert (row["severity"], row["hallucination"]) == (1.0, "excessive_refusal")


def test_rows_for_fine_tuning(cli, write, tmp_path):
    out = tmp_path / "out.jsonl"
    listed = rollout("c", "", answer_kind="list")
    del listed["response"]
    rows = [rollout("a", GOOD), rollout("b", "x", supported=False), listed]
    cli("select", write(rows), "-o", out, "--make", "trust-sft", code=0)
    assert [texts(row, "completion") for row in read_rows(out)] == [
        (GOOD,),
        (REFUSAL,),
        ("Paris [1], Rome [2].",),
    ]
    assert [set(row) for row in read_rows(out)] == [{"id", "prompt", "completion"}] * 3


def test_questions_without_a_pair_are_counted(cli, write, tmp_path):
    out = tmp_path / "out.jsonl"
    rows = [
        rollout("no hallucination", GOOD),
        rollout("no preferred", "Paris [1]."),
        rollout("truncated", GOOD),
        rollout("truncated", "Paris [1].", finish_reason="length"),
        rollout("empty", GOOD),
        rollout("empty", ""),
        rollout("good", GOOD),
        rollout("good", "Rome [2]."),
    ]
    cli("select", write(rows), "-o", out, "--make", "trust-dpo", code=0)
    assert [row["id"] for row in read_rows(out)] == ["good"]
    assert card_of(out)["counts"]["cannot be made"] == {
        "no response with a hallucination": 2,
        "no complete response without a hallucination": 1,
        "no complete response with a hallucination": 1,
    }


def test_a_pass_rate_is_the_share_without_hallucination(cli, write, tmp_path):
    out = tmp_path / "out.jsonl"
    rows = [rollout("a", GOOD), rollout("a", "Rome [1]."), rollout("b", GOOD)]
    options = ("--make", "trust-sft", "--pass", "0.5:0.5")
    cli("select", write(rows), "-o", out, *options, code=0)
    assert [row["id"] for row in read_rows(out)] == ["a"]


@pytest.mark.parametrize(
    ("fields", "path", "message"),
    [
        ({"nli": []}, "nli", "set the option nli to an entailment model"),
        (
            {"documents": [{"text": FRANCE, "supports": [True]}, {"text": ITALY}]},
            "documents[0].supports",
            "expected 2, found 1",
        ),
        ({"documents": [{"text": FRANCE}, {"text": ITALY}]}, "answerable", "missing"),
    ],
)
def test_rows_that_cannot_be_measured(cli, write, tmp_path, fields, path, message):
    out = tmp_path / "out.jsonl"
    rows = [rollout("a", GOOD, **fields), rollout("b", GOOD)]
    cli("select", write(rows), "-o", out, "--make", "trust-sft", code=3)
    [error] = read_rows(tmp_path / "out.jsonl.errors.jsonl")
    assert error["error"]["path"] == path
    assert message in error["error"]["message"]


def test_a_list_without_support(cli, write, tmp_path):
    out = tmp_path / "out.jsonl"
    row = rollout("a", "", answer_kind="list", answerable=True)
    row["documents"] = [{"text": FRANCE}]
    del row["response"]
    cli("select", write([row, rollout("b", GOOD)]), "-o", out, "--make", "trust-sft", code=0)
    [(reason, count)] = card_of(out)["counts"]["cannot be made"].items()
    assert reason.startswith("documents[0].supports: missing: state which gold answers")
    assert count == 1


def test_a_recipe_without_the_prompt(cli, write, tmp_path):
    source = write([rollout("a", GOOD)])
    ran = cli("select", source, "-o", tmp_path / "o", "--make", "trust-sft", "-r", "arena", code=2)
    assert "--recipe arena has no prompt for Trust-Align: use ground-grpo" in ran.err


# --- preferred responses of a model --------------------------------------------------------------


class Writer(TablePolicy):
    """A policy whose texts, or errors, are a function of the prompt."""

    def __init__(self, write):
        super().__init__(texts={})
        self.write = write

    async def generate(self, requests):
        self.requests += requests
        written = [self.write(self.tokenizer.decode(request.prompt)) for request in requests]
        return [
            text if isinstance(text, Exception) else GenerateAnswer(text, (), "stop")
            for text in written
        ]


@pytest.fixture
def run(monkeypatch, write, tmp_path):
    """Return a function that selects rows with a policy and an entailment model."""

    def select_rows(rows, policy, kind="trust-dpo", **options):
        table = {(FRANCE, "It is Paris."): 0.9, (ITALY, "Then Rome."): 0.9}
        nli = TableEntailment(lambda *pair: table.get(pair, 0.2))
        models = Models(policy=policy, entailment=nli)
        monkeypatch.setattr(ModelOptions, "load", lambda self: models)
        source, out = str(write(rows)), str(tmp_path / "out.jsonl")
        chosen = ModelOptions(model="double", nli="double")
        return select(SelectOptions(source, out, make=kind, models=chosen, **options))

    return select_rows


def test_a_model_writes_the_preferred_response(run, tmp_path):
    prompts = []
    policy = Writer(lambda p: prompts.append(p) or "It is Paris [Answer 1]. Then Rome [Answer 2].")
    rows = [
        rollout("a", GOOD),
        rollout("a", "Rome [1]."),
        rollout("b", "Paris [1].", supported=False),
        rollout("c", "Rome [2]", answer_kind="list", nli=[]),
    ]
    rows[3]["nli"] = [
        {"premise": ITALY, "hypothesis": "Which cities of c? Rome", "entailment": 0.9}
    ]
    result = run(rows, policy)
    a, b, c = read_rows(tmp_path / "out.jsonl")
    # The written response is preferred to a response of the group.
    assert texts(a, "chosen", "rejected") == ("It is Paris [1]. Then Rome [2].", "Rome [1].")
    assert texts(b, "chosen") == (REFUSAL,)
    assert texts(c, "chosen") == ("Paris [1], Rome [2].",)
    # Only the first question needs a text.
    assert (len(prompts), result.new_texts) == (1, 1)
    assert "Answer 1: Paris\nAnswer 2: Rome" in prompts[0]
    assert "Answer 1: Paris" not in a["prompt"][0]["content"]


def test_a_written_response_with_a_hallucination_is_not_used(run, tmp_path):
    policy = Writer(lambda _: "Rome and Paris [Answer 1, Answer 2].")
    result = run([rollout("a", GOOD), rollout("b", "Rome [1].")], policy, "trust-sft")
    [row] = read_rows(tmp_path / "out.jsonl")
    assert texts(row, "completion") == (GOOD,)
    assert result.unsuitable == {"no complete response without a hallucination": 1}


def test_an_error_of_every_row_is_in_the_message(cli, write, tmp_path):
    source = write([rollout("a", "Rome and Paris [1].", nli=[])])
    ran = cli("select", source, "-o", tmp_path / "out.jsonl", "--make", "trust-sft", code=2)
    assert "every row is in error, the first: line 1" in ran.err


def test_failures_of_the_writer_lose_nothing(run, tmp_path):
    good = "It is Paris [Answer 1]. Then Rome [Answer 2]."
    rows = [rollout("a", GOOD), rollout("a", "Rome [1]."), rollout("b", "Rome [1].")]
    first = run(rows, Writer(lambda p: BackendError("busy") if "of a?" in p else good), "trust-sft")
    assert (first.rows_in_error, first.written) == (2, 1)
    errors = read_rows(tmp_path / "out.jsonl.errors.jsonl")
    assert [(e["line"], e["error"]["message"]) for e in errors] == [(1, "busy"), (2, "busy")]
    second = run(rows, Writer(lambda _: good), "trust-sft")
    assert (second.written, second.new_texts, second.stored_texts) == (2, 1, 1)


def test_real_models(cli, write, tmp_path):
    """A policy and an entailment model with random weights: each row is used or counted."""
    pytest.importorskip("torch", reason="torch is not installed")
    from tiny_models import save

    model = save(tmp_path / "policy")
    out = tmp_path / "out.jsonl"
    rows = [rollout("a", GOOD), rollout("b", "Paris [1].", supported=False)]
    options = ("--make", "trust-sft", "--model", model, "--max-tokens", "8", "--texts", "2")
    ran = cli("select", write(rows), "-o", out, *options, code=0)
    assert "texts of the policy: 2 new, 0 from earlier runs" in ran.err
    assert [row["id"] for row in read_rows(out)] == ["a", "b"]
    assert "2 from earlier runs" in cli("select", write(rows), "-o", out, *options, code=0).err
