"""How played seeds are told: one in detail, many as sums, a broken promise with its command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from outrider.settings import to_mapping
from outrider.simulation.run import BOUND, SimulationResult
from outrider.simulation.scenario import Scenario

_COUNTED: Final = ("known", "done", "dead", "dropped", "held", "visits", "runs")
_TAIL: Final = 40  # lines of the trace shown before a broken promise


def print_seed(scenario: Scenario, result: SimulationResult, console: Console) -> None:
    """One seed: what it stands for, what happened, and whether every promise was kept."""
    console.print(_scenario(scenario))
    console.print(_counts(result))
    if result.violation is None:
        kept = Text.assemble(("Every promise was kept. ", "bold green"), _ended(result))
        console.print(kept)
        return
    console.print(Text("The last calls before it:", "bold"))
    for line in result.trace[-_TAIL:]:
        console.print(Text(line, "dim"), soft_wrap=True)
    print_violation(result, console)


def print_trace(result: SimulationResult, console: Console) -> None:
    """Every call, by its virtual second."""
    for line in result.trace:
        console.print(Text(line), soft_wrap=True)


def print_violation(result: SimulationResult, console: Console) -> None:
    """Which promise was broken, and the command that shows it again."""
    broken = result.violation
    if broken is None:
        return
    head = Text.assemble(
        (f"Seed {result.seed} broke {broken.rule}", "bold red"), f" at {broken.at:.3f} s: "
    )
    console.print(head + Text(broken.detail), soft_wrap=True)
    console.print(Text.assemble("  repeat it with: ", (result.command, "bold")), soft_wrap=True)


def print_summary(sums: Mapping[str, int], longest: float, broken: int, console: Console) -> None:
    """Many seeds as one."""
    table = Table(box=box.SIMPLE_HEAD, title="Played", title_justify="left", title_style="bold")
    table.add_column("what")
    table.add_column("in all", justify="right")
    for name in sorted(sums, key=lambda name: (name != "seeds", name)):
        table.add_row(name, f"{sums[name]:,}")
    console.print(table)
    style = "bold red" if broken else "bold green"
    console.print(Text(f"{broken:,} of {sums['seeds']:,} seeds broke a promise.", style))
    hours, bound = longest / 3600, BOUND / 3600
    console.print(f"Once healed, the longest took {hours:.1f} virtual hours; allowed: {bound:.0f}.")


def _scenario(scenario: Scenario) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    hosts = ", ".join(f"{host.name} ({host.temper}, {host.size})" for host in scenario.web.hosts)
    table.add_row("seed", str(scenario.seed))
    table.add_row("hosts", hosts)
    table.add_row("workers", f"{scenario.workers}, claiming up to {scenario.limit}")
    table.add_row("heals", f"after {scenario.heal_at:.0f} virtual seconds")
    for section, changed in to_mapping(scenario.settings).items():
        table.add_row(section, _pairs(changed))
    return table


def _pairs(changed: Mapping[str, object]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in changed.items())


def _counts(result: SimulationResult) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    counts = {"requests": result.requests, "acts": result.acts}
    if result.view is not None:
        counts |= {name: getattr(result.view, name) for name in _COUNTED}
    for name in counts:
        table.add_column(name, justify="right")
    table.add_row(*(f"{count:,}" for count in counts.values()))
    table.caption = f"visits: {_pairs(result.outcomes)}\nfaults: {_pairs(result.faults) or 'none'}"
    table.caption_justify = "left"
    return table


def _ended(result: SimulationResult) -> str:
    return f"It ended {result.finished_in:.0f} virtual seconds after healing."
