"""When a workbench is filled anew: each trigger of the generic strategy alone (J5)."""

import pytest

from outrider.errors import SettingsError
from outrider.executor.poll import GenericStrategy, Reading, strategy_of
from outrider.settings import settings_of

DEFAULTS = strategy_of(settings_of(None).executor)


def reading(since, tasks_left=100, queues_left=100):
    """A workbench that was filled with 100 tasks of 100 queues."""
    return Reading(since, 100, 100, tasks_left, queues_left)


def test_the_defaults_are_those_of_the_rule():
    """J5: 15 s, 10 min, 30 s, a tenth, a quarter."""
    assert GenericStrategy(15.0, 600.0, 30.0, 0.10, 0.25) == DEFAULTS


@pytest.mark.parametrize(
    ("given", "waits"),
    [
        pytest.param(reading(0.0, 0, 0), 15.0, id="too soon, though nothing is left"),
        pytest.param(reading(14.5, 0, 0), 0.5, id="still too soon"),
        pytest.param(reading(15.0, 0, 0), 0.0, id="nothing is left"),
        pytest.param(reading(15.0, 10), 0.0, id="a tenth of the tasks is left"),
        pytest.param(reading(15.0, 11), 30.0, id="more than a tenth is left"),
        pytest.param(reading(15.0, 100, 25), 0.0, id="a quarter of the queues is left"),
        pytest.param(reading(15.0, 100, 26), 30.0, id="more than a quarter is left"),
        pytest.param(reading(590.0), 10.0, id="the longest interval is nearly over"),
        pytest.param(reading(600.0), 0.0, id="the longest interval is over"),
        pytest.param(Reading(15.0, 0, 0, 0, 0), 0.0, id="the last poll brought nothing"),
    ],
)
def test_it_says_how_long_to_wait(given, waits):
    """0: poll now; otherwise the next look."""
    assert DEFAULTS(given) == pytest.approx(waits)


def test_a_strategy_of_ones_own_is_asked():
    """J5: pluggable; any function of a reading."""

    def never(_reading):
        return 1.0

    assert strategy_of(settings_of({"executor": {"poll": never}}).executor) is never


def test_a_strategy_is_named_as_all_code_is():
    """N2: a name that is neither known nor a reference is refused with the fix."""
    with pytest.raises(SettingsError, match="generic, module:function or a function"):
        settings_of({"executor": {"poll": "eager"}})


def test_a_default_longest_interval_gives_way_to_a_longer_shortest_one():
    """The least interval holds whatever the other says."""
    tree = settings_of({"executor": {"poll_min": 700.0}})
    strategy = strategy_of(tree.executor)

    assert strategy(reading(690.0)) == 10.0
    assert strategy(reading(700.0)) == 0.0
