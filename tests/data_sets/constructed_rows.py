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
