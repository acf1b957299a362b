"""Rows with the fields that the loaders of RAGQALeaderboard, PRGB and PubMedQA read."""

from __future__ import annotations

RAGQA = {
    "id": "musique_1",
    "query": "Which river?",
    "golden_doc": ["7", "3"],
    "reference": [str(n) for n in range(100, 150)] + ["3"],
    "ground_truth": ["Seine", "the Seine"],
}
TEXTS = {str(n): f"Text {n}." for n in (3, 7, *range(100, 150))}

PRGB = {
    "id": "combination_v2-12",
    "query": "Which planet has the largest moon?",
    "golden_doc": ["The moon of <P> is large.", "<P> is <S> from the sun."],
    "placeholder_item": {
        "placeholders": [{"<P>": "Mars", "<S>": "far"}, {"<P>": "Venus", "<S>": "near"}],
        "answer": ["Mars | the red planet", "Venus"],
    },
    "noise_doc_level1": [f"one {n}" for n in range(9)],
    "noise_doc_level2": [f"two {n}" for n in range(2)],
    "noise_doc_level3": ["three"],
}

PUBMED = {
    "QUESTION": "Do mitochondria play a role?",
    "CONTEXTS": ["Cells die.", "Leaves were divided."],
    "LABELS": ["BACKGROUND", "RESULTS"],
    "MESHES": ["Apoptosis"],
    "YEAR": "2011",
    "reasoning_required_pred": "yes",
    "reasoning_free_pred": "yes",
    "final_decision": "maybe",
    "LONG_ANSWER": "Results depicted dynamics.",
}

HOTPOTQA = {
    "_id": "h1",
    "question": "Which river flows through the capital of Freedonia?",
    "answer": "Alba",
    "context": [
        ["Freedonia", ["Freedonia is a country.", " Its capital is Sylva."]],
        ["Rivers", ["Rivers are long."]],
        ["Sylva", ["Sylva lies on the Alba."]],
    ],
    "supporting_facts": [["Freedonia", 1], ["Sylva", 0]],
    "type": "bridge",
    "level": "hard",
}


def _wiki(number: int, kind: str, evidences: list[list[str]], supporting: list[str]) -> dict:
    return {
        "_id": f"w{number}",
        "question": f"Which director of film {number} is older?",
        "answer": f"Person {number}",
        "context": [
            [title, [f"{title} has to do with Person {number}."]]
            for title in "ABCDEF"[: 2 + number]
        ],
        "supporting_facts": [[title, 0] for title in supporting],
        "type": kind,
        "evidences": evidences,
    }


WIKI = [
    _wiki(1, "compositional", [["A", "director", "B"], ["B", "spouse", "Person 1"]], ["A", "B"]),
    _wiki(2, "bridge_comparison", [["A", "director", "C"]] * 4, ["A", "B", "C", "D"]),
    _wiki(3, "comparison", [["A", "birth", "1900"], ["E", "birth", "1901"]], ["A", "E"]),
]
"""Questions with two, four and two hops, which are their supporting documents."""

MUSIQUE = {
    "id": "3hop1__1_2_3",
    "question": "Who leads the town?",
    "answer": "Ann Rowe",
    "answer_aliases": ["Ann", "Ann Rowe"],
    "answerable": True,
    "question_decomposition": [{"id": 1}, {"id": 2}, {"id": 3}],
    "paragraphs": [
        {
            "idx": place,
            "title": f"T{place}",
            "paragraph_text": f"Paragraph {place} names Ann Rowe.",
            "is_supporting": place in (1, 2, 4),
        }
        for place in range(6)
    ],
}

NQ = {
    "question": "Who wrote the tale?",
    "answers": ["Ben Lowe"],
    "ctxs": [
        {"id": "wiki:1", "title": "Tales", "text": "Tales are old.", "has_answer": False},
        {"id": "wiki:2", "title": "The tale", "text": "Ben Lowe wrote it.", "has_answer": True},
    ],
}


def _crag(number: int, kind: str, dynamic: str, domain: str, answer: str) -> dict:
    page = {"page_name": "P", "page_url": f"https://example.org/{number}", "page_last_modified": ""}
    text = f"A page about {answer}."
    result = page | {"page_snippet": text, "page_result": f"<html><p>{text} And more.</p></html>"}
    return {
        "interaction_id": f"c{number}",
        "query_time": f"03/0{number}/2024, 10:00:00 PT",
        "domain": domain,
        "question_type": kind,
        "static_or_dynamic": dynamic,
        "query": f"Which of the two is taller in case {number}?",
        "answer": answer,
        "alt_ans": [],
        # One page occurs twice.
        "search_results": [
            result,
            result,
            result | {"page_url": "x", "page_snippet": "<b>No</b>."},
        ],
    }


CRAG = [
    _crag(1, "comparison", "static", "open", "Mount Alba"),
    _crag(2, "simple", "slow-changing", "sports", "Tower B"),
    _crag(3, "comparison", "static", "movie", "Mast C"),
]


def _document(text: str, *found: int) -> dict:
    return {"title": "T", "text": text, "answers_found": list(found), "rec_score": 0.0}


def _trust_align(answers: list[list[str]]) -> list[dict]:
    none = [0] * len(answers)
    support = _document(". ".join(aliases[0] for aliases in answers), *[1] * len(answers))
    others = [_document(f"Something else, part {n}.", *none) for n in range(4)]
    return [
        {"question": "Which are unknown?", "answers": answers, "docs": others},
        {"question": "Which are known?", "answers": answers, "docs": [*others[:2], support]},
    ]


TRUST_ALIGN = {
    "asqa": _trust_align([["Alba", "the Alba"], ["Bora"]]),
    "qampari": _trust_align([["Film A", "A"], ["Film B"], ["Film C"]]),
    "eli5": _trust_align([["Snow is cold."], ["Ice is colder."], ["Steam is warm."]]),
}
"""Of each data set, a question that the documents do not answer, and one that they answer."""

ALCE = {
    "asqa": {
        "question": "Who scored most?",
        "qa_pairs": [{"short_answers": ["Rey", "Ann Rey"]}, {"short_answers": ["Lowe"]}],
        "docs": [{"title": "T", "text": "Ann Rey and Ben Lowe scored."}],
        "sample_id": "s1",
    },
    "eli5": {
        "question": "Why is snow white?",
        "claims": ["Snow scatters light.", "Light has all colors."],
        "docs": [{"title": "T", "text": "Snow scatters light of all colors."}],
    },
}
