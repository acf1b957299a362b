"""`evaluate`: metrics of files, as tables and as JSON."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
BACKENDS = Path(__file__).parents[1] / "models"
FEW = ("--resamples", "100")


def evaluate_json(cli, *arguments, code=0, **options):
    return json.loads(cli("evaluate", *arguments, *FEW, "-o", "-", code=code, **options).out)


def values_of(report):
    return {name: value["value"] for name, value in report["values"].items()}


def answer(text, **fields):
    return {"response": f"<answer>{text}</answer>", "answers": ["Paris"], **fields}


def test_values_counts_and_intervals(cli):
    result = evaluate_json(cli, EXAMPLES / "arena.jsonl", "-m", "em,relevance,pass@2")
    [run] = result["runs"]
    assert (run["rows"], run["errors"], run["groups"]) == (41, 0, 8)
    em, relevance, passed = run["metrics"]
    assert em["counts"] == {"right": 16, "rows": 41}
    value = em["values"]["em"]
    assert value["value"] == pytest.approx(16 / 41)
    assert value["low"] < value["value"] < value["high"]
    assert set(relevance["values"]) == {"relevance", "precision", "recall"}
    assert (passed["unit"], passed["units"], passed["prompts"]) == ("group", 8, 8)
    assert result["signature"].endswith(
        ' evaluate {"settings":{"by":[],"metrics":["em","relevance","pass@2"],'
        '"resamples":100,"seed":0}}'
    )


def test_equal_runs_have_equal_outputs(cli):
    arguments = ("evaluate", EXAMPLES / "arena.jsonl", "-m", "f1", "-o", "-", *FEW)
    first = cli(*arguments, code=0).out
    assert cli(*arguments, code=0).out == first


def test_em_is_the_accuracy_of_the_recipe(cli, tmp_path):
    """The mean of `correct` in the scored rows equals the metric."""
    scored = tmp_path / "scored.jsonl"
    cli("score", EXAMPLES / "naive-grpo.jsonl", "-r", "naive-grpo", "-o", scored, code=0)
    rows = [json.loads(line) for line in scored.read_text().splitlines()]
    result = evaluate_json(cli, scored, "-m", "em(reads=answer,normalizer=triviaqa),group-signal")
    em, signal = result["runs"][0]["metrics"]
    assert values_of(em)["em"] == pytest.approx(sum(r["correct"] for r in rows) / len(rows))
    assert values_of(signal)["accuracy.std"] > 0


def test_the_examples_of_other_recipes(cli):
    result = evaluate_json(cli, EXAMPLES / "truthrl.jsonl", "-m", "truthfulness,majority@2")
    assert values_of(result["runs"][0]["metrics"][0])["uncertainty"] > 0
    result = evaluate_json(
        cli, EXAMPLES / "lear.jsonl", "-m", "compression-ratio,answer-recall,align"
    )
    compression, recall, align = result["runs"][0]["metrics"]
    assert values_of(compression)["compression-ratio"] > 1
    assert 0 < values_of(recall)["answer-recall"] < 1
    assert (
        align["counts"]["unread"] == align["counts"]["rows"]
    )  # its reasoning is in another section


def test_tables(cli, write):
    path = write([answer("Paris", id="a", hops=1), answer("Rome", id="b", hops=2), "{"])
    ran = cli("evaluate", path, "-m", "em,judge,pass@2", "--by", "hops", *FEW, code=3)
    assert "3 rows" in ran.out
    assert "1 in error" in ran.out
    assert "right 1 · rows 2" in ran.out
    assert "judge: 2 rows left out, the first: row a: verdicts.accuracy: missing" in ran.out
    assert "line 3: not JSON" in ran.out
    assert "by hops" in ran.out
    assert '"metrics":["em","judge","pass@2"]' in ran.err


def test_control_characters_of_rows_are_not_printed(cli, write):
    path = write([answer("Paris", type="\x1b[31m"), {"response": "x", "id": "\x1b[2J"}])
    ran = cli("evaluate", path, "-m", "em", "--by", "type", *FEW, code=3)
    assert "\x1b" not in ran.out
    assert "␛[31m" in ran.out


def test_output_file_and_table(cli, write, tmp_path):
    path, out = write([answer("Paris")]), tmp_path / "found.json"
    ran = cli("evaluate", path, "-m", "em", "-o", out, *FEW, code=0)
    assert "1.0000" in ran.out
    assert json.loads(out.read_text()) == evaluate_json(cli, path, "-m", "em")
    assert "would overwrite" in cli("evaluate", path, "-m", "em", "-o", path, code=2).err
    assert json.loads(path.read_text())["answers"] == ["Paris"]


def test_a_field_in_the_list_of_metrics_or_as_an_option(cli, write):
    path = write([answer("Paris", kind="x"), answer("Rome", kind="y")])
    listed = evaluate_json(cli, path, "-m", "em,by:kind")
    assert listed == evaluate_json(cli, path, "-m", "em", "--by", "kind")
    parts = listed["runs"][0]["by"]["kind"]
    assert {label: values_of(reports[0]) for label, reports in parts.items()} == {
        "x": {"em": 1.0},
        "y": {"em": 0.0},
    }


def test_an_output_that_cannot_be_written_fails_before_rows_are_read(cli, write, tmp_path):
    path = tmp_path / "missing" / "result.json"
    failed = cli("evaluate", write([b"no row"]), "-m", "em", "-o", path, code=2)
    assert f"cannot write {path}" in failed.err
    good = tmp_path / "result.json"
    cli("evaluate", write([answer("Paris")]), "-m", "em", "-o", good, code=0)
    assert [each.name for each in tmp_path.glob("result*")] == ["result.json"]


def test_the_page_logs_the_numbers_of_a_file(cli, write, monkeypatch, tmp_path):
    """The code of docs/evaluate.md, with a tracker that records its numbers."""
    monkeypatch.chdir(tmp_path)
    rows = [answer("Paris"), answer("Rome")]
    cli("evaluate", write(rows), "-m", "em,f1(reads=answer)", "-o", "summary.json", code=0)
    page = (Path(__file__).parents[2] / "docs" / "evaluate.md").read_text("utf-8")
    section = page.split("## Experiment trackers", 1)[1].split("\n## ", 1)[0]
    blocks = re.findall(r"```python network\n(.*?)```", section, re.DOTALL)
    run, mlflow, writer = MagicMock(), MagicMock(), MagicMock()
    wandb = MagicMock(init=lambda **options: MagicMock(__enter__=lambda _: run))
    tensorboard = MagicMock(SummaryWriter=lambda _: MagicMock(__enter__=lambda _: writer))
    modules = {"wandb": wandb, "mlflow": mlflow, "torch.utils.tensorboard": tensorboard}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    exec("\n".join(blocks), {})  # noqa: S102
    numbers = {"em/em": 0.5, "f1(reads=answer)/f1": 0.5}
    run.log.assert_called_once_with(numbers)
    mlflow.log_metrics.assert_called_once_with({"em/em": 0.5, "f1_reads_answer_/f1": 0.5})
    assert dict(call.args for call in writer.add_scalar.call_args_list) == numbers


def test_further_files_are_compared_with_the_first(cli, write):
    base = write([answer("Rome", id=i) for i in range(20)], "base.jsonl")
    other = write([answer("Paris", id=i) for i in range(1, 21)], "other.jsonl")
    third = write([answer("Rome", id="x")], "third.jsonl")
    result = evaluate_json(cli, base, other, third, "-m", "em")
    first, second = result["comparisons"]
    assert first["rows"] == {"shared": 19, "only_base": 1, "only_other": 1, "twice": 0}
    [difference] = first["differences"]
    assert (difference["difference"], difference["units"], difference["holds"]) == (1.0, 19, True)
    assert second["rows"]["shared"] == 0
    assert second["differences"][0]["difference"] is None
    output = cli("evaluate", base, other, "-m", "em", *FEW, code=0).out
    assert "19 rows in both files, 1 only in the first, 1 only in the second" in output
    assert "+1.0000 to +1.0000" in output


def test_reference_reliance(cli, write):
    documents = [{"text": "Paris"}]
    with_documents = write([answer("Paris", id=i, documents=documents) for i in "ab"], "with.jsonl")
    without = write([answer("Rome", id="a"), answer("Paris", id="b")], "without.jsonl")
    result = evaluate_json(cli, with_documents, without, "-m", "reference-reliance")
    assert values_of(result["pairs"][0]) == {
        "reference-reliance": 0.5,
        "with": 1.0,
        "without": 0.5,
    }
    assert result["comparisons"] == []
    output = cli("evaluate", with_documents, without, "-m", "reference-reliance", *FEW, code=0).out
    assert "with and without documents" in output
    assert (
        "documents first"
        in cli("evaluate", without, with_documents, "-m", "reference-reliance", code=2).err
    )
    assert (
        "requires two files"
        in cli("evaluate", with_documents, "-m", "reference-reliance", code=2).err
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{empty}", "-m", "em"], "empty.jsonl has no rows"),
        (["{rows}", "-m", "exact"], "unknown metric 'exact'"),
        (["{rows}", "-m", ","], "--metrics is empty"),
        (["{rows}", "-m", "em", "--by", "hops"], "no row has 'hops'"),
        (["{rows}", "-m", "em", "--resamples", "1"], "at least 2"),
        (["{rows}", "-m", "majority@0"], "at least 1"),
        (["-", "-", "-m", "em"], "only once"),
        (["/no/such/file", "-m", "em"], "cannot read"),
        (["{rows}", "-m", "judge", "--judge", "http://127.0.0.1:9/v1"], "--judge-model"),
    ],
)
def test_unusable_arguments(cli, write, arguments, message):
    paths = {"{empty}": write([], "empty.jsonl"), "{rows}": write([answer("Paris")])}
    ran = cli("evaluate", *[paths.get(a, a) for a in arguments], code=2)
    assert message in ran.err


def test_a_file_of_broken_rows(cli, write):
    file = write(["{", "[]"])
    result = evaluate_json(cli, file, "-m", "em,trust-score,group-signal", "--by", "hops", code=3)
    [run] = result["runs"]
    assert run["by"] == {"hops": {}}
    assert (run["rows"], run["errors"]) == (2, 2)
    assert sum(fault["count"] for fault in run["broken"]) == 2
    assert all(v is None for m in run["metrics"] for v in values_of(m).values())


def test_too_small_groups_are_counted_and_are_not_an_error(cli, write):
    rows = [answer("Paris", group="g", reward=1.0), answer("Rome", group="h", reward=0.0)]
    result = evaluate_json(cli, write(rows), "-m", "pass@2,group-signal")
    for report in result["runs"][0]["metrics"]:
        assert [(f["unit"], f["count"]) for f in report["left_out"]] == [("group", 2)]


def test_standard_input_and_parquet(cli, write, tmp_path):
    data = write([answer("Paris")]).read_bytes()
    assert values_of(evaluate_json(cli, "-", "-m", "em", stdin=data)["runs"][0]["metrics"][0]) == {
        "em": 1.0
    }
    arrow = pytest.importorskip("pyarrow")
    path = tmp_path / "rows.parquet"
    arrow.parquet = pytest.importorskip("pyarrow.parquet")
    arrow.parquet.write_table(arrow.Table.from_pylist([answer("Rome", kind="x")]), path)
    result = evaluate_json(cli, path, "-m", "em", "--by", "kind")
    assert list(result["runs"][0]["by"]["kind"]) == ["x"]


# --- a subset of the questions -------------------------------------------------------------------


def test_questions_that_almost_no_method_answers(cli, write, tmp_path):
    """TruthRL, Figure 3b: the outcomes of one method for the difficult questions."""

    def run(name, *truths):
        boxes = {"right": "Paris", "unsure": "I don't know", "wrong": "Rome"}
        return [
            {
                "question": f"What of {at}?",
                "group": f"What of {at}?",
                "id": f"{name} {at}",
                "response": f"\\boxed{{{boxes[truth]}}}",
                "answers": ["Paris"],
                "correct": float(truth == "right"),
                "reward": 0.0,
            }
            for at, truth in enumerate(truths)
        ]

    prompting = run("prompting", "right", "wrong", "right", "wrong")
    sft = run("sft", "right", "wrong", "wrong", "wrong")
    truthrl = run("truthrl", "right", "unsure", "right", "wrong")
    every = write([*prompting, *sft, *truthrl], "all.jsonl")
    difficult = tmp_path / "difficult.jsonl"
    cli("select", every, "-o", difficult, "--sort", "--pass", "0:0.2", code=0)
    arguments = (write(truthrl), "-m", "truthfulness(verifier=exact)")
    result = evaluate_json(cli, *arguments, "--questions", difficult)
    [report] = result["runs"][0]["metrics"]
    assert report["counts"] == {"correct": 0, "uncertain": 1, "rows": 2}
    assert values_of(report)["hallucination"] == 0.5
    assert '"questions":"' in result["signature"]
    everything = evaluate_json(cli, *arguments)
    assert everything["runs"][0]["rows"] == 4
    assert "questions" not in everything["signature"]


def test_unusable_files_of_questions(cli, write):
    rows = write([answer("Paris", question="Which city?")])
    other = write([{"question": "Which river?"}], "other.jsonl")
    error = cli("evaluate", rows, "-m", "em", "--questions", other, code=2).err
    assert "has no rows of the questions in" in error
    empty = write([{"id": 1}], "empty.jsonl")
    error = cli("evaluate", rows, "-m", "em", "--questions", empty, code=2).err
    assert "row 1 has no `question`: add it" in error
    broken = write([answer("Paris", question="Which city?"), "{", answer("Rome")], "broken.jsonl")
    ran = cli("evaluate", broken, "-m", "em", "--questions", rows, "-o", "-", code=3)
    [run] = json.loads(ran.out)["runs"]
    assert (run["rows"], run["errors"]) == (2, 1)


# --- models -------------------------------------------------------------------------------------


@pytest.fixture
def backends(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(BACKENDS), *sys.path])


def test_only_rows_without_a_verdict_are_sent_to_the_judge(cli, write, backends):
    pytest.importorskip("httpx")
    from judge_server import JudgeServer, Reply

    rows = [answer("Lutetia", id="a"), answer("Rome", id="b", verdicts={"accuracy": 0})]
    with JudgeServer(lambda request: Reply("yes")) as server:
        judge = ["--judge", server.url, "--judge-model", "m"]
        result = evaluate_json(cli, write(rows), "-m", "judge", *judge)
        assert len(server.requests) == 1
    assert values_of(result["runs"][0]["metrics"][0]) == {"judge": 0.5}
    assert '"judge":"openai:m' in result["signature"]
    assert result["asked"] == "1 verdicts"


def test_a_cascade_sends_only_undecided_answers_to_the_judge(cli, write, backends, tmp_path):
    """`score` and `evaluate` send the same answers and report their share."""
    pytest.importorskip("httpx")
    from judge_server import JudgeServer, Reply

    def judge(request):
        accepts = "Rome, Paris" in request.material
        return Reply(f'{{"explanation": "as asked", "score": {int(accepts)}}}')

    texts = ("It is Paris.", "Rome, Paris", "It is not Paris.", "I don't know.")
    sections = "<relevance>[1]</relevance><analysis>x</analysis><answer>{}</answer>"
    rows = [
        {
            "id": text,
            "question": "Which city is it?",
            "documents": [{"text": "Paris"}],
            "supporting": [1],
            "answers": ["Paris"],
            "response": sections.format(text),
        }
        for text in texts
    ]
    scored = tmp_path / "scored.jsonl"
    recipe = ("-r", "arena", "--set", "accuracy.metric=cascade", "--keep-evidence")
    with JudgeServer(judge) as server:
        model = ["--judge", server.url, "--judge-model", "m"]
        ran = cli("score", write(rows), "-o", scored, *recipe, *model, code=0)
        assert len(server.requests) == 2
        result = evaluate_json(cli, write(rows), "-m", "cascade", *model)
        assert len(server.requests) == 4
    assert "answers: 1 right · 1 wrong · 2 decided by the judge" in ran.err
    found = [json.loads(line) for line in scored.read_text().splitlines()]
    assert [row["correct"] for row in found] == [1.0, 1.0, 0.0, 0.0]
    decisions = [row["details"]["decision"] for row in found]
    assert decisions == ["right", "undecided", "undecided", "wrong"]
    deciders = [row["details"].get("decided_by") for row in found]
    assert deciders == [None, "judge", "judge", None]
    assert [row.get("verdicts") for row in found] == [None, {"accuracy": 1}, {"accuracy": 0}, None]
    expected = {"cascade": 0.5, "judge_share": 0.5}
    assert values_of(result["runs"][0]["metrics"][0]) == expected
    without_judge = evaluate_json(cli, scored, "-m", "cascade")
    assert values_of(without_judge["runs"][0]["metrics"][0]) == expected
    # Without a judge, only the undecided rows are in error.
    failed = cli("score", write(rows), "-o", scored, *recipe, code=3)
    assert "2 scored, 2 in error" in failed.err


def test_a_cascade_also_asks_about_doubtful_answers(cli, write):
    rows = [
        {"answers": ["Paris"], "response": f"<answer>{text}</answer>", "verdicts": {"accuracy": 0}}
        for text in ("Paris", "It is Paris.", "not Paris", "")
    ]
    shares = {}
    for metric in ("cascade", "cascade(undecided=doubtful)"):
        report = evaluate_json(cli, write(rows), "-m", metric)["runs"][0]["metrics"][0]
        shares[metric] = values_of(report)
    assert shares == {
        "cascade": {"cascade": 0.5, "judge_share": 0.25},
        "cascade(undecided=doubtful)": {"cascade": 0.25, "judge_share": 0.5},
    }
    failed = cli("evaluate", write(rows), "-m", "cascade(certainty=0.9)", code=2)
    assert (
        "metric cascade has no setting 'certainty' since version 0.8.0; use 'undecided'"
        in failed.err
    )


def test_verdicts_on_the_reasoning_are_requested_once(cli, write, backends, tmp_path):
    """The reward, the metric and a replay use the same verdict of the judge."""
    pytest.importorskip("httpx")
    from judge_server import JudgeServer, Reply

    def judge(request):
        accepts = "19 = 19" in request.material
        assert "You grade the reasoning" in request.body["messages"][0]["content"]
        return Reply(f'{{"explanation": "as asked", "score": {int(accepts)}}}')

    rows = [
        {
            "question": "Which number?",
            "response": f"<think>{thought}</think> \\boxed{{19}}",
            "answers": ["19"],
            "id": name,
            "group": "g",
        }
        for name, thought in (("a", "19 = 19"), ("b", "hm"))
    ]
    scored, again = tmp_path / "scored.jsonl", tmp_path / "again.jsonl"
    recipe = ("-r", "truthrl", "--set", "reasoning.combine=multiplicative")
    with JudgeServer(judge) as server:
        model = ["--judge", server.url, "--judge-model", "m", "--judge-cache", tmp_path / "cache"]
        for output in (scored, again):
            cli("score", write(rows), "-o", output, *recipe, "--keep-evidence", *model, code=0)
        result = evaluate_json(cli, write(rows), "-m", "reasoning-score", *model)
        assert len(server.requests) == 2  # one per response: the cache has the others
    assert scored.read_bytes() == again.read_bytes()
    found = [json.loads(line) for line in scored.read_text().splitlines()]
    assert [row["reward"] for row in found] == [2.0, 1.0]
    assert [row["verdicts"] for row in found] == [{"reasoning": 1}, {"reasoning": 0}]
    expected = {"reasoning-score": 0.5, "correct": 0.5, "uncertain": None, "incorrect": None}
    assert values_of(result["runs"][0]["metrics"][0]) == expected
    without_judge = evaluate_json(cli, scored, "-m", "reasoning-score")
    assert values_of(without_judge["runs"][0]["metrics"][0]) == expected
    additive = ("--set", "reasoning.combine=additive")
    cli("score", scored, "-o", again, *recipe, *additive, code=0)
    rewards = [json.loads(line)["reward"] for line in again.read_text().splitlines()]
    assert rewards == [1.5, 1.0]
    cli("replay", scored, *recipe, *additive, code=0)


def test_other_metrics_do_not_need_a_judge_that_is_down(cli, write, unused_address, tmp_path):
    pytest.importorskip("httpx")
    config = tmp_path / "models.yaml"
    config.write_text("models: {judge_retries: 0}\n")
    down = ["--judge", unused_address, "--judge-model", "m", "--config", config]
    result = evaluate_json(cli, write([answer("Rome")]), "-m", "judge,em", *down, code=3)
    judge_report, em = result["runs"][0]["metrics"]
    assert (values_of(judge_report), values_of(em)) == ({"judge": None}, {"em": 0.0})
    assert judge_report["left_out"][0]["type"] == "BackendError"


def test_perplexity_with_a_policy(cli, write, tmp_path, backends):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    import tiny_models

    rows = [answer(text, id=text, supporting=[1]) for text in ("Paris", "Rome")]
    documents = [{"text": "Paris is the capital of France."}, {"text": "Rome is a city."}]
    path = write([each | {"question": "Capital?", "documents": documents} for each in rows])
    without = evaluate_json(cli, path, "-m", "perplexity", code=3)
    assert without["runs"][0]["metrics"][0]["left_out"][0]["path"] == "logprobs"
    model = tiny_models.save(tmp_path / "model")
    result = evaluate_json(cli, path, "-m", "perplexity", "--model", model)
    (metric,) = result["runs"][0]["metrics"]
    assert metric["counts"]["rows"] == 2
    assert all(value > 1 for value in values_of(metric).values())
    assert '"policy":"transformers model' in result["signature"]


def test_trust_score_with_an_entailment_model(cli, write, tmp_path, backends):
    pytest.importorskip("torch")
    from test_nli import save_classifier

    lines = (EXAMPLES / "ground-grpo.jsonl").read_text().splitlines()
    rows = [{k: v for k, v in json.loads(line).items() if k != "nli"} for line in lines]
    path, nli = write(rows), save_classifier(tmp_path / "nli")
    without = evaluate_json(cli, path, "-m", "trust-score", code=3)
    assert without["runs"][0]["metrics"][0]["left_out"][0]["path"] == "nli"
    result = evaluate_json(cli, path, "-m", "trust-score,align", "--nli", nli)
    trust, align = result["runs"][0]["metrics"]
    assert trust["counts"]["rows"] == align["counts"]["rows"] == len(rows)
    assert "pairs" in result["asked"]


def test_undecided_answers(cli, write, tmp_path):
    rows = [
        answer(text, id=str(i), question="Which city?")
        for i, text in enumerate(("Paris", "Paris or Rome", "Rome", ""))
    ]
    scored = tmp_path / "scored.jsonl"
    result = cli("score", write(rows), "-r", "naive-grpo", "--hardened", "-o", scored, code=0)
    counts = "answers: 1 right · 1 wrong · 1 undecided · 1 with nothing in common"
    warning = "warning: 1 of 4 answers (25%) are neither right nor wrong by rules"
    assert counts in result.err
    assert warning in result.err
    out = cli("evaluate", scored, *FEW, "-m", "em", code=0).out
    assert counts in out
    assert warning in out
    [run] = evaluate_json(cli, scored, "-m", "em")["runs"]
    assert run["decisions"] == {
        "right": 1,
        "undecided": 1,
        "nothing in common": 1,
        "wrong": 1,
    }
