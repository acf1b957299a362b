"""Settings that several recipes share."""

from __future__ import annotations

from typing import Annotated, Literal

from rag_rewards.definition import ChangedDefault, HardenedSetting
from rag_rewards.rewards.answer_decision import Ask, Undecided
from rag_rewards.rewards.correctness import Metric
from rag_rewards.settings import Settings, about
from rag_rewards.text.normalize import NormalizerName
from rag_rewards.text.sections import SectionStyle


class Sections(Settings, frozen=True):
    """Settings of the sections."""

    ignore_case: Annotated[bool, about("read <ANSWER> as <answer>")] = False
    unclosed: Annotated[
        Literal["missing", "to_end"],
        about(
            "section without a closing tag; missing: it counts as missing; to_end: the last "
            "section ends at the end of the response"
        ),
    ] = "missing"
    repeated: Annotated[
        Literal["first", "missing"],
        about(
            "section that occurs more than once; first: the first pair of tags is read; "
            "missing: it counts as missing"
        ),
    ] = "first"

    def style(self) -> SectionStyle:
        """Return the style in which tags are read."""
        return SectionStyle(self.ignore_case, self.unclosed, self.repeated)


METRIC = (
    "how the answer is compared with the gold answers; lenient: for evaluation only, because a "
    "policy can exploit it; cascade: an answer is right or wrong by rules, or a judge decides"
)
UNDECIDED_ABOUT = about(
    "match: the comparison alone decides, as published; wrong and judge: an answer is right only "
    "if every word of it is explained; one that is neither right nor wrong is wrong, or a judge "
    "decides"
)
ASK_ABOUT = about(
    "answers that a judge decides on, where one decides; undecided: those that are neither right "
    "nor wrong; doubtful: also right ones that equal no gold answer"
)
CHANGED_ACCURACY = (
    ChangedDefault("0.8.0", "accuracy.undecided", "match", "wrong"),
    ChangedDefault("0.8.0", "accuracy.ask", "undecided", "undecided"),
)
UNDECIDED = HardenedSetting(
    "wrong", (1, 2, 3, 9, 10, 25, 27, 28, 30), "lists, negations, and text around an answer"
)
"""The hardened setting for answers that are neither right nor wrong."""
REJECTED = {
    "accuracy.metric": {"lenient": "is only for evaluation, because a policy can exploit it"}
}
"""Values of the settings of `Accuracy` that the hardened profile rejects."""


class Accuracy(Settings, frozen=True):
    """Settings of the comparison of the answer with the gold answers."""

    metric: Annotated[Metric, about(METRIC)] = "exact"
    normalizer: Annotated[NormalizerName, about("text normalizer")] = "squad"
    fold_accents: Annotated[bool, about("with the normalizer unicode, read São as Sao")] = False
    numbers: Annotated[bool, about("with the normalizer unicode, read 1 million as 1,000,000")] = (
        False
    )
    dates: Annotated[
        bool, about("with the normalizer unicode, read 5 March 1999 as 1999-03-05")
    ] = False
    undecided: Annotated[Undecided, UNDECIDED_ABOUT] = "match"
    ask: Annotated[Ask, ASK_ABOUT] = "undecided"
    extra: Annotated[
        Literal["allow", "reject"],
        about(
            "with metric=exact and several required answers, whether the answer may list "
            "other items"
        ),
    ] = "allow"

    def options(self) -> dict[str, object]:
        """Return the settings as keyword arguments of AnswerMatch."""
        return {name: getattr(self, name) for name in Accuracy.__struct_fields__}
