"""Real rows of public data sets through every recipe, with made-up responses and evidence."""

from __future__ import annotations

import hashlib
import json
import math
from functools import partial

import msgspec
import pytest

from rag_rewards import RECIPES, Recipe, Rollout, decode_row, recipe
from rag_rewards.evidence import (
    EntailmentNeed,
    LogProbsNeed,
    MaskedAnswersNeed,
    MaskedLogProbsNeed,
    SimilarityNeed,
    VerdictNeed,
)

REFUSAL = "I apologize, but I couldn't find an answer to your question in the search results."

# --- rows of each data set, as rows of ours -----------------------------------------------------


def _lines(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def _load(path):
    return json.loads(path.read_text("utf-8"))


def _row(question, answers, documents, supporting, **fields):
    return {
        "question": question,
        "answers": answers,
        "documents": documents,
        "supporting": supporting,
        "answerable": True,
        "out_of_knowledge": False,
    } | fields


def ircot(data):
    for path in sorted((data / "ircot_multihop").glob("*.jsonl")):
        for raw in _lines(path):
            paragraphs, marks = raw["paragraphs"], raw["is_supporting"]
            documents = [{"title": p["title"], "text": p["paragraph_text"]} for p in paragraphs]
            supporting = [i for i, mark in enumerate(marks, start=1) if mark]
            yield _row(raw["question"], raw["answer"], documents, supporting, id=raw["qid"])


def _hotpot(rows):
    for raw in rows:
        titles = [title for title, _ in raw["context"]]
        documents = [{"title": t, "text": "".join(lines)} for t, lines in raw["context"]]
        facts = {title for title, _ in raw["supporting_facts"]}
        supporting = [i for i, title in enumerate(titles, start=1) if title in facts]
        yield _row(raw["question"], raw["answer"], documents, supporting, id=raw["_id"])


def hotpotqa(data):
    yield from _hotpot(_load(data / "hotpotqa" / "distractor_row_trimmed.json"))
    # Its gold paragraphs are not among the documents: nothing supports.
    yield from _hotpot(_lines(data / "hotpotqa" / "fullwiki_dev_row_missing_gold.jsonl"))


def two_wiki(data):
    return _hotpot(_load(data / "2wikimultihopqa" / "rows.json"))


def musique(data):
    for raw in _load(data / "musique" / "musique_ans_row.json"):
        documents = [{"title": p["title"], "text": p["paragraph_text"]} for p in raw["paragraphs"]]
        supporting = [p["idx"] + 1 for p in raw["paragraphs"] if p["is_supporting"]]
        yield _row(
            raw["question"],
            [raw["answer"], *raw["answer_aliases"]],
            documents,
            supporting,
            id=raw["id"],
            answerable=raw["answerable"],
        )


def nq(data):
    for raw in _lines(data / "nq" / "nq_open_oracle_first25.jsonl"):
        documents = [{"title": c["title"], "text": c["text"]} for c in raw["ctxs"]]
        supporting = [i for i, c in enumerate(raw["ctxs"], start=1) if c["isgold"]]
        yield _row(raw["question"], raw["answers"], documents, supporting)
    for raw in _lines(data / "nq" / "flashrag_nq_test_17.jsonl"):
        documents = [{"text": "no document was retrieved"}]
        yield _row(raw["question"], raw["golden_answers"], documents, [], answerable=False)


def crag(data):
    for raw in _lines(data / "crag" / "dev_data_sample10.jsonl"):
        documents = [
            {"title": p["page_name"], "text": p["page_snippet"] or p["page_result"]}
            for p in raw["search_results"]
        ]
        yield _row(
            raw["query"],
            [raw["answer"]],
            documents,
            [1],
            id=raw["interaction_id"],
            query_time=raw["query_time"],
        )


def trust_align(data):
    for path in sorted((data / "trust_align").glob("*.json")):
        raw = _load(path)
        kind = "list" if "qampari" in path.name else "short"
        for part in ("positive_demos", "refusal_demos"):
            for demo in raw[part]:
                documents = [{"title": d["title"], "text": d["text"]} for d in demo["docs"]]
                answerable = part == "positive_demos"
                answers = demo["answer"].split(" [")[0] if answerable else "nobody knows"
                yield _row(
                    demo["question"],
                    [[answers]],
                    documents,
                    [1] if answerable else [],
                    answer_kind=kind,
                    answerable=answerable,
                )


def alce(data):
    for raw in _lines(data / "alce" / "asqa_eval_row_docs_truncated.jsonl"):
        documents = [{"title": d["title"], "text": d["text"]} for d in raw["docs"]]
        required = [pair["short_answers"] for pair in raw["qa_pairs"]]
        yield _row(raw["question"], required, documents, [1, 2])
    for raw in _lines(data / "alce" / "eli5_eval_row_docs_truncated.jsonl"):
        documents = [{"title": d["title"], "text": d["text"]} for d in raw["docs"]]
        claims = [[claim] for claim in raw["claims"]]
        yield _row(raw["question"], claims, documents, [2], answer_kind="claims")
    for demo in _load(data / "alce" / "qampari_default.json")["demos"]:
        documents = [{"title": d["title"], "text": d["text"]} for d in demo["docs"]]
        items = [item.split(" [")[0].strip() for item in demo["answer"].split("],")]
        yield _row(demo["question"], [[item] for item in items], documents, [1], answer_kind="list")


def triviaqa(data):
    for raw in _load(data / "triviaqa" / "rc_wikipedia_dev_dummy.json")["Data"]:
        documents = [{"title": page["Title"], "text": page["Title"]} for page in raw["EntityPages"]]
        yield _row(raw["Question"], raw["Answer"]["Aliases"], documents, [1], id=raw["QuestionId"])


def eli5(data):
    for raw in _lines(data / "eli5" / "kilt_eli5_dev_dummy.jsonl"):
        answers = [item["answer"] for item in raw["output"] if item.get("answer")]
        yield _row(raw["input"], answers, [{"text": answers[-1]}], [1], id=raw["id"])


SOURCES = (ircot, hotpotqa, two_wiki, musique, nq, crag, trust_align, alce, triviaqa, eli5)


# --- responses and evidence ---------------------------------------------------------------------


def responses(row) -> dict[str, str]:
    first = row["answers"]
    while isinstance(first, list):
        first = first[0]
    everything = [
        a[0] if isinstance(a, list) else a
        for a in (row["answers"] if isinstance(row["answers"], list) else [first])
    ]
    right = ", ".join(everything) if isinstance(row["answers"][0], list) else first
    ids = json.dumps(row["supporting"])
    marks = "".join(f"[{i}]" for i in row["supporting"])
    return {
        "arena": f"<relevance>{ids}</relevance><analysis>a</analysis><answer>{right}</answer>",
        "cited": f"<think>t</think><answer>{right} {marks}.</answer>",
        "lear": f"<reason>so it is said</reason><extract>{first}</extract><answer>{right}</answer>",
        "boxed": rf"<think>t</think> \boxed{{{right}}}",
        "unsure": r"<think>t</think> \boxed{I don't know}",
        "refusal": f"<think>t</think><answer>{REFUSAL}</answer>",
        "wrong": r"<think>t</think><answer>Zzyzx Qqq [1][99]. [0]</answer> \boxed{Zzyzx Qqq}",
        "malformed": f"</answer>{right}<think><answer>[[1",
        "empty": "",
    }


def _chance(*parts: object) -> float:
    text = "|".join(map(repr, parts)).encode()
    return hashlib.md5(text, usedforsecurity=False).digest()[0] / 255


def answered(scheme: Recipe, rollout: Rollout) -> Rollout:
    """The rollout, as a row that carries made-up evidence for every need, decoded again."""
    row = msgspec.to_builtins(rollout)
    row |= {"nli": [], "similarity": [], "verdicts": {}}
    row |= {"masked_answers": {}, "masked_logprobs": {}}
    text = rollout.parsed.text
    for need in scheme.needs(rollout):
        if isinstance(need, LogProbsNeed):
            n = len(text.split())
            draw = {
                label: [-9 * _chance(text, label, i) for i in range(n)]
                for label in ("", *need.without)
            }
            row["logprobs"] = {"full": draw.pop(""), "without": draw, "answer_span": [0, n]}
        elif isinstance(need, MaskedAnswersNeed):
            row["masked_answers"][need.part] = text[-60:]
        elif isinstance(need, MaskedLogProbsNeed):
            flat = [alias for aliases in rollout.gold for alias in aliases]
            row["masked_logprobs"][need.part] = [[-5 * _chance(a, need.part)] for a in flat]
        elif isinstance(need, EntailmentNeed):
            row["nli"].append(
                {
                    "premise": need.premise,
                    "hypothesis": need.hypothesis,
                    "entailment": _chance(need.premise, need.hypothesis),
                }
            )
        elif isinstance(need, SimilarityNeed):
            row["similarity"].append(
                {"text": need.text, "reference": need.reference, "similarity": _chance(need.text)}
            )
        elif isinstance(need, VerdictNeed):
            row["verdicts"][need.component] = int(_chance(text) > 0.5)
    return decode_row(json.dumps(row))


VARIANTS = {name: partial(recipe, name) for name in RECIPES} | {
    "ground-grpo semantic": partial(
        recipe, "ground-grpo", {"refusal.matcher": "semantic", "process": True}
    ),
    "ground-grpo by gold": partial(recipe, "ground-grpo", {"citation.judge_by": "gold"}),
    "lear likelihood": partial(recipe, "lear", {"mode": "likelihood"}),
    "arena judge": partial(recipe, "arena", {"accuracy.metric": "judge"}),
    "truthrl reasoning": partial(recipe, "truthrl", {"reasoning": True}),
}


@pytest.mark.parametrize("variant", sorted(VARIANTS))
@pytest.mark.parametrize("source", SOURCES, ids=lambda s: s.__name__)
def test_real_rows_score(shared, source, variant):
    rows = list(source(shared / "data"))
    assert rows
    for hardened in (False, True):
        scheme = VARIANTS[variant](hardened=hardened)
        made = []
        for i, row in enumerate(rows):
            if variant == "ground-grpo-stage1" and not row["answerable"]:
                continue  # stage 1 takes answerable rows alone
            if variant.startswith("ctrl") and not row["supporting"]:
                continue  # a data error there
            for kind, text in responses(row).items():
                bare = decode_row({**row, "id": f"{i}-{kind}", "group": i, "response": text})
                made.append(answered(scheme, bare))
        scores = scheme(made)
        assert len(scores) == len(made) > 0
        for rollout, score in zip(made, scores, strict=True):
            assert isinstance(score.value, float), rollout.id
            assert math.isfinite(score.value)
            assert tuple(score.components) == scheme.component_names
            assert all(v is not None and math.isfinite(v) for v in score.components.values())
            assert score.correct is not None
            assert 0.0 <= score.correct <= 1.0


def by_kind(shared, source, name, **options):
    """Scores of every response kind, for rows of one answer each."""
    scheme = recipe(name, **options)
    table: dict[str, list] = {}
    for row in source(shared / "data"):
        for kind, text in responses(row).items():
            bare = decode_row({**row, "response": text, "group": row["question"]})
            table.setdefault(kind, []).append(scheme([answered(scheme, bare)])[0])
    return table


@pytest.mark.parametrize("source", [ircot, two_wiki, musique, triviaqa], ids=lambda s: s.__name__)
def test_right_answers_are_right_and_others_are_not(shared, source):
    arena = by_kind(shared, source, "arena")
    assert {s.value for s in arena["arena"]} == {13.0}
    assert {s.value for s in arena["malformed"]} == {0.0}
    assert {s.correct for s in arena["wrong"]} == {0.0}
    truth = by_kind(shared, source, "truthrl")
    assert {s.value for s in truth["boxed"]} == {1.0}
    assert {s.value for s in truth["unsure"]} == {0.0}
    assert {s.value for s in truth["malformed"]} == {-1.0}
    naive = by_kind(shared, source, "naive-grpo")
    assert {s.value for s in naive["refusal"]} == {1.0}
    grounded = by_kind(shared, source, "ground-grpo")
    assert {s.correct for s in grounded["cited"]} == {1.0}
    assert {s.value for s in grounded["refusal"]} == {2.0}  # tags and format, nothing more
    assert {s.value for s in grounded["empty"]} == {0.0}


def test_refusing_unanswerable_questions(shared):
    for name, row in (("ground-grpo", r) for r in trust_align(shared / "data")):
        for hardened in (False, True):
            rollout = decode_row({**row, "response": responses(row)["refusal"]})
            score = recipe(name, hardened=hardened)([rollout])[0]
            assert score.value == (2.0 if row["answerable"] else 3.0)
            assert score.correct == float(not row["answerable"])
