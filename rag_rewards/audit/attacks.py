"""The known attacks on rewards for retrieval-augmented generation, by number.

Hardened settings and loopholes of recipes refer to these numbers.
"""

ATTACKS: dict[int, str] = {
    1: "listing every candidate answer",
    2: "giving an answer and negating it",
    3: "the answer inside another word or number",
    4: "a gold answer whose normalized form is empty",
    5: "an empty answer",
    6: "ignored punctuation that changes the meaning: 314 for 3.14, 5 for −5, C for C++",
    7: "many answer sections, one of them right",
    8: "the answer in a thinking section that is never closed",
    9: "the answer only in quoted or retrieved text",
    10: "text in the response that imitates a document",
    11: "empty sections",
    12: "repeated or nested tags",
    13: "format without content",
    14: "many opening tags",
    15: "a refusal with an answer; negated, quoted or partial refusals",
    16: "citation markers without a claim",
    17: "citing every document",
    18: "one valid citation among wrong ones",
    19: "repeating the document ids of the example in the prompt",
    20: "phrases that make a judge accept an answer",
    21: "text that addresses the judge or contains a verdict",
    22: "always abstaining, never abstaining",
    23: "copying a whole document into the extract",
    24: "'.' as extract or answer",
    25: "repeating documents to increase a likelihood or an entailment probability",
    26: "a right answer after a meaningless thinking section",
    27: "invisible and look-alike characters",
    28: "right-to-left and control characters",
    29: "megabytes of any text",
    30: "one sentence that lists every candidate answer and cites every document",
    31: "the answer copied into the reasoning",
    32: "an abstention together with a wrong guess",
}
"""The name of each attack."""
