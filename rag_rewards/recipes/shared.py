"""Settings that several recipes share."""

from __future__ import annotations

from typing import Annotated, Literal

from rag_rewards.rewards.answer import Metric
from rag_rewards.settings import Settings, about
from rag_rewards.text.normalize import NormalizerName
from rag_rewards.text.sections import SectionStyle


class Sections(Settings, frozen=True):
    """Settings of the sections."""

    ignore_case: Annotated[bool, about("read <ANSWER> as <answer>")] = False
    unclosed: Annotated[
        Literal["missing", "to_end"],
        about("to_end: the last section of a truncated response ends with the response"),
    ] = "missing"
    repeated: Annotated[
        Literal["first", "missing"],
        about("a section that opens twice: its first pair of tags counts, or it is missing"),
    ] = "first"

    def style(self) -> SectionStyle:
        """Return the style in which tags are read."""
        return SectionStyle(self.ignore_case, self.unclosed, self.repeated)


class Accuracy(Settings, frozen=True):
    """Settings of the comparison of the answer with the gold answers."""

    metric: Annotated[Metric, about("how the answer is compared with the gold answers")] = "exact"
    normalizer: Annotated[NormalizerName, about("text normalizer")] = "squad"
    fold_accents: Annotated[bool, about("unicode: read São as Sao")] = False
    numbers: Annotated[bool, about("unicode: read 1 million as 1,000,000")] = False
    dates: Annotated[bool, about("unicode: read 5 March 1999 as 1999-03-05")] = False
    strict: Annotated[
        bool,
        about("substring: the response must assert the answer, not only mention it"),
    ] = False
    extra: Annotated[
        Literal["allow", "reject"],
        about("exact with several required answers: whether the list may contain other items"),
    ] = "allow"

    def options(self) -> dict[str, object]:
        """Return the settings as keyword arguments of AnswerMatch."""
        return {name: getattr(self, name) for name in Accuracy.__struct_fields__}
