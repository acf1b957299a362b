"""`rag-rewards preflight`: rollouts that are not ready for a training, with their fixes."""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from command_line import ROOT, Result

from rag_rewards.recipes import RECIPES
from rag_rewards.recipes.output_forms import parts_of
from rag_rewards.rollout import Rollout
from rag_rewards.rows import decode_row

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))

from judge_server import JudgeServer, Reply

Row = dict[str, Any]
Rows = list[Row]
Change = Callable[[Rows], Rows]
SERVER = "http://127.0.0.1:9"
"""An address at which nothing listens."""
JUDGE = ("--judge", f"{SERVER}/v1", "--judge-model", "x", "--set", "models.judge_retries=0")
EXACT = ("--set", "verifier=exact")


def example(recipe: str) -> Rows:
    """Return the complete responses of the examples of a recipe, and copies up to 64 or more."""
    lines = (ROOT / f"examples/{recipe}.jsonl").read_text().splitlines()
    marks = parts_of(RECIPES[recipe].output, recipe)
    rows = [json.loads(line) for line in lines]
    rows = [row for row in rows if is_complete(decode_row(row), marks)]
    if recipe in ("arena", "naive-grpo"):  # most other answers are right for a lenient match only
        rows = [row for row in rows if PLAIN.search(row["id"])]
    copies = -(-64 // len(rows))
    return [
        json.loads(json.dumps(row)) | {"id": f"{row['id']}-{i}", "group": f"{row['group']}-{i}"}
        for i in range(copies)
        for row in rows
    ]


def is_complete(row: Rollout, marks: Iterable[str]) -> bool:
    text = row.parsed.text
    return row.finish_reason is None and text.strip() != "" and all(mark in text for mark in marks)


PLAIN = re.compile("right|wrong|refuses|rival|neighbour|sharp|slip|iso$")


# --- changes of rows ------------------------------------------------------------------------------


def as_is(rows: Rows) -> Rows:
    return rows


def without(*names: str) -> Change:
    return lambda rows: [{k: v for k, v in row.items() if k not in names} for row in rows]


def each(**fields: Any) -> Change:
    return lambda rows: [row | fields for row in rows]


def renamed(old: str, new: str) -> Change:
    return lambda rows: [{(new if k == old else k): v for k, v in row.items()} for row in rows]


def text(change: Callable[[str], str]) -> Change:
    """Change the response, or the text of each turn."""

    def changed(rows: Rows) -> Rows:
        for row in rows:
            if "response" in row:
                row["response"] = change(str(row["response"]))
            for turn in row.get("turns", ()):
                turn["text"] = change(turn["text"])
        return rows

    return changed


def both(*changes: Change) -> Change:
    def changed(rows: Rows) -> Rows:
        for change in changes:
            rows = change(rows)
        return rows

    return changed


def first_of_group(rows: Rows) -> Rows:
    return [next(members) for _, members in groupby(rows, key=lambda row: row["group"])]


def copied_in_group(rows: Rows) -> Rows:
    groups = (list(members) for _, members in groupby(rows, key=lambda row: row["group"]))
    return [group[0] | {"id": row["id"]} for group in groups for row in group]


def interleaved(rows: Rows) -> Rows:
    return rows[::2] + rows[1::2]


def ungrouped(rows: Rows) -> Rows:
    return without("group", "question")(rows)


def one_group(rows: Rows) -> Rows:
    return each(group="train")(rows)


def last_turn(rows: Rows) -> Rows:
    """Keep the text of the last turn as the response, without the searches."""
    responses = [decode_row(row).parsed.text for row in rows]
    rows = without("turns", "documents")(rows)
    return [row | {"response": each} for row, each in zip(rows, responses, strict=True)]


def boxed(answer: str) -> Change:
    """Replace the response by an answer, which a judge rejects."""
    response = rf"<think>It is clear.</think> \boxed{{{answer}}}"
    return each(response=response, verdicts={"outcome": 0})


# --- rollouts that are ready ----------------------------------------------------------------------

READY = (
    *("arena", "ground-grpo-stage1", "ground-grpo", "lear", "ctrl-rag", "naive-grpo", "dr-tulu"),
    *("truthrl", "rubric", "ruler", "search-r1", "stepsearch", "igpo", "carr", "binary-rar"),
    *("rlcr", "autorefine", "ikea", "rag-env", "hiprag", "canoe", "s3"),
)


@pytest.mark.parametrize("recipe", READY)
def test_good_rollouts_have_no_findings(cli, write, recipe):
    rows = example(recipe)
    result = json.loads(cli("preflight", write(rows), "-r", recipe, "--json", code=0).out)
    assert (result["verdict"], result["findings"]) == ("ready", [])
    assert result["sampled"] == result["rows"] == len(rows)
    assert result["measures"]


# --- rollouts that are not ------------------------------------------------------------------------

LONG = text(lambda response: response + " word" * 501)
CASES: list[tuple[str, str, Change, str, str, tuple[str, ...]]] = [
    # recipe, rows, change, code, part of the fix, options
    # responses in the form of another recipe
    ("truthrl", "arena", as_is, "form", "-r arena", ()),
    ("truthrl", "lear", as_is, "form", "-r lear", ()),
    ("truthrl", "rlcr", as_is, "form", "-r rlcr", ()),
    ("truthrl", "canoe", as_is, "form", "-r canoe", ()),
    ("truthrl", "naive-grpo", as_is, "form", "-r naive-grpo", ()),
    ("truthrl", "search-r1", as_is, "form", "-r search-r1", ()),
    ("naive-grpo", "truthrl", as_is, "form", "-r truthrl", ()),
    ("rlcr", "truthrl", as_is, "form", "-r truthrl", ()),
    ("rlcr", "arena", as_is, "form", "-r arena", ()),
    ("arena", "lear", each(supporting=[1]), "form", "-r lear", ()),
    ("arena", "arena", text(lambda _: "The Seine."), "form", "prepare -r arena", ()),
    ("search-r1", "search-r1", text(lambda _: "No tags."), "form", "prepare -r search-r1", ()),
    ("ground-grpo", "ground-grpo", text(lambda _: "Paris"), "form", "prepare -r ground-grpo", ()),
    ("rag-total", "arena", text(lambda _: "It"), "form", "prepare -r rag-total", ("--hardened",)),
    (
        *("arena", "arena", both(text(lambda _: "The Seine."), each(prompt="Answer briefly."))),
        *("prompt", "<relevance>", ()),
    ),
    # missing gold data
    ("arena", "arena", without("supporting"), "fields", "`supporting`", ()),
    ("arena", "arena", without("answers"), "fields", "`answers`", ()),
    ("arena", "arena", renamed("answers", "gold"), "fields", "--columns answers=gold", ()),
    ("lear", "lear", without("answers"), "fields", "prepare … -r lear", ()),
    ("ground-grpo", "ground-grpo", without("answerable"), "fields", "`answerable`", ()),
    ("ctrl-rag", "ctrl-rag", without("supporting"), "fields", "`supporting`", ()),
    ("naive-grpo", "naive-grpo", without("answers"), "fields", "`answers`", ()),
    ("truthrl", "truthrl", without("answers"), "fields", "`answers`", ()),
    ("search-r1", "search-r1", without("answers"), "fields", "`answers`", ()),
    ("rlcr", "rlcr", without("answers"), "fields", "`answers`", ()),
    ("ikea", "ikea", without("answers"), "fields", "`answers`", ()),
    ("rubric", "rubric", without("rubric"), "fields", "`rubric`", ()),
    ("carr", "carr", without("rubrics"), "fields", "`rubrics`", ()),
    ("rag-env", "rag-env", without("supporting"), "fields", "`supporting`", ()),
    ("arena", "arena", each(supporting=[9]), "rows", "`supporting`", ()),
    ("arena", "arena", each(documents=[{"text": 7}]), "rows", "`documents`", ()),
    # missing evidence
    ("truthrl", "truthrl", without("verdicts"), "evidence", "verifier=exact", ()),
    ("lear", "lear", without("masked_answers"), "evidence", "--model", ()),
    ("ctrl-rag", "ctrl-rag", without("logprobs"), "evidence", "--model", ()),
    ("igpo", "igpo", without("turn_logprobs"), "evidence", "--model", ()),
    ("rubric", "rubric", without("verdicts"), "evidence", "--judge", ()),
    ("ruler", "ruler", without("verdicts"), "evidence", "--judge", ()),
    ("hiprag", "hiprag", without("verdicts"), "evidence", "--judge", ()),
    ("canoe", "canoe", without("generated_answers"), "evidence", "models.generator", ()),
    ("ground-grpo", "ground-grpo", without("nli"), "evidence", "citation.judge_by=gold", ()),
    # models that do not respond
    ("truthrl", "truthrl", as_is, "model", SERVER, JUDGE),
    ("rubric", "rubric", without("verdicts"), "model", "--judge", JUDGE),
    ("ruler", "ruler", as_is, "model", "--judge", JUDGE),
    ("dr-tulu", "dr-tulu", as_is, "model", "--judge", JUDGE),
    ("binary-rar", "binary-rar", as_is, "model", "--judge", JUDGE),
    ("ground-grpo", "ground-grpo", as_is, "model", "--nli", ("--nli", SERVER)),
    ("ctrl-rag", "ctrl-rag", as_is, "model", "--model", ("--model", SERVER, "--backend", "vllm")),
    ("igpo", "igpo", as_is, "model", SERVER, ("--model", SERVER, "--backend", "sglang")),
    # groups
    ("ctrl-rag", "ctrl-rag", first_of_group, "single-responses", "`group`", ()),
    ("ruler", "ruler", first_of_group, "single-responses", "several responses", ()),
    ("arena", "arena", first_of_group, "single-responses", "several responses", ()),
    ("ctrl-rag", "ctrl-rag", ungrouped, "group-ids", "--group-size", ()),
    ("arena", "arena", ungrouped, "group-ids", "`group`", ()),
    ("ctrl-rag", "ctrl-rag", interleaved, "divided-groups", "--sort", ()),
    ("arena", "arena", one_group, "mixed-groups", "own `group`", ()),
    ("truthrl", "truthrl", as_is, "mixed-groups", "--group-size", ("--group-size", "7")),
    # rewards
    ("truthrl", "truthrl", copied_in_group, "no-signal", "--min-spread 0", ()),
    ("arena", "arena", copied_in_group, "constant", "higher temperature", ()),
    ("lear", "lear", copied_in_group, "duplicates", "temperature", ()),
    ("truthrl", "truthrl", boxed("Atlantis"), "constant", "other questions", EXACT),
    ("truthrl", "truthrl", boxed("Atlantis"), "correctness", "gold answers", EXACT),
    ("truthrl", "truthrl", both(each(answers=["42"]), boxed("42")), "correctness", "harder", EXACT),
    ("truthrl", "truthrl", boxed("I don't know"), "abstentions", "documents", EXACT),
    # responses
    ("arena", "arena", text(lambda _: ""), "empty", "stop strings", ()),
    ("lear", "lear", each(finish_reason="length"), "truncated", "number of tokens", ()),
    ("rlcr", "rlcr", text(lambda _: "<think>One moment"), "thinking", "number of tokens", ()),
    (
        *("naive-grpo", "naive-grpo", text(lambda response: response.replace("<think>", ""))),
        *("thinking", "response_prefix", ()),
    ),
    ("arena", "arena", text(lambda response: response + " So."), "format", "explain IN", ()),
    ("search-r1", "search-r1", LONG, "response-length", "limit of the trainer", ()),
    ("arena", "arena", each(prompt="word " * 5000), "prompt-length", "--top", ()),
    # answers and turns
    (
        *("naive-grpo", "naive-grpo"),
        each(answers=["Seine"], response="<think>.</think><answer>It is the Seine</answer>"),
        *("exact", "accuracy.metric=cascade", ()),
    ),
    (
        *("arena", "arena"),
        text(lambda response: response.replace("<answer>", "<answer>Perhaps one or two of: ")),
        *("undecided", "undecided=judge", ("--hardened",)),
    ),
    ("ground-grpo", "ground-grpo", each(answerable=True), "unanswerable", "`answerable`", ()),
    ("ground-grpo-stage1", "ground-grpo", as_is, "rows", "`answerable`", ()),
    ("ikea", "ikea", last_turn, "turns", "`turns`", ()),
    ("autorefine", "autorefine", last_turn, "turns", "`turns`", ()),
]


@pytest.mark.parametrize(
    ("recipe", "rows", "change", "code", "fix", "options"),
    CASES,
    ids=[f"{case[0]}-{case[3]}-{number}" for number, case in enumerate(CASES)],
)
def test_a_fault_has_its_finding_and_its_fix(cli, write, recipe, rows, change, code, fix, options):
    result = cli("preflight", write(change(example(rows))), "-r", recipe, "--json", *options)
    faults = json.loads(result.out)["findings"]
    codes = [each["code"] for each in faults]
    assert any(each["code"] == code and fix in each["fix"] for each in faults), faults
    is_problem = any(each["level"] == "problem" for each in faults)
    assert result.code == is_problem, codes


def test_the_cases_are_enough():
    assert len(CASES) >= 40
    assert len({case[0] for case in CASES}) >= 14


# --- files, groups and output ---------------------------------------------------------------------


def test_the_sample_is_one_of_prompts_with_all_their_rows(cli, write, tmp_path):
    rows = example("arena")
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress("".join(f"{json.dumps(row)}\n" for row in rows).encode()))
    plain, mixed = write(rows), write(sorted(rows, key=lambda row: row["id"][::-1]), "mixed.jsonl")
    options = ("-r", "arena", "--json", "--limit", 3)
    inputs = ((plain, b""), (path, b""), ("-", plain.read_bytes()), (mixed, b""))
    results = [
        json.loads(cli("preflight", each, *options, stdin=data).out) for each, data in inputs
    ]
    assert [(each["prompts"], each["rows"]) for each in results] == [(3, len(rows))] * 4
    assert len({each["sampled"] for each in results}) == 1
    measures = [
        {measure["name"]: measure["value"] for measure in each["measures"]} for each in results
    ]
    assert measures[1:] == measures[:1] * 3


