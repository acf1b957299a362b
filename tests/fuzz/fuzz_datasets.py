"""A small valid row of each public data set, in every form that its reader accepts."""

from __future__ import annotations

from typing import Any

_DOCS = [
    {"title": "T", "text": "Paris lies on the Seine.", "answers_found": [1]},
    {"text": "Rome."},
]
_ALCE = {"question": "Which river?", "docs": _DOCS, "sample_id": "1"}
_FACTS = {
    "_id": "a",
    "question": "Which river?",
    "answer": "Seine",
    "context": [["T", ["Paris lies on the Seine.", "It is large."]], ["U", ["Rome."]]],
    "supporting_facts": [["T", 0]],
}
_DPR = {
    "question": "Which river?",
    "answers": ["Seine"],
    "ctxs": [{"title": "T", "text": "The Seine.", "isgold": True, "score": "1.5", "id": 3}],
}
_PRGB = {
    "id": "c-1",
    "query": "Which planet?",
    "golden_doc": ["The moon of <P> is large."],
    "placeholder_item": {"placeholders": [{"<P>": "Mars"}], "answer": ["Mars | the red planet"]},
    "noise_doc_level1": ["one", "two"],
}
_PUBMED = {
    "QUESTION": "Do they?",
    "CONTEXTS": ["Cells die."],
    "LABELS": ["BACKGROUND"],
    "YEAR": "2011",
    "final_decision": "maybe",
}
_CRAG = {
    "query": "Which river?",
    "answer": "Seine",
    "interaction_id": "i",
    "query_time": "03/21/2024, 23:37:29 PT",
    "alt_ans": "['La Seine', 3]",
    "search_results": [
        {
            "page_name": "P",
            "page_snippet": "The <b>Seine</b> &amp; Paris",
            "page_result": "<html>x",
        },
        {"page_result": "<html><body><p>The Seine</p><table><tr><td>1</table></html>"},
    ],
}

ROWS: dict[str, list[dict[str, Any]]] = {
    "asqa": [
        {
            **_ALCE,
            "qa_pairs": [{"question": "q", "short_answers": ["Seine", "La Seine"], "context": "x"}],
        }
    ],
    "qampari": [
        {**_ALCE, "answers": [["Seine"], ["Rhône", "Rhone"]]},
        {**_ALCE, "answers": ["Seine"]},
    ],
    "eli5": [{**_ALCE, "claims": ["It is the Seine."]}],
    "expertqa": [{**_ALCE, "claims": ["It is the Seine."]}],
    "hotpotqa": [
        _FACTS,
        {
            **_FACTS,
            "context": {"title": ["T"], "sentences": [["Seine."]]},
            "supporting_facts": {"title": ["T"], "sent_id": [0]},
        },
    ],
    "2wikimultihopqa": [{**_FACTS, "evidences": [["a", "b", "c"]]}],
    "musique": [
        {
            "id": "2hop__1",
            "question": "Which river?",
            "answer": "Seine",
            "answer_aliases": ["La Seine"],
            "answerable": True,
            "paragraphs": [
                {"idx": 0, "title": "T", "paragraph_text": "The Seine.", "is_supporting": True}
            ],
        }
    ],
    "crag": [_CRAG, {**_CRAG, "retrieved_chunks": [{"chunk_text": "The Seine", "bge_score": 2.5}]}],
    "nq": [_DPR],
    "triviaqa": [{**_DPR, "positive_ctxs": [{"title": "T", "text": "Seine"}], "ctxs": None}],
    "retrieved": [_DPR],
    "ragqa": [
        {
            "id": "m",
            "query": "Which river?",
            "golden_doc": ["7"],
            "reference": ["7", "8"],
            "ground_truth": ["Seine & (Paris | Rome)"],
        }
    ],
    "prgb": [_PRGB],
    "pubmedqa": [
        _PUBMED,
        {
            "pubid": 1,
            "question": "Do they?",
            "context": {"contexts": ["Cells die."], "labels": ["B"], "meshes": []},
            "long_answer": "Yes.",
            "final_decision": "yes",
        },
    ],
    "rows": [
        {
            "question": "Which river?",
            "documents": ["The Seine.", {"id": 2, "text": "Rome."}],
            "answers": ["Seine"],
            "supporting": [1],
            "response": "<search>a</search><information>b</information><answer>Seine</answer>",
        }
    ],
}
