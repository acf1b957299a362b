"""Strict substring matching: a gold answer that is asserted, not merely mentioned.

A mention counts when it stands at word boundaries; no negation comes before it in its clause and
none is said of it after; it is not an item of an enumeration of three or more or of an either-or,
whatever separates the items; it is not part of a question, of a quotation, or of document text
in the response. The text is read as a stream of words with what is written between them.
Everything is linear.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice

import msgspec

from rag_rewards.text import quantities
from rag_rewards.text.normalize import (
    ARTICLES,
    MARKER,
    Normalizer,
    Unicode,
    fold,
    lower,
    tokens,
)

_NEGATIONS = frozenset(
    "not no never neither nor none cannot without except excluding unlike unlikely hardly nobody "
    "nothing false incorrect wrong wrongly untrue doubt doubts deny denies myth mistake mistaken "
    "isnt wasnt arent werent doesnt didnt dont wont cant couldnt 不 非 没有 不是 并非 nicht kein "
    "keine non pas".split()
)
_TWO_WORD_NEGATIONS = frozenset(
    {("rather", "than"), ("instead", "of"), ("far", "from"), ("anything", "but"), ("other", "than")}
)
_CLAUSE_WORDS = frozenset(
    "but however although though whereas while because since so therefore thus hence yet "
    "it's rather instead".split()
)
# "not only Paris", "no doubt Paris", "none other than Paris", "cannot be denied that Paris".
_ASSERTING = frozenset("only just merely doubt wonder other until".split())
_DENIED_DENIALS = frozenset("denied doubted disputed".split())
_AUXILIARIES = frozenset(
    "is was are were be been being would can could must may might should has had does did do "
    "which it that".split()
)
_DENIALS = frozenset(
    "not never no wrong incorrect false untrue impossible excluded cannot hardly neither".split()
)
_JUDGED = frozenset("answer correct right true one it case solution".split())
_COORDINATORS = frozenset({"and", "or", "&", "plus", "und", "y", "et", "/", "|"})
_ALTERNATIVES = frozenset(
    {"or", "/", "|", "vs", "versus", "oder", "ou", "otherwise", "unless", "alternatively"}
    | {"或", "或者", "还是"}
)
_HEDGES = frozenset("also maybe perhaps possibly probably even".split())
_TENTATIVE = frozenset("another option options candidate candidates possible possibility".split())
_OPENS = frozenset(":([\"'*")
_PAIRED = frozenset(["either", "whether"])
# What an item of a list does not begin with: "Paris, in 1900", "Paris, the capital", "…, who".
_NOT_AN_ITEM = frozenset(
    "in on at by of for from to with as which who whom whose where when that this these those "
    "is was are were has had have it he she they its his her their there since because during "
    "after before until while so then not but according near under over being located".split()
)
_SPLIT = re.compile(r"[^\s/|]+|[/|]|\n")
# "1. Rome", "- Rome", "2) Rome", "(b) Rome": the label or bullet of an item is no word. An initial
# looks like a label ("John F. Kennedy"); the gold answers tell them apart.
_NUMBERING = re.compile(
    r"(?:^|\n)[ \t]{0,8}[-*•][ \t]"
    r"|(?<!\S)\(?(?:(?P<number>\d{1,2})|(?P<letter>[a-z]))[.)](?=\s)"
    r"|\s(?:[-–—+→•·]|->)\s"
)
_LABEL = re.compile(r"\d{1,2}|[a-z]")
_EDGES = ".,;:!?()[]{}\"'*_`—。，、；：！？“”‘’«»「」『』…"
_NEIGHBOR = 64  # characters in which the words beside a label are sought
# Document text in a response is not its statement.
_FORGED_LINE = re.compile(
    r"(?i)(?:^|\n)[ \t]{0,8}(?:>[^\n]*|"
    # A labelled passage reaches to the next blank line.
    r"(?:(?:document|doc|passage|source|sources|title|references?)\b[ \t]{0,8}"
    r"(?:\[?\d{1,3}\]?)?[ \t]{0,8}:|\[\d{1,3}\][ \t]{0,8}(?:title|\())[^\n]*(?:\n[^\n]+)*)"
)
# Chinese puts no spaces: its list marks, negations and alternatives are set apart.
_CJK_MARKS = re.compile("([、。；！？：,;!?:])(?=[\u3040-\u30ff\u3400-\u9fff])")
_CJK_WORDS = re.compile("(不是|并非|没有|或者|或(?!许)|还是)")
_BLOCK = re.compile(r"</?([a-z_]{2,24})(?:\s[^<>]{0,200})?>")
_SOURCE = re.compile(r"\bsources?[ \t]{0,8}:[^\n]*")
_CLAUSE_ENDS = frozenset(".;:!?—()[]。；：！？")
_LIST_MARKS = frozenset(",;/|\n，、；")
_QUOTE = frozenset('"«»「」『』')
_PLACES = frozenset(("in", "of", "from", "near"))
_SKIPPED = frozenset("by be means not definitely certainly clearly one only just".split())
_MAX_ITEM_WORDS = 6
LONGEST_ANSWER = 60  # words; a longer answer section or box is a passage, not an answer
_MAX_MENTIONS = 64  # an answer that has asserted nothing by then asserts nothing


class _Word(msgspec.Struct, frozen=True, gc=False):
    """Normalised pieces of one written word, and the marks written directly around it."""

    text: str
    pieces: tuple[str, ...]
    before: str
    after: str


def without_forgeries(text: str) -> str:
    """A text without quoted lines and labelled passages, which are not its own statements.

    >>> without_forgeries("It is Rome.\\nDocument 1: Paris is large.")
    'It is Rome.\\n'
    """
    return _FORGED_LINE.sub("\n", text) if "\n" in text else text


def _own_text(text: str, initials: _Initials) -> str:
    """Return a folded text without markers, quoted lines, blocks of document text and numbering."""
    if "<" in text:
        text = _without_blocks(text)
    if not text.isascii():
        text = _CJK_WORDS.sub(r" \1 ", _CJK_MARKS.sub(r"\1 ", text))
    text = MARKER.sub(" ", _SOURCE.sub(" ", _FORGED_LINE.sub("\n", text)))
    text = text.replace(" as well as ", " and ").replace("\t", "\n")
    return _NUMBERING.sub(initials.separated, text)


_Place = tuple[tuple[str, ...] | None, tuple[str, ...] | None]
"""The normalized words before and after a label; None where the gold answer begins or ends."""


class _Initials:
    """Single letters and numbers of the gold answers, which one text may hold as well.

    What looks like a label in the text is part of a name where it has the same neighbors as in
    a gold answer: "f." between "john" and "kennedy". A gold answer that is a letter or a number
    has no neighbors; see `_is_alone`.
    """

    def __init__(self, gold: Sequence[Sequence[str]], normalize: Normalizer) -> None:
        self._gold, self._normalize = gold, normalize
        self._counts: Counter[str | None] | None = None

    @cached_property
    def _places(self) -> dict[str, set[_Place]]:
        places: dict[str, set[_Place]] = {}
        for alias in itertools.chain.from_iterable(self._gold):
            words = [token.strip(_EDGES) for token in fold(alias).split()]
            forms = [None, *(_pieces(word, self._normalize) for word in words), None]
            for i, word in enumerate(words):
                if _LABEL.fullmatch(word):
                    places.setdefault(word, set()).add((forms[i], forms[i + 2]))
        return places

    def separated(self, match: re.Match[str]) -> str:
        """Return the line break that replaces a bullet or a label, or the initial as a word."""
        kind = match.lastgroup
        if kind is None or not (places := self._places.get(match[kind])):
            return "\n"
        label = match[kind]
        before, after = self._form_before(match), self._form_after(match)
        if (before, after) in places:
            return label  # its full stop ends no sentence
        if (None, after) in places and label not in ARTICLES:  # "A." would begin an apposition
            return f"\n{label}"
        if (before, None) in places:
            return f"{label}\n"
        return match[0] if (None, None) in places and self._is_alone(match) else "\n"

    def _is_alone(self, label: re.Match[str]) -> bool:
        """Whether a label numbers nothing: "The answer is 5. It is odd.".

        It is the only one of its kind, and it does not begin a line that goes on after it.
        """
        text = label.string
        if self._counts is None:
            self._counts = Counter(match.lastgroup for match in _NUMBERING.finditer(text))
        if self._counts[label.lastgroup] > 1:
            return False
        line_before = text[: label.start()].rpartition("\n")[2]
        return bool(line_before.strip()) or not text[label.end() :].strip()

    def _form_before(self, match: re.Match[str]) -> tuple[str, ...]:
        start = match.start()
        return self._form(match.string[max(start - _NEIGHBOR, 0) : start].split()[-1:])

    def _form_after(self, match: re.Match[str]) -> tuple[str, ...]:
        return self._form(match.string[match.end() : match.end() + _NEIGHBOR].split()[:1])

    def _form(self, tokens: list[str]) -> tuple[str, ...]:
        return _pieces(tokens[0].strip(_EDGES), self._normalize) if tokens else ()


def _without_blocks(text: str) -> str:
    """Without <document>…</document> and the like; an unclosed block reaches to the end."""
    kept, at, inside = [], 0, ""
    for match in _BLOCK.finditer(text):
        closing = match[0][1] == "/"
        if not inside and not closing:
            kept.append(text[at : match.start()])
            inside = match[1]
        elif closing and match[1] == inside:
            at, inside = match.end(), ""
    if not inside:
        kept.append(text[at:])
    return "\n".join(kept)


def _words(text: str, normalize: Normalizer) -> list[_Word]:
    """The stream of words. Articles vanish under the normalisers that drop them."""
    out: list[_Word] = []
    pending, quotes = "", 0
    known: dict[str, tuple[str, ...]] = {}
    for match in _SPLIT.finditer(text):
        token = match[0]
        if token in "/|\n":  # noqa: S105 (no password)
            if out:
                last = out[-1]
                out[-1] = _Word(last.text, last.pieces, last.before, _few(last.after + token))
            continue
        if token.isascii() and token.isalnum():
            # One plain word: every normaliser leaves it as it is, or drops it as an article.
            dropped = token in ARTICLES and normalize is not lower
            out.append(_Word(token, () if dropped else (token,), _few(pending), ""))
            pending = ""
            continue
        core = token.strip(_EDGES)
        start = token.find(core) if core else len(token)
        quotes += token.count('"') if core else 0
        before, after = token[:start], token[start + len(core) :]
        if not core:
            opens = token[0] in "“「『([{" or (token[0] == '"' and quotes % 2 == 0)
            quotes += token.count('"')
            if out and not opens:
                last = out[-1]
                out[-1] = _Word(last.text, last.pieces, last.before, _few(last.after + token))
            else:
                pending += token
            continue
        kept = core + after[:1] if after[:1] in ("+", "#", "%", "-") else core
        if normalize is not lower and core in ARTICLES:
            pieces: tuple[str, ...] = ()
        elif kept in known:
            pieces = known[kept]
        else:
            pieces = known[kept] = _pieces(kept, normalize)
        out.append(_Word(core, pieces, _few(pending + before), _few(after)))
        pending = ""
    if isinstance(normalize, Unicode) and (normalize.numbers or normalize.dates):
        return _merged(out, normalize)
    return out


def _few(marks: str) -> str:
    """Marks as they stand; of a great many each kind once, in order, so that all stays linear."""
    return marks if len(marks) <= 16 else "".join(dict.fromkeys(marks))


def _pieces(word: str, normalize: Normalizer) -> tuple[str, ...]:
    return tuple(tokens(normalize(word)))


def _merged(words: list[_Word], normalize: Unicode) -> list[_Word]:
    """Words that are one number or one date ("1 million", "5 March 1999") as one word."""
    plain = [" ".join(word.pieces) or word.text for word in words]
    spans = [(text, 1) for text in plain]
    if normalize.dates:
        spans = quantities.date_spans(plain)
    if normalize.numbers:
        spans = quantities.number_spans(spans)
    merged, at = [], 0
    for text, taken in spans:
        first, last = words[at], words[at + taken - 1]
        changed = taken > 1 or text != plain[at]
        pieces = (text,) if changed else first.pieces
        merged.append(_Word(first.text, pieces, first.before, last.after))
        at += taken
    return merged


def strict_contains(
    text: str, aliases: Sequence[str], normalize: Normalizer, *, required: int = 1
) -> bool:
    """Whether some alias is asserted somewhere in a text.

    `required` is the number of answers that the question asks for: an enumeration of that many
    is an answer, a longer one is guessing.

    >>> from rag_rewards.text.normalize import squad
    >>> [strict_contains(t, ["Paris"], squad) for t in (
    ...     "It is Paris.", "definitely not Paris", "Parisian", "Paris, Rome or Berlin",
    ...     "either Paris or Rome", "Not Rome, but Paris")]
    [True, False, False, False, False, True]
    """
    return StrictText(text, normalize, [aliases], required=required).contains(aliases)


class StrictText:
    """A text, read once, that is asked for any of the gold answers as `strict_contains` is.

    `gold` holds the aliases of each answer; `required`, as many unless given, is the number of
    answers that the question asks for.
    """

    def __init__(
        self,
        text: str,
        normalize: Normalizer,
        gold: Sequence[Sequence[str]],
        *,
        required: int | None = None,
    ) -> None:
        self._normalize = normalize
        self._folded = _own_text(fold(text), _Initials(gold, normalize))
        self._words = _words(self._folded.replace("、", "、 "), normalize)
        stream = [piece for word in self._words for piece in word.pieces]
        self._owner = [i for i, word in enumerate(self._words) for _ in word.pieces]
        self._pieces = _joined(stream)
        self._texts = _joined([word.text for word in self._words])
        self._reading = _Reading(self._words, len(gold) if required is None else required)

    def contains(self, aliases: Sequence[str]) -> bool:
        """Whether some alias is asserted somewhere in the text."""
        mentions: list[tuple[int, int]] = []
        for alias in aliases:
            sought = _words(fold(alias), self._normalize)
            if sought and not sought[-1].pieces and len(sought) > 1:
                # "Vitamin A": the last word only looks like an article.
                if self._ends_in_article([word.text for word in sought]):
                    return True
                continue
            wanted = [piece for word in sought for piece in word.pieces]
            if not wanted:
                if alias.strip() and alias.strip().casefold() in self._folded:
                    return True  # gold that is no word, compared as it is written
                continue
            mentions.extend(
                (self._owner[start], self._owner[start + len(wanted) - 1])
                for start in islice(_find(self._pieces, wanted), _MAX_MENTIONS)
            )
        return any(self._reading.asserts(first, last) for first, last in _widest(mentions))

    def _ends_in_article(self, wanted: list[str]) -> bool:
        starts = islice(_find(self._texts, wanted), _MAX_MENTIONS)
        return any(self._reading.asserts(at, at + len(wanted) - 1) for at in starts)


def _widest(mentions: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Mentions that lie in no wider one: "Atlantic" in "Atlantic Ocean is wrong" is none."""
    reached = -1
    for first, last in sorted(mentions, key=lambda mention: (mention[0], -mention[1])):
        if last > reached:
            reached = last
            yield first, last


