"""Settings that several recipes share."""

from __future__ import annotations

from typing import Annotated, Literal

from rag_rewards.rewards.answer import Metric
from rag_rewards.settings import Settings, about
from rag_rewards.text.normalize import NormalizerName
from rag_rewards.text.sections import SectionStyle


class Sections(Settings, frozen=True):
    """How tags are read."""

    ignore_case: Annotated[bool, about("read <ANSWER> as <answer>")] = False
    unclosed: Annotated[
        Literal["missing", "to_end"],
        about("to_end: the last section of a truncated response reaches to its end"),
    ] = "missing"
    repeated: Annotated[
        Literal["first", "missing"],
        about("missing: a section that opens twice counts as missing, not at its first pair"),
    ] = "first"

    def style(self) -> SectionStyle:
        return SectionStyle(self.ignore_case, self.unclosed, self.repeated)


class Accuracy(Settings, frozen=True):
    """How the answer is compared with the gold answers."""

    metric: Annotated[Metric, about("how the answer is compared")] = "exact"
    normalizer: Annotated[NormalizerName, about("text normaliser")] = "squad"
    fold_accents: Annotated[bool, about("São = Sao (unicode)")] = False
    numbers: Annotated[bool, about("1 million = 1,000,000 (unicode)")] = False
    dates: Annotated[bool, about("5 March 1999 = 1999-03-05 (unicode)")] = False
    strict: Annotated[
        bool, about("substring: asserted, at word boundaries, not negated, not one of a list")
    ] = False
    extra: Annotated[
        Literal["allow", "reject"],
        about("several required answers, exact: whether the list may hold further items"),
    ] = "allow"

    def options(self) -> dict[str, object]:
        """Keyword arguments of AnswerMatch."""
        return {name: getattr(self, name) for name in Accuracy.__struct_fields__}
