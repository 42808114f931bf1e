"""An experiment's search space, with what was found from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from tenuto.kernel.memo import Memo
from tenuto.schemas.config import Hyperparameters

_SPACE: TypeAdapter[Hyperparameters] = TypeAdapter(Hyperparameters)


class Space(dict[str, Any]):
    """A search space that is searched for long: what is found from it once is kept with it."""

    __slots__ = ("memo",)

    def __init__(self, space: Mapping[str, Any]) -> None:
        super().__init__(space)
        self.memo = Memo()

    def stored(self) -> str:
        """Space as text, because the order of the keys must survive."""
        return _SPACE.dump_json(self).decode()

    @classmethod
    def restored(cls, text: str) -> Space:
        return cls(_SPACE.validate_json(text))


def kept(space: Mapping[str, Any]) -> Space:
    """The space itself, if it keeps what is found from it; else a copy that does."""
    return space if isinstance(space, Space) else Space(space)