def test_groups_by_their_size(cli, write):
    rows = ungrouped(example("ctrl-rag"))
    by_size = [row for row in rows for _ in range(4)]
    result = cli("preflight", write(by_size), "-r", "ctrl-rag", "--group-size", 4, "--json")
    codes = [each["code"] for each in json.loads(result.out)["findings"]]
    assert "group-ids" not in codes
    assert "divided-groups" not in codes
    assert cli("preflight", "-", "-r", "arena", "--limit", 0, code=2).err.count("--limit") == 1


def test_a_page_for_a_terminal(cli, write):
    out = cli("preflight", write(example("arena")), "-r", "truthrl", code=1).out
    assert "✗ form: " in out
    assert "fix: use -r arena" in out
    assert out.rstrip().endswith("verdict: not ready")
    assert len(out.splitlines()) < 45
    forged = each(question="\x1b[31mred", response="\x1b[2J")(example("arena"))
    assert "\x1b[2J" not in cli("preflight", write(forged), "-r", "arena").out


def test_invalid_files(cli, write, tmp_path):
    empty = cli("preflight", write([]), "-r", "arena", code=1).out
    assert "✗ no-rows" in empty
    broken = cli("preflight", write(["{", '{"response": 1}', "[]"]), "-r", "arena", code=1).out
    assert "✗ rows: " in broken
    assert "cannot read" in cli("preflight", tmp_path / "none.jsonl", "-r", "arena", code=2).err
    assert "set --recipe" in cli("preflight", write(example("arena")), code=2).err


