"""Refusals (Ground-GRPO) and abstentions (TruthRL)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence

from rag_rewards.text.boxed import unwrap
from rag_rewards.text.normalize import fold, squad
from rag_rewards.text.statements import sentences

REFUSAL = "I apologize, but I couldn't find an answer to your question in the search results."
"""Gold refusal of the Trust-Align data."""
SHORT_REFUSAL = "I apologize, but I couldn't find an answer"
"""Flag that Trust-Score's detector looks for."""
ABSTENTIONS = ("I don't know", "I dont know", "I do not know")


def refusal_similarity(
    answer: str, texts: Iterable[str] = (REFUSAL,), cutoff: float = 0.0
) -> float:
    """Similarity of a whole answer to the nearest refusal text, 0 to 1.

    rapidfuzz `ratio` (normalised insertion-deletion distance) over squad-normalised texts;
    below `cutoff` 0. Source: Ground-GRPO, section 2.2 ("a fuzzy matching algorithm").

    >>> round(refusal_similarity("I couldn't find an answer in the search results."), 2)
    0.7
    """
    from rapidfuzz import fuzz

    normal = squad(answer)
    return max(fuzz.ratio(normal, squad(t), score_cutoff=100 * cutoff) for t in texts) / 100


def trust_score_refusal(output: str, texts: Iterable[str] = (SHORT_REFUSAL,)) -> float:
    """Trust-Score's detector: partial similarity to the short flag, 0 to 1 in whole hundredths.

    An output counts as refused strictly above 0.85. Source: Trust-Score's evaluation code
    (there fuzzywuzzy; rapidfuzz differs from it by a few hundredths on texts far from the flag).

    >>> trust_score_refusal("Sadly: I apologize, but I couldn't find an answer.")
    1.0
    """
    from rapidfuzz import fuzz

    normal = squad(output)
    return max(round(fuzz.partial_ratio(squad(t), normal)) for t in texts) / 100


# --- strict refusals: the hardened profile -----------------------------------------------------

_NEGATORS = frozenset(
    "not no never none nothing cannot cant couldnt dont doesnt didnt isnt wasnt werent wont "
    "unable false untrue wrong incorrect neither nor without hardly".split()
)
# A sentence speaks of absence when something is missing from the sources.
_ABSENCE = frozenset(
    "not no none nothing cannot cant couldnt dont doesnt didnt isnt wasnt unable neither nor "
    "without insufficient inadequate absent lacking lack lacks missing unavailable unanswerable "
    "unclear unspecified unknown".split()
)
_SOURCES = frozenset(
    "document documents passage passages source sources result results search context text texts "
    "information evidence data material question query provided retrieved mention mentions "
    "mentioned contain contains state states stated answer".split()
)
_ASSERTING = frozenset("doubt other only but however is was".split())
# Words a refusal may use beyond the gold text without saying anything else.
_REFUSING = _NEGATORS | frozenset(
    "i im we am are was were be is it this that there here to of on in at by with from for "
    "about within among any some your my our their the a an and but so as if all sorry "
    "apologize apologies apology unfortunately regret afraid could can would able find found "
    "locate identify determine provide give answer answers answered answering information "
    "relevant sufficient enough question questions query asked search searched searching "
    "results result retrieved documents document passages passage sources source context text "
    "provided available given did do does have has been contain contains".split()
)
_QUOTES = re.compile(r"[\"“”„«»「」『』]")


def strict_refusal(
    answer: str,
    similarity: Callable[[str], float],
    texts: Sequence[str] = (REFUSAL,),
    *,
    threshold: float = 0.85,
    gold: Collection[str] = (),
) -> float:
    """Similarity of the one sentence that refuses, 0 when the answer does anything else.

    One sentence is a refusal that is not negated, quoted or mixed with other matter; every other
    sentence speaks of absence itself, and none states a gold answer (`gold`, squad-normalised).
    Markers must be gone already.

    >>> def like(text): return refusal_similarity(text)
    >>> strict_refusal(REFUSAL + " The documents do not mention it.", like)
    1.0
    >>> strict_refusal(REFUSAL + " It is Paris.", like)
    0.0
    """
    flat = [" ".join(squad(text).split()) for text in texts]
    negations = {sum(word in _NEGATORS for word in text.split()) for text in flat}
    vocabulary = _REFUSING.union(*(text.split() for text in flat))
    best = 0.0
    for sentence in sentences(fold(answer)):
        words = squad(sentence).split()
        if not words:
            continue
        if any(f" {answer} " in f" {' '.join(words)} " for answer in gold if answer):
            return 0.0
        score = similarity(sentence.strip())
        bare = vocabulary.issuperset(words) and not _QUOTES.search(sentence)
        if score >= threshold and bare and _negations(words) in negations:
            best = max(best, score)
        elif score >= threshold or not _speaks_of_absence(words):
            return 0.0
    return best


def _speaks_of_absence(words: Sequence[str]) -> bool:
    """Something is said to be missing from the sources, and nothing is asserted beside it."""
    if _ABSENCE.isdisjoint(words) or _SOURCES.isdisjoint(words):
        return False
    return not any(
        word in _ASSERTING and following not in _ABSENCE
        for word, following in zip(words, [*words[1:], ""], strict=True)
    )


def _negations(words: Sequence[str]) -> int:
    return sum(word in _NEGATORS for word in words)


# --- abstentions -------------------------------------------------------------------------------

_APOSTROPHES = re.compile("[‘’‛ʼʹʻ′´`＇]")


def phrase(text: str) -> str:
    """A phrase as abstentions are compared: case, apostrophes, invisible characters made one."""
    if "\\" in text:
        text = unwrap(text)
    text = text.lower() if text.isascii() else fold(_APOSTROPHES.sub("'", text))
    return " ".join(text.replace("`", "'").split())


EDGES = " .!,;:\"'()[]*_。！，、…"


def abstained(
    answer: str,
    phrases: Iterable[str] = ABSTENTIONS,
    gold: Collection[str] = (),
    *,
    alone: bool = False,
) -> bool:
    """Whether an answer contains an abstention that no gold answer contains too.

    Case, white space and the kind of apostrophe do not matter. `alone` asks that the phrase is
    the whole answer, punctuation apart. Source: TruthRL, section 3.2; their released code knows
    the first phrase alone.

    >>> abstained("I don’t know."), abstained("I Don't Know", gold=["I Don't Know What to Do"])
    (True, False)
    """
    return says(phrase(answer), [phrase(text) for text in phrases], gold, alone=alone)


def says(
    said: str, sought: Iterable[str], gold: Collection[str] = (), *, alone: bool = False
) -> bool:
    """`abstained` for an answer and phrases that went through `phrase` already."""
    if alone:
        said = said.strip(EDGES)
    for text in sought:
        found = said == text if alone else text in said
        if found and not any(text in phrase(alias) for alias in gold):
            return True
    return False
