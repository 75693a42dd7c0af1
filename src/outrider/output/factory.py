"""Creates the sink that `settings.output` describes."""

from __future__ import annotations

from importlib.metadata import version

from outrider.errors import OutputError
from outrider.output.jsonl import items_sink, jsonl_sink
from outrider.output.sink import NoSink, Sink, Sinks
from outrider.settings import Settings


def open_sink(settings: Settings, *, user_agent: str = "") -> Sink:
    """Open the sink of `settings.output`; call `await recover(sink, store)` before the first claim.

    `user_agent` is the one that hosts were sent, for the description in the archive.
    """
    output, sync = settings.output, settings.store.durability == "sync"
    if not output.path:
        return NoSink()
    if output.format == "jsonl":
        return jsonl_sink(output.path, body=output.body, sync=sync)
    items = items_sink(output.path, sync=sync)
    if output.format == "none":
        return items
    try:
        return Sinks(_warc_sink(settings, user_agent), items)
    except BaseException:
        items.close()
        raise


def _warc_sink(settings: Settings, user_agent: str) -> Sink:
    try:
        from outrider.output.warc import warc_sink  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise OutputError(
            "output.format = 'warc' needs a package that is not installed: "
            "pip install 'outrider[warc]', or write pages otherwise: --format jsonl"
        ) from error
    info = {
        "software": f"Outrider/{version('outrider')}",
        "format": "WARC File Format 1.1",
        "conformsTo": "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
        "http-header-user-agent": user_agent or settings.fetch.user_agent,
        "robots": "obey" if settings.fetch.robots else "ignore",
    }
    output, sync = settings.output, settings.store.durability == "sync"
    return warc_sink(output.path, info=info, max_bytes=output.warc_bytes, sync=sync)
