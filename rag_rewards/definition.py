"""`RecipeDefinition`, the facts of a paper about its reward, from which a recipe is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rag_rewards.prompts import GROUNDED, GoldRationale, OutputForm, Prompt, prompts_of
from rag_rewards.settings import SettingTable
from rag_rewards.training.settings import NOT_STATED, Training


@dataclass(frozen=True)
class HardenedSetting:
    """The value of a setting in the hardened profile.

    closes  numbers of the attacks that it stops
    why     what these attacks do
    """

    value: Any
    closes: tuple[int, ...]
    why: str


@dataclass(frozen=True)
class Loophole:
    """A weakness of a reward, and the attacks that use it.

    attacks   numbers of the attacks
    text      what increases the reward
    variants  names of the variants that also pay under the hardened profile, because the paper
              defines the reward so, by attack
    is_open   whether the attacks also pay under the hardened profile without such variants
    """

    attacks: tuple[int, ...]
    text: str
    variants: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    is_open: bool = False

    @property
    def is_closed(self) -> bool:
        """Whether the hardened profile prevents these attacks."""
        return bool(self.attacks) and not self.variants and not self.is_open

    def __str__(self) -> str:
        numbers = ", ".join(map(str, self.attacks))
        end = " (closed: hardened)" if self.is_closed else ""
        return (f"{numbers}: " if numbers else "") + self.text + end


@dataclass(frozen=True)
class ComponentInfo:
    """The meaning of a component, and its range under the default settings.

    low, high  bounds of the range, None for no bound
    values     all values, if they are few
    when       the setting that adds the component, empty if it is always present
    """

    name: str
    meaning: str
    low: float | None = 0.0
    high: float | None = 1.0
    values: tuple[float, ...] = ()
    when: str = ""

    @property
    def range(self) -> str:
        """The range as text.

        >>> ComponentInfo("a", "", -1.0, None).range, ComponentInfo("b", "", values=(0, 0.5)).range
        ('≥ −1', '0, 0.5')
        """
        if self.values:
            return ", ".join(map(_number, self.values))
        if self.low is None:
            return "any" if self.high is None else f"≤ {_number(self.high)}"
        if self.high is None:
            return f"≥ {_number(self.low)}"
        return f"{_number(self.low)} to {_number(self.high)}"

    def contains(self, value: float) -> bool:
        """Return whether a value is in the range."""
        if self.values:
            return value in self.values
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


def _number(value: float) -> str:
    return f"{value:g}".replace("-", "−")


@dataclass(frozen=True)
class Preset:
    """The number of rows that a paper sampled from each data set.

    sizes         number of rows by data set
    split         name of the split
    unanswerable  share of unanswerable rows, 0 to 1; None to sample from all usable rows
    """

    sizes: Mapping[str, int]
    split: str
    unanswerable: float | None = None

    def __str__(self) -> str:
        """Return the sizes as text.

        >>> str(Preset({"asqa": 1000, "eli5": 1000}, "train", 0.5))
        'asqa 1,000, eli5 1,000; 50% unanswerable'
        """
        sizes = ", ".join(f"{name} {size:,}" for name, size in self.sizes.items())
        return sizes + (f"; {self.unanswerable:.0%} unanswerable" if self.unanswerable else "")


@dataclass(frozen=True)
class TrainingData:
    """The data that a paper trained on.

    datasets         names of data sets that `rag-rewards prepare` reads
    source           section of the paper
    presets          sample sizes of the paper, by the name of `prepare --preset`
    answerable_only  whether only answerable questions can be scored
    """

    datasets: tuple[str, ...] = ()
    source: str = NOT_STATED
    presets: Mapping[str, Preset] = field(default_factory=dict)
    answerable_only: bool = False

    def summary(self) -> list[str]:
        """Return a line with the data sets and their source, and a line for each preset."""
        lines = [f"data sets: {', '.join(self.datasets)} ({self.source})"] if self.datasets else []
        return lines + [
            f"rows of the preset {name}: {preset}" for name, preset in self.presets.items()
        ]


@dataclass(frozen=True)
class RecipeDefinition:
    """The facts of a paper about its reward, and the function that builds the recipe.

    name        name on the command line
    summary     description in one line
    source      paper and section
    output      form of a response
    parts       rewards and other objects whose annotated fields are the settings, by name
    build       function from the parts, as keyword arguments, to a `Recipe`
    fields      fields of a row that the recipe reads
    components  meanings and ranges, in the order of the recipe
    sources     sources of defaults, by key, in place of those of the parts
    prompt      prompt of the policy
    baselines   prompts of baselines by name; every recipe has `direct` and `closed-book`
    rationale   how a response is assembled from gold data and a rationale, None if it is not
    training    training settings
    data        data that the paper trained on
    model_free  settings under which the recipe needs no model
    hardened    settings of the hardened profile, by key
    rejected    values that the hardened profile rejects, by key, each with the reason
    loopholes   weaknesses of the reward, with the attacks that use them
    deviations  differences from the authors' code
    """

    name: str
    summary: str
    source: str
    output: OutputForm
    build: Callable[..., Any]
    fields: tuple[str, ...]
    components: tuple[ComponentInfo, ...]
    parts: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    prompt: Prompt = GROUNDED
    baselines: Mapping[str, Prompt] = field(default_factory=dict)
    rationale: GoldRationale | None = None
    training: Training = Training()
    data: TrainingData = TrainingData()
    model_free: Mapping[str, Any] = field(default_factory=dict)
    hardened: Mapping[str, HardenedSetting] = field(default_factory=dict)
    rejected: Mapping[str, Mapping[Any, str]] = field(default_factory=dict)
    loopholes: tuple[Loophole, ...] = ()
    deviations: tuple[str, ...] = ()

    @cached_property
    def settings(self) -> SettingTable:
        """The settings."""
        return SettingTable(self.name, self.parts, self.sources)

    @cached_property
    def prompts(self) -> Mapping[str, Prompt]:
        """The prompt of the policy and those of baselines, by name.

        >>> from rag_rewards.recipes import RECIPES
        >>> list(RECIPES["arena"].prompts)
        ['default', 'direct', 'closed-book', 'gold-rationale']
        """
        return prompts_of(self.prompt, self.output, self.baselines)

    @property
    def hardened_values(self) -> dict[str, Any]:
        """The settings of the hardened profile that differ from the defaults, by dotted key."""
        return {key: setting.value for key, setting in self.hardened.items()}

    def defaults(self, *, hardened: bool = False) -> dict[str, Any]:
        """Return the defaults, or the hardened profile, by dotted key.

        >>> from rag_rewards.recipes import RECIPES
        >>> RECIPES["arena"].defaults(hardened=True)["relevance.min_precision"]
        0.5
        """
        return self.settings.defaults | (self.hardened_values if hardened else {})
