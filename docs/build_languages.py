"""Write docs/languages.md: the words of each language that the rules about answers read."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

from rag_rewards.text.refusal_words import english, foreign

PAGE = Path(__file__).with_name("languages.md")
NAMES = {"en": "English", "nl": "Dutch", "pl": "Polish", "tr": "Turkish"}
"""Languages that have no phrases of refusals, or whose phrases are in another table."""
INTRO = """# Languages

The rules of the [hardened profile](hardened.md) read English and the languages below. Two tables
of the package contain the words: `rag_rewards/matching/languages.json` for answers and
`rag_rewards/text/refusal_words.json` for refusals. An answer is read in English and in the
languages of its question.

`python docs/build_languages.py` writes this page.

## Answers

An answer is right if each of its words is explained. Function words explain themselves: “Die
Antwort ist Paris.” after a German question. Words that turn a meaning are never explained: “nicht
Paris” and “Paris ou Rome” are undecided. In Chinese, Japanese and Thai, which are written without
spaces, the function words are read between the gold answer and the other characters: “答案是巴黎”.
Korean particles are read after the gold answer: “파리입니다”.

| code | language | words that turn a meaning | alternatives | function words and particles |
| --- | --- | --- | --- | --- |
"""
REFUSALS = """
## Refusals

A short answer that refuses is wrong. Under the hardened profile of Ground-GRPO, a response that
refuses to answer in one of these languages gets no reward for an answer to an answerable
question. An unanswerable question is different: the reward is the similarity to the gold refusal,
so that a refusal in the language of `refusal.texts` earns most. A refusal in other words earns
its similarity, if it contains only words of refusals and of the question, or if it is in another
language and contains no guess. A refusal can explain itself in English: “The documents discuss
Lyon but do not mention its mayor.” It can contain no name, number or quotation that the question
lacks, except for a name that the documents “do not mention”.

Phrases in Latin letters are read at the beginning of a word, the other phrases anywhere. A
sentence with a gold answer is not a refusal.

The abstention of TruthRL is one of `abstention.phrases`, as in the paper. With
`abstention.alone`, an explanation in English can follow it.

| code | language | phrases of refusals | number |
| --- | --- | --- | --- |
"""
LIMITS = """
## Limitations

- In other languages, “I don't know” is read, and names are found. An answer with other words
  around the name is undecided.
- Declined forms (“Парижа”), transliterations (Paris and Париж) and names in other languages
  (Germany and Deutschland) are undecided. Add such forms to the gold answers.
- A name inside a longer word without spaces is undecided: “東京都” for 東京.
- Explanations of refusals are read in English only.
- A guess after a refusal (“Je ne sais pas, Rome”) is found by its capital letter, by a number, or
  by a word such as “peut-être”. A name in a script without capitals is not found.
"""


def page() -> str:
    """Return the page."""
    table = files("rag_rewards.matching").joinpath("languages.json").read_text("utf-8")
    names = NAMES | {code: each.name for code, each in foreign().items()}
    answers = [_answers(code, names[code], roles) for code, roles in json.loads(table).items()]
    phrases = {"en": sorted(english().phrases)}
    phrases |= {code: list(each.phrases) for code, each in foreign().items()}
    refusals = [
        f"| {code if len(code) == 2 else '–'} | {names[code]} | {_few(entries)} | {len(entries)} |"
        for code, entries in phrases.items()
    ]
    return INTRO + _lines(answers) + REFUSALS + _lines(refusals) + LIMITS


def _lines(rows: list[str]) -> str:
    return "\n".join(rows) + "\n"


def _answers(code: str, name: str, roles: dict[str, str]) -> str:
    turning, alternatives = roles["turning"].split(), roles.get("alternatives", "").split()
    explained = [roles.get(role, "").split() for role in ("function", "strings", "endings")]
    number = len(set().union(*explained))
    return f"| {code} | {name} | {_few(turning)} | {_few(alternatives) or '–'} | {number} |"


def _few(words: list[str], number: int = 5) -> str:
    return ", ".join(words[:number])


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
