"""Presets: the name of a built-in job and a few settings -> the job file it is short for. Next: config.py."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

REQUIRED = object()  # in place of a default
_GROUPED = {"max_record": "8MiB", "test": 0.1, "null_keys": "set_aside"}


@dataclass(frozen=True)
class Preset:
    """A job that groups events by key. `settings` are the words it takes, with their defaults."""

    blank: ClassVar[str] = "COLUMN"  # stands for a required setting where none was given

    name: str
    settings: Mapping[str, Any]
    fixed: Mapping[str, Any] = field(default_factory=dict)  # settings that it has decided
    types: Mapping[str, str] = field(default_factory=dict)  # its columns; none named means all of the input

    def stages(self, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The stages of the job file, every setting spelled out."""
        chosen = {**self.settings, **settings, **self.fixed}
        select = [{"select": list(self.types)}] if self.types else []
        group = {name: chosen[name] for name in ("by", "order", "max_record", "null_keys") if chosen[name] is not None}
        split = [{"split": {"by": "key", "test": chosen["test"]}}] if chosen["test"] != 0 else []
        return [*select, {"group": group}, *split]

    def casts_for(self, output_format: str | None) -> bool:
        """Whether readers of the format expect certain types. The native format takes any."""
        return output_format == "arrayrecord" and bool(self.types)


@dataclass(frozen=True)
class TextPreset(Preset):
    """A job that makes rows of tokens of documents."""

    blank: ClassVar[str] = "TOKENIZER"

    def stages(self, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
        chosen = {**self.settings, **settings}
        short = [{"filter": f"characters(text) >= {chosen['min_characters']}"}] if chosen["min_characters"] else []
        pack = {"length": chosen["length"], "method": chosen["method"]}
        return [{"clean": {}}, *short, {"dedup": {}}, {"tokenize": _tokenize(chosen)}, {"pack": pack}]


def _tokenize(chosen: Mapping[str, Any]) -> Any:
    """The tokenizer alone, or with the tokens that begin and end a document: a text, an id, true or false."""
    options: dict[str, Any] = {}
    for kind in ("eos", "bos"):
        named = chosen[kind]
        if isinstance(named, bool):
            options[f"add_{kind}"] = named
        elif named is not None:
            options |= {f"add_{kind}": True, kind: named}
    return {"tokenizer": chosen["tokenizer"], **options} if options else chosen["tokenizer"]


PRESETS: Mapping[str, Preset] = {
    "events": Preset("events", {"by": REQUIRED, "order": None, **_GROUPED}),
    "pings": Preset(
        "pings",
        _GROUPED,
        fixed={"by": "src_addr", "order": "event_time"},
        types={
            "src_addr": "string",
            "event_time": "timestamp",
            "dst_addr": "string",
            "ip_version": "int8",
            "rtt": "float32",
        },
    ),
    "text": TextPreset(
        "text",
        {"tokenizer": REQUIRED, "length": 2048, "method": "wrapped", "min_characters": 0, "eos": None, "bos": None},
    ),
}
