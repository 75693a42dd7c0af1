"""The forwarding store has every verb of the protocol, and passes its arguments on unchanged."""

from inspect import signature
from typing import get_type_hints

import pytest

from outrider.store.forwarding import VERBS, ForwardingStore


class Recorder(ForwardingStore):
    """Returns what reached `_forward`."""

    async def _forward(self, verb, *args, **kwargs):
        return verb, args, kwargs


def test_forwarding_store_declares_every_verb_of_the_protocol_and_no_other():
    """A verb added to the protocol must be added here."""
    own = {name for name in vars(ForwardingStore) if not name.startswith("_")}

    assert own == set(VERBS) | {"notifies"}  # an attribute that has a default


@pytest.mark.parametrize("verb", VERBS)
def test_verb_has_the_signature_that_the_protocol_declares(verb):
    """Names, kinds, defaults and types of all parameters, and the type of the answer."""
    ours, declared = getattr(ForwardingStore, verb), VERBS[verb]

    assert signature(ours) == signature(declared)
    assert get_type_hints(ours) == get_type_hints(declared)


@pytest.mark.parametrize("verb", VERBS)
async def test_verb_forwards_its_own_name_and_all_arguments(verb):
    """Positional arguments arrive by position, keyword-only ones by name."""
    _, *parameters = signature(VERBS[verb]).parameters.values()
    given = {p.name: object() for p in parameters}
    by_name = {p.name: given[p.name] for p in parameters if p.kind is p.KEYWORD_ONLY}
    by_position = tuple(given[p.name] for p in parameters if p.kind is not p.KEYWORD_ONLY)

    answer = await getattr(Recorder(), verb)(*by_position, **by_name)

    assert answer == (verb, by_position, by_name)
