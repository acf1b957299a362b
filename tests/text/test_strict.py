"""Strict matching: assertions count, other mentions do not."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.text.normalize import Unicode, lower, squad, tokens, triviaqa
from rag_rewards.text.strict import StrictText, strict_contains

UNICODE = Unicode()
NORMALIZERS = [squad, UNICODE]
FOLDING = Unicode(numbers=True, dates=True, fold_accents=True)
EVERY = [lower, squad, triviaqa, UNICODE, FOLDING]


def name_of(normalize):
    """Return an id that is the same in every process, unlike the repr of a function."""
    return getattr(normalize, "__name__", repr(normalize))


def asserted(text, answer="Paris", normalize=UNICODE, **options):
    return strict_contains(text, [answer], normalize, **options)


ASSERTED = [
    "Paris",
    "PARIS!",
    "**Paris**",
    '"Paris"',
    "It is Paris.",
    'The answer is "Paris".',
    "Answer: Paris",
    "1. Paris",
    "- Paris",
    "Yes, Paris.",
    "It was Paris that won.",
    # not negated, or negated elsewhere
    "Not Rome, but Paris.",
    "It is not Rome. It is Paris.",
    "The capital is not Rome. The capital is Paris.",
    "It's not Rome; it's Paris",
    "Rome is not the capital, Paris is.",
    "Paris is the capital, not Rome.",
    "Paris, not Rome.",
    "Paris rather than Rome.",
    "Unlike Rome, Paris lies on the Seine.",
    "not only Paris",
    "There is no doubt that it is Paris.",
    "It is none other than Paris.",
    "No, it is Paris.",
    "No. Paris.",
    "I'm not sure, but Paris is the capital.",
    "It is neither big nor small, but Paris is the capital.",
    "There are no documents about Rome. Paris is the capital.",
    # appositions, places, afterthoughts
    "Paris, the capital of France, is large.",
    "The capital, Paris, is large.",
    "Paris, in France, is large.",
    "Paris, France",
    "Paris, which lies on the Seine, is the capital.",
    "Paris (also known as Lutetia) is the capital.",
    "The capital (Paris) is large.",
    "The capital is Paris (France).",
    "Paris – the capital – is large.",
    "The capital of France is Paris, a city on the Seine.",
    "Smith was born in Paris, France, on May 5, 1950.",
    "The tower, which is in Paris, was built in 1889, when it was the tallest.",
    # lists of something else, and lists of two
    "Paris has parks, museums, and theatres.",
    "The team consisted of Smith, Jones and Brown. They played in Paris.",
    "Paris hosted in 1900, 1924 and 2024.",
    "Paris and Rome",
    "Paris, Rome",
    "Rome is large and Paris is the capital.",
    "He was born in London. He was raised in Rome. He died in Paris.",
    "In 1900, Paris held the Olympics.",
    "With a population of 2 million, Paris is the largest city.",
    "What is the capital of France? It is Paris.",
    "Based on the documents, the capital is Paris [1].",
    "Is it Rome? No. Paris.",
    "The capital is Paris. However, Rome is bigger.",
    # invisible and look-alike characters
    "Pa\u200bris",
    "Paris\u202e",
    "Ｐａｒｉｓ",
]
MENTIONED = [
    # negation
    "definitely not Paris",
    "NOT Paris",
    "It is not Paris.",
    "It isn't Paris.",
    "It isn’t Paris.",
    "It can't be Paris",
    "It cannot be Paris.",
    "It is never Paris",
    "no Paris",
    "without Paris",
    "rather than Paris",
    "instead of Paris",
    "anything but Paris",
    "none of them is Paris",
    "It is by no means Paris.",
    "neither Rome nor Paris",
    "neither Paris nor Rome",
    "I don't think it is Paris",
    "It is false that the capital is Paris.",
    "It's not true that it's Paris.",
    "It is not, in fact, Paris.",
    "Not: Paris",
    "not (Paris)",
    'not "Paris"',
    "Paris is wrong",
    "Paris is incorrect",
    "Paris is not the answer.",
    "Paris isn't it",
    # word boundaries
    "Parisian",
    "comParis",
    "Parisfrance",
    "x-Paris-y",
    "Paris2",
    # either-or
    "Paris or Rome",
    "Rome or Paris",
    "either Paris or Rome",
    "Either it is Rome or it is Paris.",
    "Rome, or Paris",
    "Rome (or Paris)",
    "Paris/Rome",
    "Paris | Rome",
    "Rome vs Paris",
    "Whether Rome or Paris",
    # the second of two answers to a question that asks for one
    "Rome and Paris",
    "Rome & Paris",
    "Rome and also Paris",
    "The answer is Rome and Paris.",
    "It is Rome and it is Paris.",
    "Rome, Paris",
    "Rome; Paris.",
    # the same slot filled several times
    "It is Rome. It is Paris. It is Berlin.",
    "The answer is Rome. The answer is Paris. The answer is Berlin.",
    "It might be Rome, it might be Paris, it might be Berlin.",
    "Candidates: Rome, Paris, Berlin.",
    "It could be Rome, New York, Paris or Berlin.",
    # invisible and look-alike characters
    "no\u200bt Paris",
    "n\u00adot Paris",
    "not\u00a0Paris",
    "not\u2003Paris",
    "nоt Paris",
    "ｎｏｔ Paris",
    "Rome\u200b,\u200bParis\u200b,\u200bBerlin",
    "not Par\u200bis",
    # nothing
    "",
    " ",
    "...",
    "Rome",
]


@pytest.mark.parametrize("normalize", NORMALIZERS, ids=name_of)
@pytest.mark.parametrize("text", ASSERTED)
def test_asserted(text, normalize):
    assert asserted(text, normalize=normalize)


@pytest.mark.parametrize("normalize", NORMALIZERS, ids=name_of)
@pytest.mark.parametrize("text", MENTIONED)
def test_merely_mentioned(text, normalize):
    assert not asserted(text, normalize=normalize)


# However the items of an enumeration are set apart.
JOINTS = [
    *(", ", ",", " , ", "; ", " / ", "/", " | ", "|", "\n", "\n\n", "\n- ", "\n* ", " & ", " + "),
    *(" and ", " or ", ", and ", ", or ", " • ", " · ", " - ", " — ", " → ", "\t", ". ", "? "),
    *("! ", "... ", "、", "，", " as well as ", " and/or ", "; or ", ",\u200b", ",\u00a0", " ; "),
]
CITIES = ("Rome", "Paris", "Berlin", "New York")


@pytest.mark.parametrize("normalize", NORMALIZERS, ids=name_of)
@pytest.mark.parametrize("joint", JOINTS, ids=repr)
@pytest.mark.parametrize("order", list(itertools.permutations(CITIES[:3])), ids="-".join)
def test_a_list_of_three_is_a_guess(order, joint, normalize):
    listed = joint.join(order)
    for text in (listed, f"{listed}.", f"The answer is {listed}."):
        assert not asserted(text, normalize=normalize), text


@pytest.mark.parametrize("joint", [", ", "; ", "\n- ", " / "])
@given(st.permutations(CITIES))
@budget(24)
def test_a_longer_list_is_a_guess(joint, order):
    text = joint.join(order)
    assert not any(asserted(text, city) for city in CITIES)


@pytest.mark.parametrize(
    "form", ["{}, {} and {}", "{}, {}, {}", "- {}\n- {}\n- {}", "1. {}\n2. {}\n3. {}", "{}; {}; {}"]
)
def test_a_list_of_the_required_length_is_an_answer(form):
    text = form.format(*CITIES[:3])
    for city in CITIES[:3]:
        assert asserted(text, city, required=3)
        assert not asserted(text, city)
    longer = text + ", New York, Oslo"
    assert not asserted(longer, "Paris", required=3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("巴黎", True),
        ("首都是巴黎。", True),
        ("首都不是罗马，而是巴黎。", True),
        ("巴黎，法国的首都。", True),
        ("法国的首都很大，它的名字是巴黎。", True),
        ("不是巴黎", False),
        ("首都不是巴黎。", False),
        ("罗马、巴黎、柏林", False),
        ("罗马，巴黎，柏林", False),
        ("巴黎或罗马", False),
        ("罗马还是巴黎", False),
        ("罗马", False),
    ],
)
def test_chinese(text, expected):
    assert asserted(text, "巴黎") is expected


@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        ("President Macron", "Ron", False),
        ("It opened in 2415.", "1", False),
        ("That is unknown.", "no", False),
        ("No.", "no", True),
        ("3.14", "14", False),
        ("314", "3.14", False),
        ("-5", "5", False),
        ("It is -5.", "-5", True),
        ("C#", "C++", False),
        ("C++", "C", False),
        ("It is C++.", "C++", True),
        ("New York City", "New York", True),
        ("York New", "New York", False),
        ("The Beatles", "Beatles", True),
        ("L’Oréal won", "L'Oréal", True),
        ("São Tomé", unicode_nfd := "Sa\u0303o Tome\u0301", True),
        (unicode_nfd, "São Tomé", True),
        ("Parıs", "Paris", False),
    ],
)
def test_word_boundaries(text, answer, expected):
    assert asserted(text, answer) is expected


@pytest.mark.parametrize(
    ("text", "answer", "options", "expected"),
    [
        ("It has 1 million people.", "1,000,000", {"numbers": True}, True),
        ("not 1 million", "1,000,000", {"numbers": True}, False),
        ("It was 5 March 1999.", "1999-03-05", {"dates": True}, True),
        ("In Sao Paulo", "São Paulo", {"fold_accents": True}, True),
    ],
)
def test_options_of_the_normalizer(text, answer, options, expected):
    assert asserted(text, answer, Unicode(**options)) is expected


def test_any_alias_and_any_mention_can_match():
    assert strict_contains("The City of Light", ["Paris", "City of Light"], UNICODE)
    assert strict_contains("Not Paris of Texas. It is Paris.", ["Paris"], UNICODE)
    assert not strict_contains("Paris", [], UNICODE)
    assert not strict_contains("Paris", ["", "..."], UNICODE)


# --- words that repeat the question, appositions, and mentions with a comma ---------------------

REPAIRED = [
    ("Who sings Never Let Me Be?", 'The song "Never Let Me Be" is sung by Anna Reed.', "Anna Reed"),
    ("Who wrote It Is Not So?", "It Is Not So was written by Anna Reed.", "Anna Reed"),
    ("What organ serves no evident purpose?", "It serves no evident purpose: the tail.", "tail"),
    ("Which actor plays Tom, Tim and Ted?", "Tom, Tim and Ted: Anna Reed.", "Anna Reed"),
    ("", "It came out on March 8, 2018, in Rome.", "March 8, 2018"),
    ("", 'It is called the "The Long Road".', "Long Road"),
    ("", "It was designed by Anna Reed, a painter and writer, and by her team.", "Anna Reed"),
    ("", "The house lies in Bonn, Rhineland, Germany.", "Bonn"),
    ("", "The song Red (1968) was written by Anna Reed in London.", "Anna Reed"),
    ("", "It was written byAnna Reed.", "Anna Reed"),
    ("", "It was written by Anna Reed12. She lives in Rome.", "Anna Reed"),
    ("", "It came out in 19731.", "1973"),
    ("", "The number is 19731.", "19731"),
    ("", "It was sung by Oasis.", "Oasis (band)"),
    ("", "She was born in Paris, raised in Lyon, and educated in London.", "Paris"),
]


@pytest.mark.parametrize("normalize", NORMALIZERS, ids=name_of)
@pytest.mark.parametrize(("question", "text", "answer"), REPAIRED)
def test_honest_answers(question, text, answer, normalize):
    assert asserted(text, answer, normalize, question=question)


@pytest.mark.parametrize("normalize", NORMALIZERS, ids=name_of)
@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("Which city is the capital?", "It is not the capital: Rome. It is not Paris."),
        ("Is Rome or Paris larger?", "Rome or Paris is larger."),
        ("Which city is it?", "Which city is it? Paris?"),
        ("Where is the Rome bar?", "The Rome bar is not in Paris."),
        ("What is the capital?", 'Someone wrote "it is the Paris of the north".'),
        ("", "The candidates are Rome, a town, Paris, a city, and Berlin."),
        ("", "The towns are Rome, Paris, Berlin."),
        ("", "It is Rome. It is Berlin. It is Paris."),
    ],
)
def test_guesses_and_denials_that_repeat_the_question(question, text, normalize):
    assert not asserted(text, normalize=normalize, question=question)


@pytest.mark.parametrize("normalize", NORMALIZERS, ids=name_of)
@pytest.mark.parametrize(
    ("number", "answer"), [("12500", "1250"), ("18000", "1800"), ("12345", "1234")]
)
def test_the_last_digits_of_a_number_are_not_a_footnote(number, answer, normalize):
    assert not asserted(f"The number is {number}.", answer, normalize)


# --- initials and numbers that look like the labels of a list -----------------------------------

NAMES = [
    "John F. Kennedy",
    "John F Kennedy",
    "George H. W. Bush",
    "J. K. Rowling",
    "F. Scott Fitzgerald",
    "U. S. Steel",
    "Plan B",
    "Vitamin C",
    "1. FC Köln",
    "5. Symphony",
    "Apollo 11",
    "2 b) Blocks",
]


@pytest.mark.parametrize("normalize", EVERY, ids=name_of)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "{}.",
        "It is {}.",
        "It is {}. Rome lies far away.",
        "Yes, {}.",
        "{} [1]. ",
        "1. {}\n2. Rome",
    ],
)
def test_names_with_initials_can_be_asserted(text, name, normalize):
    assert asserted(text.format("Paris"), "Paris", normalize)
    assert asserted(text.format(name), name, normalize)


@pytest.mark.parametrize("normalize", NORMALIZERS, ids=name_of)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "text",
    [
        "It is not {}.",
        "{} or Rome",
        "Rome, {}, Berlin",
        "1. Rome 2. {} 3. Berlin",
        "a. Rome b. {} c. Berlin",
        "(a) Rome (b) {} (c) Berlin",
        "{} is wrong.",
    ],
)
def test_names_with_initials_can_be_mentioned(text, name, normalize):
    assert not asserted(text.format(name), name, normalize)


@pytest.mark.parametrize("normalize", NORMALIZERS, ids=name_of)
def test_all_of_several_names_with_initials(normalize):
    gold = [["John F. Kennedy"], ["Samuel L. Jackson"], ["George W. Bush", "G. W. Bush"]]
    text = "John F. Kennedy, Samuel L. Jackson and G. W. Bush"
    read = StrictText(text, normalize, gold)
    assert all(map(read.contains, gold))
    assert not StrictText(text, normalize, gold[:1]).contains(gold[0])


@pytest.mark.parametrize("normalize", NORMALIZERS, ids=name_of)
@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        ("The answer is 5. It is odd.", "5", True),
        ("5. ", "5", True),
        ("It has 12. [1]", "12", True),
        ("The answer is B. It is so.", "B", True),
        ("It is U.S. Steel.", "U.S. Steel", True),
        ("It is Washington, D. C.", "Washington, D. C.", True),
        ("It was Malcolm X. He spoke.", "Malcolm X.", True),
        ("A. B. Yehoshua wrote it.", "A. B. Yehoshua", True),
        ("Rome, A. B. Yehoshua, Berlin", "A. B. Yehoshua", False),
        ("The answer is (b) Rome.", "B", True),
        ("It is not 5. It is 6.", "5", False),
        ("It is 4 or 5. It is odd.", "5", False),
        # labels of a list are no answers
        ("5. Rome", "5", False),
        ("1. Rome 2. Paris 3. Berlin", "2", False),
        ("Rome\n2. Paris", "2", False),
        ("a) Rome b) Paris", "b", False),
        ("(a) Rome (b) Paris", "b", False),
        ("Plan A. Plan B. Plan C.", "Plan B", False),
        ("It was Apollo 10. Apollo 11. Apollo 12.", "Apollo 11", False),
        # other initials do not fit
        ("John G. Kennedy", "John F. Kennedy", False),
        ("1. Kennedy", "F. Kennedy", False),
        ("Rome F. Paris W. Berlin", "Paris", False),
    ],
)
def test_letters_and_numbers_of_gold_answers(text, answer, expected, normalize):
    assert asserted(text, answer, normalize) is expected


WORDS = ["Paris", "Rome", "Kennedy", "New", "de"]


@given(
    st.lists(
        st.sampled_from([*WORDS, "F.", "L.", "W.", "B.", "3.", "11."]), min_size=1, max_size=5
    ).filter(lambda words: any(word in WORDS for word in words)),
    st.sampled_from(["{}", "It is {} [1].", "It is {}. Rome lies far away.", "Yes, {}"]),
    st.sampled_from(EVERY),
)
@budget(300)
def test_the_gold_answer_itself_is_asserted(words, text, normalize):
    name = " ".join(words)
    assert asserted(text.format(name), name, normalize)


PIECES = [
    *("Paris", "Rome", "not", "or", ",", ", ", "/", "\n", " ", ".", "?", "(", ")", '"', "“", "<a>"),
    *("</a>", "- ", "1. ", "is", "the", "的", "不是", "[1]", "source:", "document 1:", ">", "'s"),
    *("\u200b", "\u0301", "answer is", "and", "either", "but", "wrong"),
]
SOUP = st.lists(st.sampled_from(PIECES), max_size=16)


@given(SOUP.map("".join) | SOUP.map(" ".join) | st.text(max_size=30), st.sampled_from(EVERY))
@example("Pari\u015b", FOLDING)
@budget(400)
def test_an_asserted_answer_is_contained(text, normalize):
    # The oracle folds accents where the normalizer does. A number after a word can be a footnote.
    oracle = Unicode(fold_accents=normalize == FOLDING)
    if strict_contains(text, ["Paris"], normalize):
        words = re.sub(r"[^\w]", " ", oracle(text))
        assert "paris" in tokens(re.sub(r"(?<=[^\W\d_])\d{1,2}\b", "", words))


@given(SOUP.map(" ".join), st.text(max_size=10), st.sampled_from(EVERY), st.integers(1, 4))
@budget(300)
def test_never_raises(text, answer, normalize, required):
    result = strict_contains(text, [answer], normalize, required=required)
    assert result in (True, False)
    assert not strict_contains(f"It is not {text}", ["absent"], normalize)


@given(SOUP.map(" ".join))
@budget(300)
def test_case_and_invisible_characters_change_nothing(text):
    plain = asserted(text)
    assert asserted(text.upper()) == plain
    assert asserted(text.replace("a", "a\u2060")) == plain


# --- lists whose items are the answer -----------------------------------------------------------

COUNTRIES = ["Myanmar", "Burma", "Union of Burma"]


@pytest.mark.parametrize("normalize", NORMALIZERS, ids=name_of)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Myanmar or Burma", True),
        ("It is Burma/Myanmar.", True),
        ("Myanmar, Burma, Siam", True),
        ("Siam, Burma, Myanmar", True),
        ("Siam, Burma, Laos and Myanmar", False),
        ("Burma or Siam", False),
        ("Burma, Burma", True),
        ("- Burma\n- Myanmar\n- Siam", True),
        ("- Burma\n- Laos\n- Siam", False),
    ],
)
def test_a_list_with_a_majority_of_aliases_is_an_answer(text, expected, normalize):
    assert strict_contains(text, COUNTRIES, normalize) is expected


@given(
    st.lists(st.sampled_from([*CITIES, "Oslo", "Bonn"]), min_size=1, max_size=6),
    st.sampled_from([", ", " or ", " and ", "/", "; "]),
)
@budget(300)
def test_a_list_is_right_for_one_of_two_disjoint_answers(names, joint):
    text = joint.join(names)
    read = StrictText(text, UNICODE, [["any"]])
    assert not (read.contains(["Rome", "Paris"]) and read.contains(["Berlin", "Oslo"]))


@pytest.mark.parametrize("normalize", NORMALIZERS, ids=name_of)
@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Which cities are capitals?", True),
        ("What are the capitals?", True),
        ("Name three capitals.", True),
        ("Who were the four allies?", True),
        ("Which city is the capital?", False),
        ("What does the capital border?", False),
        ("Name two capitals.", False),
        ("Who sings the songs?", False),
        ("How many cities are there?", False),
        ("", False),
    ],
)
@pytest.mark.parametrize("text", ["Rome, Paris, Berlin", "They are Rome, Paris and Berlin."])
def test_a_question_for_several_answers_allows_a_list(question, text, expected, normalize):
    assert asserted(text, "Paris", normalize, question=question) is expected


@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        ("6. I hope this helps!", "6", True),
        ("6. Carbon has six protons.", "6", True),
        ("V. That is the name of the gene.", "V", True),
        ("3. There are 5 legs.", "3", False),
        ("3. There are five legs.", "3", False),
        ("2. Rome", "2", False),
        ("1. Rome is the capital\n2. Berlin is the capital", "1", False),
        ("A. It could also be B.", "A", False),
    ],
)
def test_a_number_before_a_remark_is_an_answer(text: str, answer: str, expected: bool) -> None:
    assert strict_contains(text, [answer], Unicode()) is expected


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is J. Keats.\nDocument 3 says so.", "J. Keats"),
        ("The answer is Волга.\nDocument 3 says so.", "Волга"),
        ("It is plan B.\nDocument 3 says so.", "plan B"),
    ],
)
def test_a_remark_on_the_next_line(text: str, answer: str) -> None:
    assert strict_contains(text, [answer], Unicode())


def test_words_of_another_language_without_a_gloss() -> None:
    text = "Soit la Russie, soit le Canada."
    assert not strict_contains(text, ["Canada"], Unicode(), question="Quel pays ?")


@pytest.mark.parametrize(
    ("text", "gold", "question", "asserted"),
    [
        ("The wife of Orwell.", "Orwell", "Who is the author?", False),
        ("A neighbour of Greece", "Greece", "Which country hosted it?", False),
        ("The adoptive father of Augustus.", "Augustus", "Who ruled Rome?", False),
        ("It was the successor of Augustus.", "Augustus", "Who ruled Rome?", False),
        ("The wife of Orwell.", "the wife of Orwell", "Who is the author?", True),
        ("He was the son of Ann Hill.", "Ann Hill", "Whose son was Tom Hill?", True),
        ("Tom Hill, the son of Ann Hill.", "Tom Hill", "Who is it?", True),
    ],
)
def test_a_relation_to_the_answer_is_another_answer(
    text: str, gold: str, question: str, asserted: bool
) -> None:
    assert strict_contains(text, [gold], UNICODE, question=question) is asserted
