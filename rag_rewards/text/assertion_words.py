"""Words and marks that show whether a text asserts an answer, for example negations."""

from __future__ import annotations

NEGATIONS = frozenset(
    "not no never neither nor none cannot without except excluding unlike unlikely hardly nobody "
    "nothing false incorrect wrong wrongly untrue doubt doubts deny denies myth mistake mistaken "
    "isnt wasnt arent werent doesnt didnt dont wont cant couldnt 不 非 没有 不是 并非 nicht kein "
    "keine non pas".split()
)
TWO_WORD_NEGATIONS = frozenset(
    {("rather", "than"), ("instead", "of"), ("far", "from"), ("anything", "but"), ("other", "than")}
)
CLAUSE_WORDS = frozenset(
    "but however although though whereas while because since so therefore thus hence yet "
    "it's rather instead".split()
)
# "not only Paris", "no doubt Paris", "none other than Paris", "cannot be denied that Paris".
ASSERTING = frozenset("only just merely doubt wonder other until".split())
DENIED_DENIALS = frozenset("denied doubted disputed".split())
AUXILIARIES = frozenset(
    "is was are were be been being would can could must may might should has had does did do "
    "which it that".split()
)
DENIALS = frozenset(
    "not never no wrong incorrect false untrue impossible excluded cannot hardly neither".split()
)
JUDGED = frozenset("answer correct right true one it case solution".split())
COORDINATORS = frozenset({"and", "or", "&", "plus", "und", "y", "et", "/", "|"})
PAIRING = frozenset({"and", "&", "plus", "und", "y", "et", "+"})
OPENERS = frozenset("yes no ok okay well sure indeed certainly actually hello hi sorry".split())
SINGULAR_VERBS = frozenset("is was has had did does became won played wrote sang".split())
ALTERNATIVES = frozenset(
    {"or", "/", "|", "vs", "versus", "oder", "ou", "otherwise", "unless", "alternatively"}
    | {"或", "或者", "还是"}
)
HEDGES = frozenset("also maybe perhaps possibly probably even".split())
TENTATIVE = frozenset("another option options candidate candidates possible possibility".split())
OPENS = frozenset(":([\"'*")
PAIRED = frozenset(["either", "whether"])
# Words that do not begin an item of a list: "Paris, in 1900", "Paris, which", "Paris, who".
NOT_AN_ITEM = frozenset(
    "in on at by of for from to with as which who whom whose where when that this these those "
    "is was are were has had have it he she they its his her their there since because during "
    "after before until while so then not but according near under over being located".split()
)
CLAUSE_ENDS = frozenset(".;:!?—()[]。；：！？")
LIST_MARKS = frozenset(",;/|\n，、；")
QUOTE = frozenset('"«»「」『』')
PLACES = frozenset(("in", "of", "from", "near"))
BEFORE_PLACE = frozenset(("in", "at", "from", "near", "on"))
SKIPPED = frozenset("by be means not definitely certainly clearly one only just".split())
MAX_ITEM_WORDS = 6