def test_a_reward_without_values_and_one_that_fails(cli, write, tmp_path):
    module = tmp_path / "own.py"
    module.write_text("def none(row): return None\ndef fails(row): return 1 / 0\n")
    rows = write(example("arena"))
    for name, code, fix in (("none", "unscored", "return a number"), ("fails", "code", "code of")):
        result = json.loads(cli("preflight", rows, "-r", f"{module}:{name}", "--json", code=1).out)
        found = {each["code"]: each["fix"] for each in result["findings"]}
        assert fix in found[code]


def findings(result: Result) -> dict[str, Row]:
    return {each["code"]: each for each in json.loads(result.out)["findings"]}


def judge_at(server: JudgeServer) -> tuple[object, ...]:
    return (
        "--judge",
        server.url,
        "--judge-model",
        "x",
        "--set",
        "models.judge_retries=0",
        "--json",
    )


def test_the_judge_is_counted_with_its_cost(cli, write):
    rows = example("rubric")
    plain = json.loads(cli("preflight", write(rows), "-r", "rubric", "--json", code=0).out)
    needs = next(each for each in plain["measures"] if "need the judge" in each["name"])
    assert (needs["value"], needs["note"]) == (
        len(rows),
        f"{len(rows)} of them contain the verdicts",
    )
    rows = example("truthrl")
    group = [row for row in rows if row["group"] == rows[0]["group"]]
    prices = ("--price-in", 10_000, "--price-out", 0)
    with JudgeServer() as server:
        source = write(without("verdicts")(group))
        result = cli("preflight", source, "-r", "truthrl", *judge_at(server), *prices)
        sent = len(server.requests)
    measures = {each["name"]: each for each in json.loads(result.out)["measures"]}
    requests = measures["requests to the judge"]["value"]
    assert 0 < requests < sent  # without the requests that check the judge
    assert measures["tokens of the judge"]["value"] == 110 * requests
    assert measures["cost of the judge"]["value"] == pytest.approx(requests)


