"""The result of an audit: what each attack earned."""

from __future__ import annotations

import msgspec

from rag_rewards.audit.attacks import ATTACKS

MIN_GAIN = 1e-6
"""Smaller gains do not count. Normalization within a group leaves differences of 1e-8."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One attack on one row, or one policy on all rows.

    attack    number of the attack; None for an attack of your own
    name      variant of the attack
    kind      "response" or "policy"
    row       the row's id, "built-in", or the number of rows
    without   the reward without the attack
    attacked  the reward with the attack
    response  the attacked response
    excused   why the attack may pay by the recipe's own definition; "" if it may not
    is_free   whether the attack also pays if it earns the same, because it saves effort
    """

    attack: int | None
    name: str
    kind: str
    row: str
    without: float
    attacked: float
    response: str
    excused: str = ""
    is_free: bool = False

    @property
    def gain(self) -> float:
        """The reward that the attack adds."""
        return self.attacked - self.without

    @property
    def pays(self) -> bool:
        """Whether the attack increases the reward, or costs nothing if it is free."""
        return self.gain > (-MIN_GAIN if self.is_free else MIN_GAIN)


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """All findings of an audit.

    signature  the recipe's signature
    evidence   where the evidence comes from
    findings   what each attack earned
    elsewhere  settings that attacks require and that the recipe does not have
    failed     rows that could not be scored, with the reason
    rows       number of rows
    """

    signature: str
    evidence: str
    findings: tuple[Finding, ...]
    elsewhere: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    rows: int = 0

    @property
    def paying(self) -> tuple[Finding, ...]:
        """The attacks that pay without an excuse, the most profitable first."""
        paying = (each for each in self.findings if each.pays and not each.excused)
        return tuple(sorted(paying, key=lambda each: -each.gain))

    @property
    def excused(self) -> tuple[Finding, ...]:
        """The attacks that pay by the recipe's own definition."""
        return tuple(each for each in self.findings if each.pays and each.excused)

    @property
    def ok(self) -> bool:
        """Whether no attack pays without an excuse."""
        return not self.paying

    def __str__(self) -> str:
        lines = [
            f"{describe(each)}: +{each.gain:.3g} on {each.row}: {each.response[:80]!r}"
            for each in self.paying
        ]
        summary = f"{len(self.findings)} attacks tried, {len(self.paying)} pay"
        return "\n".join([summary, *lines])


def describe(finding: Finding) -> str:
    """Return the number, the attack and its variant.

    >>> describe(Finding(attack=17, name="all", kind="response", row="1", without=0.0,
    ...                  attacked=1.0, response=""))
    '17 citing every document (all)'
    """
    if finding.attack is None:
        return finding.name
    return f"{finding.attack} {ATTACKS[finding.attack]} ({finding.name})"