def _joined(stream: Sequence[str]) -> str:
    return "\x00" + "\x00".join(stream) + "\x00"


def _find(joined: str, wanted: Sequence[str]) -> Iterator[int]:
    """Positions of a run of words among joined ones: the separator makes it one linear search."""
    needle = _joined(wanted)
    at, counted, start = joined.find(needle), 0, 0
    while at >= 0:
        counted += joined.count("\x00", start, at)
        start = at
        yield counted
        at = joined.find(needle, at + 1)


class _Reading:
    """What the words around a mention make of it."""

    def __init__(self, words: Sequence[_Word], required: int) -> None:
        self.words = words
        self.required = required
        self._segments = _segments(words)
        self._starts = [start for start, _ in self._segments]

    def asserts(self, first: int, last: int) -> bool:
        words = self.words
        return not (
            _negated_before(words, first)
            or _denied_after(words, last)
            or _enumerated(words, first, last, self.required)
            or _asked(words, last)
            or _quoted(words, first, last)
            or _overruled(words, last)
            or self._side_by_side(first, last)
            or self._in_turn(first, last)
            or self._one_of_many(first, last)
        )

    def _side_by_side(self, first: int, last: int) -> bool:
        """Names on both sides and nothing else: "Rome Paris Berlin"."""
        words = self.words
        if first == 0 or last + 1 == len(words) or len(words) > 12:
            return False
        plain = not any(word.after or word.before for word in words[:-1])
        return plain and not any(
            word.text in _NOT_AN_ITEM or word.text in ARTICLES or word.text in _AUXILIARIES
            for word in words
        )

    def _segment_of(self, first: int, last: int) -> tuple[int, int]:
        at = bisect_right(self._starts, first) - 1
        start, end = self._segments[at] if at >= 0 else (first, last + 1)
        return (start, end) if last < end else (first, last + 1)

    def _in_turn(self, first: int, last: int) -> bool:
        """Sentences that are nothing but a name: "The answer is Rome. Paris. Berlin."."""
        at = bisect_right(self._starts, first) - 1
        if at < 0 or self._segments[at][1] != last + 1:
            return False
        enough = max(3, self.required + 1)
        left = right = at
        while right + 1 < len(self._segments) and right - left < enough and self._bare(right + 1):
            right += 1
        # The sentence before the run carries its first name.
        while left and right - left < enough and self._bare(left):
            left -= 1
        return right - left + 1 >= enough

    def _bare(self, at: int) -> bool:
        start, end = self._segments[at]
        ends = self.words[start - 1].after if start else "."
        ended = self.words[end - 1].after if end < len(self.words) else "."
        return (
            end - start <= 2
            and self.words[start].text not in _NOT_AN_ITEM
            and self.words[start].text not in _NEGATIONS
            and not _ANY_END.isdisjoint(ends)
            and not _ANY_END.isdisjoint(ended)
        )

    def _one_of_many(self, first: int, last: int) -> bool:
        """The mention fills a slot that other segments fill otherwise ("It is Rome. It is …")."""
        start, end = self._segment_of(first, last)
        texts = [word.text for word in self.words[start:end]]
        left, right = texts[: first - start], texts[last + 1 - start :]
        frame = len(left) + len(right)
        same = {self.words[first].text}
        for a, b in islice(self._segments, _MAX_SEGMENTS):
            length = b - a - frame
            if not 0 < length <= (4 if frame else 3) or (a, b) == (start, end):
                continue
            here = [word.text for word in self.words[a:b]]
            if len(right) == 2 and right[0] in _PLACES:  # "Rome in Italy, Paris in France"
                here[-1] = right[1]
            if not frame and (here[0] in ARTICLES or here[0] in _NOT_AN_ITEM):
                continue
            fits = here[: len(left)] == left and (not right or here[-len(right) :] == right)
            if fits and here[len(left)] not in _NEGATIONS:  # "It is not Rome. It is Paris."
                same.add(here[len(left)])
        enough = max(2, self.required + 1) if frame > 1 else max(3, self.required + 1)
        return len(same) >= enough


