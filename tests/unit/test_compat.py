"""The words that turn our differences from the originals off."""

import pytest

from aliquot.compat import QUIRKS, Compat, parse
from aliquot.errors import BadConfig


@pytest.mark.parametrize(
    ("text", "compat"),
    [
        pytest.param("", Compat(), id="nothing"),
        pytest.param(" , ", Compat(), id="commas alone"),
        pytest.param("maps", Compat(maps=True), id="one word"),
        pytest.param("reasons, bind-faults", Compat(bind_faults=True, reasons=True), id="two, with a blank"),
        pytest.param("maps,maps", Compat(maps=True), id="one twice"),
        pytest.param("maps,bind-faults,reasons,every-node", Compat(True, True, True, True), id="every word"),
        pytest.param("all", Compat(True, True, True, True), id="all"),
    ],
)
def test_words_turn_quirks_on(text: str, compat: Compat) -> None:
    assert parse(text) == compat


@pytest.mark.parametrize("text", ["map", "Maps", "maps;reasons", "bind_faults", "true", "maps,x", "all,none"])
def test_a_word_that_is_none_is_named_beside_those_that_are(text: str) -> None:
    with pytest.raises(BadConfig) as caught:
        parse(text)
    word = next(word for word in text.split(",") if word not in {*QUIRKS, "all"})
    known = "valid quirks are maps, bind-faults, reasons, every-node and all"
    assert str(caught.value) == f"unknown quirk {word!r}; {known}"
