"""Settings that are a name or a function: known names, and references `module:function`.

Validation only checks the spelling of a reference; `resolve` imports it.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from operator import attrgetter
from typing import Any, Final, TypeGuard

from outrider.core.policy.cost import cost_function
from outrider.core.policy.focus import LISTS, Focus
from outrider.core.policy.link_types import Types, check_rules
from outrider.core.policy.politeness import Politeness
from outrider.core.policy.queue_key import key_function
from outrider.core.policy.rules import Budget
from outrider.core.policy.scope import Scope, compile_scope
from outrider.core.policy.scorers import SCORERS
from outrider.core.policy.weights import Scoring
from outrider.errors import SettingsError
from outrider.settings.errors import short_repr
from outrider.settings.schema import QueueSettings, ScopeSettings
from outrider.settings.worker_schema import ExecutorSettings, FetchSettings

# `buckets` is the name of a keying, so no module of that name can be meant.
_REFERENCE: Final = re.compile(
    r"(?!buckets:)[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*"
).fullmatch
_SCORER: Final = "an object (not a class) with a method `score`"


def resolve(spec: object, what: str) -> Any:
    """Import the object that `module:function` names; return anything else as it is.

    Importing runs code: only for settings of the person who runs the crawl, never for data from the
    network. `what` is the path of the setting.
    """
    if not is_reference(spec):
        return spec
    found = _import(spec, what)
    fits, wanted = (_scores, _SCORER) if what.endswith("scorer") else (callable, "a function")
    if not fits(found):
        raise SettingsError(f"{what} = {spec!r}: that is {short_repr(found)}; name {wanted}")
    return found


def is_reference(value: object) -> TypeGuard[str]:
    """Tell whether a value names code to import: `module:function`."""
    return isinstance(value, str) and _REFERENCE(value) is not None


def _import(spec: str, what: str) -> object:
    module, _, name = spec.partition(":")
    try:
        home = importlib.import_module(module)
    except ImportError as error:
        fix = f"is {module} installed, or its directory on the import path?"
        raise SettingsError(f"{what} = {spec!r}: {error}; {fix}") from error
    try:
        return attrgetter(name)(home)
    except AttributeError as error:
        close = "".join(f"; did you mean {near}?" for near in get_close_matches(name, dir(home), 1))
        raise SettingsError(f"{what} = {spec!r}: {error}{close}") from error


def check(owner: type, name: str, value: object) -> None:
    """Raise ValueError with the fix if a field refuses a value that its type allows."""
    question = _QUESTIONS.get((owner, name))
    if question is not None:
        question(value)


def _name_or_function(find: Callable[[str], object]) -> Callable[[object], None]:
    def question(value: object) -> None:
        if callable(value) or is_reference(value):
            return
        if not isinstance(value, str):
            raise ValueError("give a name, module:function or a function")  # noqa: TRY004 - as all
        find(value)

    return question


def _function(value: object) -> None:
    if not (value is None or callable(value) or is_reference(value)):
        raise ValueError("give module:function or a function")


def _stages(names: tuple[str, ...]) -> None:
    for name in names:
        if not is_reference(name):
            raise ValueError(f"{name!r} is no stage; give module:function")


def _detector(name: str) -> None:
    if name not in {"default", "none"}:
        raise ValueError("give default, none, module:function or a function")


def _strategy(name: str) -> None:
    if name != "generic":
        raise ValueError("give generic, module:function or a function")


def _classifier(name: str) -> None:
    if name != "tokens":
        raise ValueError("give tokens, module:function or a function")


def _lists(names: tuple[str, ...]) -> None:
    for name in names:
        if name not in LISTS:
            raise ValueError(f"there is no list {name!r}; give {', '.join(LISTS)}")


def _scorer(value: object) -> None:
    known = value in SCORERS if isinstance(value, str) else _scores(value)
    if not (known or is_reference(value)):
        raise ValueError(f"give {', '.join(SCORERS)}, module:name or {_SCORER}")


def _scores(value: object) -> bool:
    return callable(getattr(value, "score", None)) and not isinstance(value, type)


def _seconds_or_none(value: float) -> None:
    if -1 < value < 0:
        raise ValueError("give seconds from 0, or -1 for none")


_QUESTIONS: Final[Mapping[tuple[type, str], Callable[[Any], object]]] = {
    (QueueSettings, "key"): _name_or_function(key_function),
    (QueueSettings, "bypass_depth"): _function,
    (Politeness, "delay"): _seconds_or_none,
    (Politeness, "delay_to"): _seconds_or_none,
    (Budget, "cost"): _name_or_function(cost_function),
    (ScopeSettings, "include"): lambda patterns: compile_scope(Scope(include=patterns)),
    (ScopeSettings, "exclude"): lambda patterns: compile_scope(Scope(exclude=patterns)),
    (ScopeSettings, "function"): _function,
    (Types, "rules"): check_rules,
    (Types, "function"): _function,
    (Scoring, "scorer"): _scorer,
    (Focus, "classifier"): _name_or_function(_classifier),
    (Focus, "lists"): _lists,
    (FetchSettings, "detector"): _name_or_function(_detector),
    (ExecutorSettings, "poll"): _name_or_function(_strategy),
    (ExecutorSettings, "pipeline"): _stages,
}
