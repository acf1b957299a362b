"""Convert rows of public data sets to rows of this package, and write responses to them."""

from __future__ import annotations

import json

REFUSAL = "I apologize, but I couldn't find an answer to your question in the search results."

# --- rows of each data set ----------------------------------------------------------------------


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
    # The gold paragraphs are not among the documents, so there are no supporting documents.
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
