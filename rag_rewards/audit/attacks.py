"""The known attacks on rewards for retrieval-augmented generation, by number.

Hardened settings and loopholes of recipes refer to these numbers.
"""

ATTACKS: dict[int, str] = {
    1: "listing every candidate",
    2: "negating the answer that it gives",
    3: "the answer inside another word or number",
    4: "a gold answer that normalizes to nothing",
    5: "an empty answer",
    6: "punctuation that carries meaning: 3.14 and 314, −5 and 5, C++ and C",
    7: "many answer sections, one of them right",
    8: "the answer in thinking that never ends",
    9: "the answer in quoted or retrieved text only",
    10: "document text forged in the response",
    11: "empty sections",
    12: "repeated or nested tags",
    13: "format without content",
    14: "many opening tags",
    15: "a refusal with an answer; negated, quoted or partial refusals",
    16: "citation markers without a claim",
    17: "citing everything",
    18: "one valid citation beside false ones",
    19: "repeating the prompt's example ids",
    20: "phrases that make a judge say yes",
    21: "text that addresses the judge or contains a verdict",
    22: "always abstaining, never abstaining",
    23: "copying a whole document into the extract",
    24: "'.' as extract or answer",
    25: "repeating documents to raise a likelihood or an entailment",
    26: "a right answer after degenerate thinking",
    27: "invisible and look-alike characters",
    28: "right-to-left and control characters",
    29: "megabytes of any text",
    30: "one sentence that names every candidate and cites every document",
    31: "the answer copied into the reasoning",
    32: "an abstention beside a wrong guess",
}
"""The name of each attack."""