_MAX_SEGMENTS = 512


def _segments(words: Sequence[_Word]) -> list[tuple[int, int]]:
    """Runs of words between marks and conjunctions."""
    found, start = [], 0
    for i, word in enumerate(words):
        joins = word.text in _COORDINATORS or word.text in _ALTERNATIVES or word.text in _PAIRED
        if joins or (i > start and word.before):
            if i > start:
                found.append((start, i))
            start = i + 1 if joins else i
        if not joins and (word.after or i + 1 == len(words)):
            found.append((start, i + 1))
            start = i + 1
    return found


def _asked(words: Sequence[_Word], last: int) -> bool:
    """The sentence of the mention is a question."""
    for word in words[last : last + 40]:
        if "?" in word.after or "？" in word.after:
            return True
        if not _SENTENCE_ENDS.isdisjoint(word.after):
            return False
    return False


_SENTENCE_ENDS = frozenset(".!。！\n")
_ANY_END = _SENTENCE_ENDS | {"?", "？"}


def _quoted(words: Sequence[_Word], first: int, last: int) -> bool:
    """The mention stands inside a quotation of more than itself."""
    opened = 0
    for word in words[max(first - 60, 0) : first]:
        marks = sum(char in _QUOTE for char in word.before + word.after)
        opened += marks
    before = sum(char in _QUOTE for char in words[first].before)
    after = sum(char in _QUOTE for char in words[last].after)
    inside = (opened + before) % 2 == 1
    return inside and not (before and after)


