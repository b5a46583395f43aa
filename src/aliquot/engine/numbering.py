"""Small numbers that stand for values in arrays, for as long as a value is in use."""

from collections.abc import Hashable
from typing import Generic, TypeVar

_Value = TypeVar("_Value", bound=Hashable)


class Numbering(Generic[_Value]):
    """A number that is no longer in use goes to the next new value, so that numbers stay small."""

    def __init__(self) -> None:
        self.values: list[_Value] = []
        """Values by number. An unused value stays until its number is taken again."""
        self._numbers: dict[_Value, int] = {}
        self._users: list[int] = []
        self._vacant: list[int] = []

    @property
    def in_use(self) -> tuple[_Value, ...]:
        return tuple(self._numbers)

    def take(self, value: _Value) -> int:
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = self._new(value)
        self._users[number] += 1
        return number

    def give_back(self, number: int) -> None:
        self._users[number] -= 1
        if not self._users[number]:
            del self._numbers[self.values[number]]
            self._vacant.append(number)

    def _new(self, value: _Value) -> int:
        if self._vacant:
            number = self._vacant.pop()
            self.values[number] = value
            return number
        self.values.append(value)
        self._users.append(0)
        return len(self.values) - 1
