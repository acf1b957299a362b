"""Settings that several recipes share."""

from __future__ import annotations

from typing import Annotated, Literal

from rag_rewards.definition import ChangedDefault
from rag_rewards.rewards.answer import Metric
from rag_rewards.rewards.cascade import CERTAINTY
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
    "policy can exploit it; cascade: rules decide certain answers, and a judge decides the others"
)
CERTAINTY_ABOUT = about(
    "with a cascade, a judge decides the answers about which the rules are less certain than this "
    "value; at 0.5, no answer needs the judge unless strict=true",
    ge=0.5,
    le=1,
)
CHANGED_ACCURACY = (ChangedDefault("0.4.0", "accuracy.certainty", CERTAINTY, CERTAINTY),)
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
    strict: Annotated[
        bool,
        about(
            "with metric=substring, exact or f1, the response must assert the answer, not only "
            "mention it (f1 of another response is 0); with metric=cascade, other answers are "
            "right only if a judge accepts them"
        ),
    ] = False
    certainty: Annotated[float, CERTAINTY_ABOUT] = CERTAINTY
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