def _overruled(words: Sequence[_Word], last: int) -> bool:
    """A later "the answer is …" gives another answer."""
    rest = words[last + 1 : last + 200]
    for i in range(len(rest) - 2):
        if rest[i].text == "answer" and rest[i + 1].text in ("is", "was"):
            said = [word.text for word in rest[i + 2 : i + 14]]
            return words[last].text not in said
    return False


def _negated_before(words: Sequence[_Word], first: int) -> bool:
    """A negation between the beginning of the clause and the mention."""
    if words[first].before.endswith("!") or words[first].text[:1] in "不非":
        return True
    for i in range(first - 1, max(first - 40, -1), -1):
        word, following = words[i], words[i + 1]
        if (word.text, following.text) in _TWO_WORD_NEGATIONS:
            return not (i and words[i - 1].text == "none")
        if word.text in ("right", "correct", "true") and following.text != "to":
            return i > 0 and words[i - 1].text in _NEGATIONS
        if word.text == "but" and i and words[i - 1].text == "anything":
            return True
        if i == first - 1 and word.text == "not" and set(word.after) <= _OPENS:
            return True  # "not: Paris", "not (Paris)"
        opens = word.text in _CLAUSE_WORDS and not (i and words[i - 1].text == "that")
        if opens or _ends_clause(word, following):
            return False
        if word.after.startswith(",") and not _list_goes_on(words, i, first):
            return any(w.text == "not" and w.after == "," for w in words[max(i - 8, 0) : i])
        if word.text in _NEGATIONS or word.text.endswith("n't"):
            close = {w.text for w in words[i + 1 : i + 3]}
            if word.text in ("doubt", "doubts") and i and words[i - 1].text in _NEGATIONS:
                return False
            return following.text not in _ASSERTING and close.isdisjoint(_DENIED_DENIALS)
    return False


