"""Real rows of data sets, prepared for each trainer and scored with each recipe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from constructed_rows import ALCE, CRAG, HOTPOTQA, MUSIQUE, NQ, TRUST_ALIGN, WIKI

import rag_rewards as rr
from rag_rewards.preparation.options import PrepareOptions
from rag_rewards.preparation.prepare import prepare
from rag_rewards.preparation.trainer_rows import trainer_row
from rag_rewards.recipes import RECIPES, recipe
from rag_rewards.recipes.sample import models_needed
from rag_rewards.rollout import Evidence, LogProbs, MaskedAnswers, Rollout
from rag_rewards.rows.columns import label_fields, rollout_from_columns
from rag_rewards.testing import TableEntailment
from rag_rewards.text.refusal import REFUSAL

TRAINERS = ("verl", "openrlhf", "trl", "ms-swift", "skyrl", "slime", "nemo-gym", "none")
SPECIAL = frozenset(
    {"carr", "binary-rar", "dr-tulu", "igpo", "rag-env", "rubric", "ruler", "s3", "stepsearch"}
)
"""Recipes that read what no data set contains: rubrics, verdicts, search keys, likelihoods."""
TEXTUAL = tuple(
    name for name in RECIPES if not name.startswith("ground-grpo") and name not in SPECIAL
)
GROUNDED = ("ground-grpo-stage1", "ground-grpo")
UNMARKED = ("naive-grpo", "lear", "truthrl")
REAL = {
    "hotpotqa": ("hotpotqa/distractor_row_trimmed.json", (*TEXTUAL, *GROUNDED)),
    "2wikimultihopqa": ("2wikimultihopqa/rows.json", (*TEXTUAL, *GROUNDED)),
    "musique": ("musique/musique_ans_row.json", (*TEXTUAL, *GROUNDED)),
    "nq": ("nq/nq_open_oracle_first25.jsonl", (*TEXTUAL, *GROUNDED)),
    "crag": ("crag/dev_data_sample10.jsonl", UNMARKED),
    "asqa": ("alce/asqa_eval_row_docs_truncated.jsonl", UNMARKED),
}
CONSTRUCTED = {
    "hotpotqa": [HOTPOTQA],
    "2wikimultihopqa": WIKI,
    "musique": [MUSIQUE],
    "nq": [NQ],
    "crag": CRAG,
    "asqa": [ALCE["asqa"]],
}


def written(path: Path, rows: list[dict]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def read_back(path: Path, trainer: str):
    """Yield the chat and the fields of each row, as the adapter of a trainer reads them."""
    if trainer == "verl":
        pq = pytest.importorskip("pyarrow.parquet")
        for row in pq.read_table(path).to_pylist():
            assert row["reward_model"]["style"] == "rule"
            assert "agent_name" not in row
            yield (
                row["prompt"],
                row["extra_info"] | label_fields(row["reward_model"]["ground_truth"]),
            )
        return
    for line in path.read_bytes().splitlines():
        row = json.loads(line)
        if trainer in ("openrlhf", "slime"):
            assert set(row) == {"input", "label"}
            yield row["input"], label_fields(row["label"])
        elif trainer == "skyrl":
            assert set(row) == {"data_source", "prompt", "reward_spec"}
            yield row["prompt"], label_fields(row["reward_spec"]["ground_truth"])
        elif trainer == "nemo-gym":
            assert row["agent_ref"]["name"] == "rag_rewards_simple_agent"
            yield row["responses_create_params"]["input"], row["verifier_metadata"]
        else:
            yield row.pop("messages" if trainer == "ms-swift" else "prompt"), row


def response(name: str, row: Rollout, right: bool) -> str:
    """Return a right or wrong response in the output form of a recipe."""
    answers = [aliases[0] if right else "zzz" for aliases in row.gold]
    listed = ", ".join(answers)
    cited = "".join(f"[{label}]" for label in (row.supporting_labels if row.supporting else "1"))
    match name:
        case "arena":
            ids = list(map(int, row.supporting_labels)) if right else [99]
            return (
                f"<relevance>{ids}</relevance>\n<analysis>x [1]</analysis>\n"
                f"<answer>{listed}</answer>"
            )
        case "lear":
            reason = "The passages say it in so many words that it is not in doubt."
            return f"<reason>{reason}</reason><extract>It.</extract><answer>{listed}</answer>"
        case "truthrl":
            return f"<think>x</think>\\boxed{{{listed}}}"
        case "ground-grpo" | "ground-grpo-stage1":
            if row.answerable is False:
                return f"<think>x</think><answer>{REFUSAL if right else 'It is zzz.'}</answer>"
            text = " ".join(f"It is {answer} {cited}." for answer in answers)
            if row.answer_kind == "list":
                text = ", ".join(f"{answer} {cited}" for answer in answers)
            return f"<think>x</think><answer>{text}</answer>"
        case _:
            form = RECIPES[name].output
            text = f"x {cited if right else ''}"
            others = {section: text for section in form.sections if section != "answer"}
            others |= {"confidence": "0.9"} if name == "rlcr" else {}
            return form.write(listed, **others)


def with_evidence(name: str, row: Rollout, right: bool) -> Rollout:
    """Return the row with the evidence that the recipe needs."""
    if name == "lear":
        answer = row.gold[0][0] if right else "zzz"
        return row.with_evidence(
            Evidence(masked_answers=MaskedAnswers(rationale=answer, evidence=answer))
        )
    if name == "canoe":
        return row.with_evidence(Evidence(generated_answers={"influence": "zzz"}))
    if name in ("ctrl-rag", "ctrl-rag-clr"):
        worse = (-5.0, -5.0) if right else (-0.1, -0.1)
        without = dict.fromkeys(row.supporting_labels, worse)
        return row.with_evidence(Evidence(logprobs=LogProbs(full=(-0.1, -0.1), without=without)))
    return row


def check(options: PrepareOptions) -> int:
    """Prepare rows, and score a right and a wrong response to each question."""
    result = prepare(options)
    # The data sets contain no search keys.
    scorer = recipe(options.recipe, {"keys.weight": 0} if options.recipe == "stepsearch" else None)
    if "judge" in models_needed(scorer):
        scorer = recipe(options.recipe, RECIPES[options.recipe].model_free)
    entailment = TableEntailment(lambda premise, hypothesis: float("zzz" not in hypothesis))
    gatherer = rr.Gatherer(rr.Models(entailment=entailment))
    rows = list(read_back(Path(options.output), options.trainer))
    assert len(rows) == result.written > 0
    for chat, fields in rows:
        pair = []
        for right in (True, False):
            bare = rollout_from_columns(fields, response="", prompt=chat)
            assert isinstance(bare, Rollout), bare
            text = response(options.recipe, bare, right)
            row = rollout_from_columns(fields, response=text, prompt=chat)
            pair.append(with_evidence(options.recipe, row, right))
        assert fields["question"] in chat[-1]["content"]
        for document in fields.get("documents") or ():
            assert document["text"] in chat[-1]["content"]
        good, bad = scorer(gatherer.gather_sync(scorer, pair))
        assert good.value > bad.value, (options.recipe, fields["id"], good, bad)
    return len(rows)


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("name", CONSTRUCTED)
def test_right_answers_have_higher_rewards(tmp_path, name, trainer):
    source = written(tmp_path / "source.jsonl", CONSTRUCTED[name])
    suffix = "parquet" if trainer == "verl" else "jsonl"
    for each in REAL[name][1]:
        output = str(tmp_path / f"{each}.{suffix}")
        assert check(PrepareOptions(name, source, output, each, trainer)) == len(CONSTRUCTED[name])


def test_an_unknown_trainer_has_no_rows():
    with pytest.raises(KeyError, match="nope"):
        trainer_row("nope", [], {"id": "1"}, source="nq")


@pytest.mark.parametrize("trainer", TRAINERS)
def test_rows_of_hotpotqa_have_what_the_coverage_of_stepsearch_reads(tmp_path, trainer):
    """The search engine has a corpus with ids of its own."""
    source = written(tmp_path / "source.jsonl", [HOTPOTQA])
    output = tmp_path / f"train.{'parquet' if trainer == 'verl' else 'jsonl'}"
    prepare(PrepareOptions("hotpotqa", source, str(output), "stepsearch", trainer))
    corpus = [
        {"id": f"corpus-{i}", "title": title, "text": "".join(sentences)}
        for i, (title, sentences) in enumerate(HOTPOTQA["context"])
    ]
    turns = [
        {"text": "<search>capital of Freedonia</search>", "results": corpus[:2]},
        {"text": "<search>river of Sylva</search>", "results": corpus[1:]},
        {"text": f"<answer>{HOTPOTQA['answer']}</answer>"},
    ]
    [(chat, fields)] = read_back(output, trainer)
    row = rollout_from_columns(fields, turns=turns, prompt=chat)
    assert isinstance(row, Rollout), row
    [score] = recipe("stepsearch", {"process": "coverage", "coverage.of": "all"})([row])
    assert score.turns == pytest.approx((0.1, 0.1, 1.0))


@pytest.mark.parametrize("trainer", ["verl", "trl"])
@pytest.mark.parametrize("name", REAL)
def test_right_answers_of_real_rows_have_higher_rewards(tmp_path, shared, name, trainer):
    """The constructed rows have the form of every trainer."""
    file, recipes = REAL[name]
    suffix = "parquet" if trainer == "verl" else "jsonl"
    for each in recipes:
        output = str(tmp_path / f"{each}.{suffix}")
        check(PrepareOptions(name, str(shared / "data" / file), output, each, trainer))


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("name", ["truthrl", "naive-grpo"])
def test_rows_without_documents_can_be_scored(tmp_path, shared, trainer, name):
    output = str(tmp_path / f"out.{'parquet' if trainer == 'verl' else 'jsonl'}")
    source = str(shared / "data/crag/dev_data_sample10.jsonl")
    options = PrepareOptions("crag", source, output, name, trainer, prompt="closed-book")
    assert check(options) > 1
    for chat, fields in read_back(Path(output), trainer):
        assert "documents" not in fields
        if name == "truthrl":
            assert fields["query_time"] in chat[-1]["content"]


def with_answers(name, shared, tmp_path):
    """Return a file of Trust-Align's demonstrations with answers; one question is answerable."""
    path = shared / f"data/trust_align/{name}_refusal.json"
    rows = json.loads(path.read_text())["refusal_demos"]
    for row in rows:
        count = len(row["docs"][0]["answers_found"])
        row["answers"] = [[f"answer number {i}", f"alias {i}"] for i in range(count)]
    document = rows[1]["docs"][0]
    document["answers_found"] = [1] * len(rows[1]["answers"])
    document["text"] += " " + ". ".join(aliases[0] for aliases in rows[1]["answers"])
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(rows))
    return str(path)


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("name", TRUST_ALIGN)
def test_refusals_and_citations(tmp_path, name, trainer):
    """Stage 1 takes the answerable question, and stage 2 also the other one."""
    source = written(tmp_path / "source.jsonl", TRUST_ALIGN[name])
    output = str(tmp_path / f"out.{'parquet' if trainer == 'verl' else 'jsonl'}")
    assert check(PrepareOptions(name, source, output, "ground-grpo", trainer)) == 2
    assert check(PrepareOptions(name, source, output, "ground-grpo-stage1", trainer)) == 1


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("name", ["asqa", "qampari", "eli5"])
def test_refusals_and_citations_in_rows_of_trust_align(tmp_path, shared, name, trainer):
    source = with_answers(name, shared, tmp_path)
    output = str(tmp_path / f"out.{'parquet' if trainer == 'verl' else 'jsonl'}")
    assert check(PrepareOptions(name, source, output, "ground-grpo", trainer)) == 2
    assert check(PrepareOptions(name, source, output, "ground-grpo-stage1", trainer)) == 1


