"""An attribute that is computed once.

`functools.cached_property` takes a lock before Python 3.12. The lock takes longer than most
computations that are cached here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class lazy(Generic[T]):
    """Compute an attribute on first access and store it in the `__dict__` of the instance.

    >>> class Circle:
    ...     @lazy
    ...     def area(self): return 3
    >>> c = Circle()
    >>> c.area, vars(c)
    (3, {'area': 3})
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self.function = function
        self.__doc__ = function.__doc__
        self.name = function.__name__

    @overload
    def __get__(self, instance: None, owner: Any) -> lazy[T]: ...
    @overload
    def __get__(self, instance: Any, owner: Any) -> T: ...
    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is None:
            return self
        value = instance.__dict__[self.name] = self.function(instance)
        return value