def _denied_after(words: Sequence[_Word], last: int) -> bool:
    """ "Paris is wrong", "Paris is not the capital", "Paris (wrong)", "Paris: no"."""
    judged = relative = False
    for i in range(last + 1, min(last + 7, len(words))):
        here, word = words[i - 1], words[i]
        if here.after and not (i == last + 1 and set(here.after) <= set(",:(\"'*")):
            return False
        if word.text in ("cannot", "can't"):
            return True
        if word.text in _DENIALS or word.text.endswith("n't"):
            rest = [w.text for w in words[i + 1 : i + 4]]
            if relative and word.text in ("not", "never"):
                return not _JUDGED.isdisjoint(rest)
            alone = (here.after or word.before) and (word.after or not rest)
            return bool(judged or alone or word.text.endswith("n't")) and (
                _ASSERTING.isdisjoint(rest[:1])
            )
        if judged and (word.text == "ruled" or word.text in _TENTATIVE):
            return True
        relative = relative or word.text in ("which", "that")
        if word.text in _AUXILIARIES:
            judged = True
        elif judged:
            if word.text not in ARTICLES and word.text not in _SKIPPED:
                return False
        elif not word.text.endswith("ly") and word.text not in ("by", "means"):
            return False
    return False


def _ends_clause(word: _Word, following: _Word) -> bool:
    return not _CLAUSE_ENDS.isdisjoint(word.after) or not _CLAUSE_ENDS.isdisjoint(following.before)


