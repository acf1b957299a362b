"""Write docs/languages.md: the words of each language that the hardened profile reads."""

from __future__ import annotations

from itertools import chain, islice
from pathlib import Path

from rag_rewards.text.languages import FOREIGN, ForeignLanguage, Glosses, english, foreign

PAGE = Path(__file__).with_name("languages.md")
INTRO = """# Languages

Strict matching, which the [hardened profile](hardened.md) uses, reads whether a response asserts
an answer. It reads English and the languages in the tables below. The words of each language are in
a table of the package, `rag_rewards/text/languages/CODE.json`. Several languages can occur in one
response.

A language in Latin letters is read if the response contains one of its function words, for example
“nicht” or “est”. Each other language is read if the response contains its letters.

`python docs/build_languages.py` writes this page.

## Assertions

A mention of an answer does not count if it is denied, or if it is one of several alternatives:
“Это не Париж.”, “ローマかパリ”. The tables list the words of negations, denials, alternatives,
lists, clauses and hedges. The marks of lists and questions of all scripts are read.

| code | language | negations and denials | alternatives | entries |
| --- | --- | --- | --- | --- |
"""
ATTACHED = """
## Words that are attached to a name

Some languages are written without spaces, or attach particles, prefixes or endings to a name:
“파리입니다”, “وباريس”, “l'Italie”, “в Париже”. A mention is found if the tables list what is
attached.

| code | spaces | attached |
| --- | --- | --- |
"""
REFUSALS = """
## Refusals

Under the hardened profile of Ground-GRPO, a response that refuses to answer in one of these
languages gets no reward for an answer to an answerable question. An unanswerable question is
different: the reward is the similarity to the gold refusal, so that a refusal in the language of
`refusal.texts` earns most. A refusal in other words earns its similarity, if it contains only words
of refusals and of the question. A refusal can explain itself in English: “The documents discuss
Lyon but do not mention its mayor.” It can contain no name, number or quotation that the question
lacks, except for a name that the documents “do not mention”.

The phrases of languages in Latin letters are read in each response, at the beginning of a word. The
other phrases are read if the response contains the letters of the language. A sentence with a gold
answer is not a refusal.

The abstention of TruthRL is one of `abstention.phrases`, as in the paper. With `abstention.alone`,
an explanation in English can follow it.

| code | phrases of refusals | number |
| --- | --- | --- |
"""
LIMITS = """
## Limitations

- Other languages are not supported. Their names are found, but their negations, alternatives and
  refusals are not read. List marks are read in each language.
- A text in Latin letters without a function word of its language is read as English: “Paris
  erroné” asserts Paris.
- Longer names are recognized in Katakana: “パリジェンヌ” does not mention パリ. In Chinese, they
  are recognized only where no function word is in the clause: “巴黎大学” does not mention 巴黎,
  but “他在巴黎大学” does.
- In a row of Chinese or Thai names without separators, the last name can count: “罗马巴黎”
  asserts 巴黎, because “法国巴黎” does. No other name of the row counts.
- Cases are read for names in Russian and for the genitive in German. The endings do not show the
  gender, so that “Александра” is also read as the genitive of Александр.
- Declined forms with a change inside the word, plurals, transliterations (Paris and Париж) and the
  definite article inside an Arabic name are not read. Add such forms to the gold answers.
- The Portuguese article “o” is read as “or”, its meaning in Spanish and Italian: “Foi o Brasil”
  does not assert Brasil.
- Explanations of refusals are read in English only.
- A guess after a refusal (“Je ne sais pas, Rome”) is found by its capital letter or number, not in
  scripts without capitals.
"""


def page() -> str:
    """Return the page."""
    rows = [_assertions(code, foreign(code)) for code in FOREIGN]
    attached = [_attached(code, foreign(code)) for code in FOREIGN]
    phrases = {"en": sorted(english().refusals.phrases)}
    phrases |= {code: list(foreign(code).refusals) for code in FOREIGN}
    refusals = [
        f"| {code} | {_few(found)} | {len(found)} |" for code, found in sorted(phrases.items())
    ]
    parts = (INTRO, _lines(rows), ATTACHED, _lines(attached), REFUSALS, _lines(refusals), LIMITS)
    return "".join(parts)


def _lines(rows: list[str]) -> str:
    return "\n".join(rows) + "\n"


def _assertions(code: str, table: ForeignLanguage) -> str:
    denials = chain.from_iterable(table.words.get(word, ()) for word in ("not", "isn't", "wrong"))
    number = sum(map(_size, (table.words, table.before, table.after, table.joins)))
    cells = (code, table.name, _few(denials), _few(table.words["or"]), str(number))
    return f"| {' | '.join(cells)} |"


def _attached(code: str, table: ForeignLanguage) -> str:
    glosses = (table.before, table.after, table.joins)
    entries = [word for each in glosses for words in each.values() for word in words]
    entries += [f"{clitic}'" for clitic in table.clitics] + [f"-{end}" for end in table.endings]
    return f"| {code} | {'yes' if table.spaced else 'no'} | {_few(entries, 12) or '–'} |"


def _size(glosses: Glosses) -> int:
    return sum(map(len, glosses.values()))


def _few(words: chain[str] | list[str], number: int = 5) -> str:
    return ", ".join(islice(words, number))


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