def test_a_judge_that_refuses_some_rows_is_not_dead(cli, write):
    rows = without("verdicts")(example("truthrl"))
    refused = Reply(status=400, raw=b'{"error": "content filter"}')
    first = rows[0]["question"]
    with JudgeServer(lambda each: refused if first in each.material else Reply()) as server:
        some = findings(cli("preflight", write(rows), "-r", "truthrl", *judge_at(server)))
    assert "content filter" in some["model"]["message"]
    assert f"of {len(rows)} rows" in some["model"]["message"]
    with JudgeServer(lambda each: refused if each.number > 6 else Reply()) as server:
        most = findings(cli("preflight", write(rows), "-r", "truthrl", *judge_at(server), code=1))
    assert most["model"]["level"] == "problem"
    with JudgeServer(lambda _: Reply(status=401)) as server:
        denied = cli("preflight", write(rows), "-r", "truthrl", *judge_at(server), code=1)
    assert findings(denied)["model"]["fix"].startswith("correct http")
    options = ("-r", "ctrl-rag", "--model", "/nonexistent", "--json")
    missing = findings(cli("preflight", write(example("ctrl-rag")), *options, code=1))
    assert missing["model"]["fix"] == "correct /nonexistent: pass --model PATH"
    unknown = ("-r", "truthrl", "--set", "models.tokenizer=/nonexistent")
    assert "/nonexistent" in cli("preflight", write(rows), *unknown, code=2).err


