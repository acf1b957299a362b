"""A limit of requests or tokens per minute.

aiolimiter is not used, because its limiters belong to one event loop. Trainers start an event loop
for each batch, and a limit must hold across them.
"""

from __future__ import annotations

import threading


class RateLimit:
    """A rate that is spread evenly, with bursts of one second. `None` is no limit.

    The methods can be called from several threads.

    >>> limit = RateLimit(120)
    >>> [limit.take(1, now=10.0) for _ in range(5)]
    [0.0, 0.0, 0.5, 1.0, 1.5]
    """

    def __init__(self, per_minute: float | None) -> None:
        self._seconds_each = 60.0 / per_minute if per_minute else 0.0
        self._paid_until = 0.0
        self._lock = threading.Lock()

    def take(self, amount: float, now: float) -> float:
        """Use an amount, and return the seconds to wait before it may be used.

        `now` is the current time in seconds. An amount above one second's share can pass at once
        if nothing was used before; later amounts wait for it.
        """
        cost = amount * self._seconds_each
        with self._lock:
            start = max(self._paid_until, now)
            self._paid_until = start + cost
        return max(0.0, start + min(cost, 1.0) - 1.0 - now)

    def give_back(self, amount: float) -> None:
        """Return an amount that was taken and not used; negative if more was used."""
        with self._lock:
            self._paid_until -= amount * self._seconds_each