@pytest.mark.parametrize("trainer", TRAINERS)
def test_package_rows(tmp_path, trainer):
    source = tmp_path / "rows.jsonl"
    rows = [
        {"question": "A?", "documents": [{"text": "a"}], "answers": "x", "supporting": [1]},
        {
            "id": 9,
            "question": "B “ü”?",
            "documents": [{"id": "d", "title": "T", "text": "b"}, {"text": "\u2028"}],
            "answers": [["y", 7], ["z"]],
            "supporting": ["d"],
            "answerable": True,
            "out_of_knowledge": False,
            "query_time": "now",
        },
    ]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    output = str(tmp_path / f"out.{'parquet' if trainer == 'verl' else 'jsonl'}")
    for name in (*TEXTUAL, "ground-grpo"):
        expected = 1 if name == "ground-grpo" else 2
        assert check(PrepareOptions("rows", str(source), output, name, trainer)) == expected


def test_all_rows_have_the_same_types(tmp_path, shared):
    """The rows of all data sets have the same Arrow schema."""
    pa = pytest.importorskip("pyarrow")
    schemas = set()
    for name in ("hotpotqa", "2wikimultihopqa", "musique", "nq"):
        output = tmp_path / f"{name}.jsonl"
        prepare(
            PrepareOptions(name, str(shared / "data" / REAL[name][0]), str(output), "arena", "trl")
        )
        for line in output.read_text("utf-8").splitlines():
            schemas.add(str(pa.Table.from_pylist([json.loads(line)]).schema))
    assert len(schemas) == 1