# --- stages, profiles and shares ------------------------------------------------------------------


def test_each_row_of_a_curriculum_has_the_form_of_its_stage(cli, write, tmp_path):
    config = tmp_path / "stages.yaml"
    config.write_text("stages:\n- {recipe: naive-grpo, until_step: 10}\n- {recipe: arena}\n")
    first, second = each(step=1)(example("naive-grpo")), each(step=10)(example("arena"))
    options = ("--config", config, "--json")
    assert "form" not in findings(cli("preflight", write(first + second), *options))
    wrong = each(step=10)(example("naive-grpo"))
    for row in wrong:
        row["supporting"] = [1]
    result = cli("preflight", write(wrong), *options, code=1)
    assert "<relevance> section, which arena reads" in findings(result)["form"]["message"]
    shares = [each for each in json.loads(result.out)["measures"] if "the form" in each["name"]]
    assert shares[0]["value"] == 0
    scored = cli("score", write(wrong), *options[:2], "-o", tmp_path / "out.jsonl")
    assert "<relevance> section, which arena reads" in scored.err


def test_a_group_of_two_stages_is_a_problem(cli, write, tmp_path):
    config = tmp_path / "stages.yaml"
    config.write_text("stages:\n- {recipe: ctrl-rag, until_step: 10}\n- {recipe: ctrl-rag-clr}\n")
    rows = example("ctrl-rag")
    for number, row in enumerate(rows):
        row["step"] = 10 * (number % 2)
    result = cli("preflight", write(rows), "--config", config, "--json", code=1)
    assert "different stages" in findings(result)["rows"]["message"]