def _list_goes_on(words: Sequence[_Word], comma: int, first: int) -> bool:
    """A negation reaches over the commas of a list ("not Rome, Paris or Bonn")."""
    following = words[comma + 1 : first + 1]
    return len(following) <= 4 and any(
        w.text in _COORDINATORS for w in words[comma + 1 : first + 4]
    )


# --- enumerations ------------------------------------------------------------------------------


def _enumerated(words: Sequence[_Word], first: int, last: int, required: int) -> bool:
    """The mention is an item of an either-or, or of a list of three or more."""
    enough = max(3, required + 1)
    left, alternative = _items(words, first, -1, enough)
    if alternative or 1 + left >= enough:
        return True
    right, alternative = _items(words, last, +1, enough)
    return alternative or 1 + left + right >= enough


def _items(words: Sequence[_Word], edge: int, step: int, enough: int) -> tuple[int, bool]:
    """How many further items stand on one side of the mention, and whether "or" joins them.

    Items are runs of at most a few words between list marks or conjunctions. An apposition
    ("Paris, the capital, …") counts only where a conjunction shows that this is a list.
    """
    count, appositions, length = 0, 0, 0
    separated = joined = apposition = False
    at = edge
    while 0 <= at + step < len(words) and count < enough:
        here, there = (at, at + 1) if step > 0 else (at - 1, at)
        mark, ends = _between(words[here], words[there])
        if ends:
            break
        at += step
        word = words[at].text
        joins = word if word in _COORDINATORS or word in _ALTERNATIVES else ""
        if mark or joins:
            if mark in _ALTERNATIVES or joins in _ALTERNATIVES:
                return count, True
            if step < 0 and separated and length and words[at + 1].text in _NOT_AN_ITEM:
                return count + (appositions if joined else 0), False
            count += separated and length > 0 and not apposition
            appositions += separated and length > 0 and apposition
            joined = joined or bool(joins) or mark in "/|\n"
            separated, length, apposition = True, 0, False
            if joins:
                continue
        elif not separated and word in _HEDGES:
            continue
        elif not separated:
            break  # on this side the mention is part of a longer phrase
        if step > 0 and length == 0:
            if word in _NOT_AN_ITEM:
                separated = False
                break
            apposition = word in ARTICLES
        length += 1
        if length > _MAX_ITEM_WORDS:
            # The first item of a list carries the sentence before it ("The answer is Rome, …").
            separated = step < 0
            break
    if step < 0 and length and words[max(at, 0)].text in _NOT_AN_ITEM:
        return count + (appositions if joined else 0), False
    count += separated and length > 0 and not apposition
    appositions += separated and length > 0 and apposition
    return count + (appositions if joined else 0), False


def _between(word: _Word, following: _Word) -> tuple[str, bool]:
    """(list mark, ends the list) for what is written between two words."""
    written = word.after + following.before
    mark = next((char for char in written if char in _LIST_MARKS), "")
    ends = not mark and not _CLAUSE_ENDS.isdisjoint(written.replace("(", "").replace(")", ""))
    return mark, ends
