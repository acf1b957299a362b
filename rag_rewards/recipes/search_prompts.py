"""The prompts of search agents by dialect, in our words with the content of the authors' ones.

No prompt contains a worked example or a filled answer section, which a reward that reads the prompt
could score.

Sources: Search-R1 at a14dc3a, scripts/data_process/nq_search.py; R1-Searcher at 631167c,
experience_maker.py; ReSearch at f228480, template.py. The dialect `tools` has no authors; the chat
template of the model describes the tools.
"""

from __future__ import annotations

from rag_rewards.prompts import CLOSED_BOOK_LAYOUT, Prompt

_INSTRUCTIONS = {
    "search-r1": "Answer the question below. Each time you receive new information, first reason "
    "inside <think> and </think>. If you then lack knowledge, call a search engine with <search> "
    "query </search>. It returns the best results between <information> and </information>. You "
    "can search as often as you want. If you need no more knowledge, give the answer alone, "
    "without an explanation, inside the tags <answer></answer>.",
    "r1-searcher": "Answer the question below. First reason inside <think> and </think>, then give "
    "the final answer inside the tags <answer></answer>. If you are not sure of a fact while you "
    "reason, search for it: write a query of a few keywords between <|begin_of_query|> and "
    "<|end_of_query|>. A query may ask for one fact only. You then receive what was found between "
    "<|begin_of_documents|> and <|end_of_documents|>, and continue to reason.",
    "research": "Answer the question below step by step, with the help of a tool that searches "
    "Wikipedia. Reason inside <think> and </think>. To look up a fact, write a query inside "
    "<search> and </search>. The tool returns what it found inside <result> and </result>, and you "
    "reason again. At the end, give the answer inside the tags <answer></answer>, where the "
    "exact answer is in a box: \\boxed{…}.",
    "tools": "Answer the question below. You can call the search tool with a query as often as "
    "you want; it returns documents. If a fact is missing or uncertain, search for it instead of "
    "guessing. If you need no more information, reply without a tool call, and give the answer "
    "alone, without an explanation, inside the tags <answer></answer>.",
}

SEARCH_PROMPTS = {
    dialect: Prompt(CLOSED_BOOK_LAYOUT, instruction=instruction)
    for dialect, instruction in _INSTRUCTIONS.items()
}
"""The prompt of each dialect."""