def test_parts_count_together_and_are_equal_in_the_report(cli, write, tmp_path):
    rows = example("arena")
    for number, row in enumerate(rows):
        part = ("<answer>", "<analysis>", "")[number % 3]
        row["response"] = row["response"].replace(part, "") if part else row["response"]
    form = findings(cli("preflight", write(rows), "-r", "arena", "--json", code=1))["form"]
    assert form["level"] == "problem"
    assert "<answer> section" in form["message"]
    assert "<analysis> section" in form["message"]
    out = tmp_path / "out.jsonl"
    for command in (
        ("score", write(rows), "-r", "arena", "-o", out),
        ("report", out, "-o", tmp_path / "out.html"),
        ("replay", out),
    ):
        assert form["message"] in cli(*command, code=0).err


def test_the_commands_of_fixes_name_the_profile_and_no_recipe_of_a_user(cli, write, tmp_path):
    rows = text(lambda _: "It")(example("arena"))
    options = ("-r", "rag-total", "--hardened", "--json")
    fix = findings(cli("preflight", write(rows), *options, code=1))["form"]["fix"]
    assert "prepare -r rag-total --hardened`" in fix
    module = tmp_path / "own.py"
    module.write_text(
        "from dataclasses import replace\nfrom rag_rewards.recipes import RECIPES\n"
        "mine = replace(RECIPES['arena'], name='mine')\n"
    )
    found = findings(cli("preflight", write(rows), "-r", f"{module}:mine", "--json", code=1))
    assert found["form"]["fix"] == "request it in the prompt"
    assert "prepare" not in found["constant"]["fix"]


def test_faults_that_are_none(cli, write, tmp_path):
    right = each(answers=["42"], response=r"<think>.</think> \boxed{42}")(example("truthrl"))
    single = write([row | {"group": str(i)} for i, row in enumerate(right[:6])])
    out = ("-o", tmp_path / "out.jsonl")
    assert "every reward" not in cli("score", single, "-r", "truthrl", *EXACT, *out).err
    rows = [
        row | {"answers": row["answers"][:: (-1) ** i]}
        for i, row in enumerate(each(answers=["Seine", "the Seine"])(example("arena")))
    ]
    broken = write([*rows, *["{"] * 40], "broken.jsonl")
    found = findings(cli("preflight", broken, "-r", "arena", "--json", code=1))
    assert not {"mixed-groups", "group-ids"} & found.keys()


def test_the_example_of_the_page(cli):
    source = ROOT / "examples/arena.jsonl"
    result = cli("preflight", source, "-r", "arena", "--json", code=0)
    assert json.loads(result.out)["verdict"] == "ready with warnings"
    assert list(findings(result)) == ["exact"]


def test_score_warns_about_the_same(cli, write, tmp_path):
    out = ("-o", tmp_path / "out.jsonl")
    err = cli("score", write(example("arena")), "-r", "truthrl", *out, code=0).err
    assert "have the form of arena: use -r arena" in err
    assert "warning: every reward is -1" in err
    flat = write(copied_in_group(example("truthrl")), "flat.jsonl")
    warning = "warning: the rewards of 16 of 16 groups are all equal"
    for workers in (1, 2):
        assert warning in cli("score", flat, "-r", "truthrl", *out, "--workers", workers).err
    good = cli("score", write(example("lear")), "-r", "lear", *out, code=0).err
    assert "warning" not in good
