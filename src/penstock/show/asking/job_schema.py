"""Job schema: Config and the stages -> JSON Schema, with which editors complete and check a job file.

Made from the same classes that read the file. Only the short forms are written down here, since those are code
(`options_from_yaml`) and not types.
"""

import importlib.metadata
import inspect
from typing import Any

from pydantic import TypeAdapter

from penstock.base.user_code import load_object
from penstock.prepare.job.config import Config, ExportConfig
from penstock.prepare.job.engine_config import KINDS
from penstock.prepare.job.source_config import SourceConfig
from penstock.prepare.stages import BUILT_IN, ENTRY_POINTS
from penstock.prepare.stages.fitting.bins import MOST_BINS
from penstock.prepare.stages.splitting.by_count import MOST
from penstock.prepare.stages.stage import Stage

Schema = dict[str, Any]
_NAME: Schema = {"type": "string"}
_NAMES: Schema = {"type": "array", "items": _NAME, "minItems": 1}
_SIZE: Schema = {"anyOf": [{"type": "string"}, {"type": "integer", "exclusiveMinimum": 0}]}
_OWN_CODE = r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$"

_SEED: Schema = {"type": "integer", "minimum": 0, "default": 0, "description": "another seed makes another split"}
_SHARE: Schema = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
_COUNT: Schema = {"type": "integer", "minimum": 1, "maximum": MOST}
_BINS: Schema = {"type": "integer", "minimum": 2, "maximum": MOST_BINS}
_PATTERNS = ("path", "files", "npz")
_ITEMS: Schema = {"anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "array", "minItems": 1}]}


def _mapping(required: list[str], additional: Any = False, **properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": additional,
        "minProperties": 1,
    }


# What may stand after the name of a stage that has short forms. The others are given by their fields alone.
_FORMS: dict[str, list[Schema]] = {
    "bins": [_mapping([], additional=_BINS), _mapping(["columns"], columns=_mapping([], additional=_BINS))],
    "cast": [
        _mapping([], additional=_NAME),
        _mapping(
            ["columns"],
            columns=_mapping([], additional=_NAME),
            lossy={
                "type": "boolean",
                "default": False,
                "description": "round values that the new type cannot hold exactly",
            },
        ),
    ],
    "filter": [
        _NAME,
        _NAMES,
        _mapping(["where"], where={"anyOf": [_NAME, _NAMES]}, keep={"type": "boolean", "default": False}),
    ],
    "group": [
        _mapping(
            ["by"],
            by={"anyOf": [_NAME, _NAMES], "description": "the key: a column, or a list of them"},
            order={"anyOf": [_NAME, _NAMES], "description": "columns that decide the order of a key's events"},
            max_record={
                **_SIZE,
                "default": "8MiB",
                "description": "largest size of a record; a key with more events has several records",
            },
            null_keys={
                "enum": ["set_aside", "group"],
                "default": "set_aside",
                "description": "events whose key is null: keep them in rejected/, or group them like any other key",
            },
        )
    ],
    "normalize": [
        _NAMES,
        _mapping(
            [],
            columns={**_NAMES, "description": "default: all floating-point columns, and lists of floats"},
            method={"const": "standard", "default": "standard"},
            skip={
                "type": "array",
                "items": {"anyOf": [_NAME, {"type": "integer", "minimum": 0}]},
                "description": "columns to leave unchanged, and elements of lists: 7, or '10:20' for 10 to 19",
            },
            type={"enum": ["float32", "float64", "float16"], "default": "float32"},
        ),
    ],
    "select": [_NAME, _NAMES, _mapping([], additional=_NAME)],
    "split": [
        _mapping([], additional=_SHARE, by={"anyOf": [_NAME, _NAMES]}, seed=_SEED),
        _mapping([], additional=_COUNT, by={"anyOf": [_NAME, _NAMES]}, seed=_SEED),
        _mapping(["by_time"], additional={"type": ["string", "number"]}, by_time=_NAME),
    ],
    "statistics": [_NAMES, _mapping(["columns"], columns=_NAMES)],
}
# Descriptions of options whose fields have none.
_MEANINGS: dict[str, dict[str, str]] = {
    "bins": {"columns": "how many bins each column gets"},
    "cast": {"columns": "new type of each column"},
    "clean": {
        "column": "column of the text",
        "trim": "trim white space at both ends",
        "normalize": "nfc writes composed characters in one form",
        "keep": "write null and empty documents to rejected/",
    },
    "dedup": {
        "column": "column to compare",
        "remember": "folder with the hashes of earlier jobs, relative to the job file",
        "keep": "write duplicates to rejected/",
    },
    "filter": {"where": "conditions that must all hold", "keep": "write rows that are set aside to rejected/"},
    "near_dedup": {
        "column": "column to compare",
        "threshold": "similarity from which two documents are near-duplicates, above 0 and at most 1",
        "words": "words per shingle; default: 5, or 8 characters in scripts without spaces",
        "characters": "characters per shingle; alone, for all scripts",
        "bands": "bands of the signatures; more find more pairs, and need more disk",
        "rows": "rows per band; fewer find more pairs. Default: the most that find 99.5% of the pairs at the threshold",
        "keep": "which document stays: the first by position, the longest, or {column: quality, order: desc}",
        "act": "remove near-duplicates, or mark them in the column near_duplicate_of",
        "warn_above": "share of a source's documents; a source that loses more is named on the screen",
    },
    "normalize": {"method": "mean 0 and standard deviation 1", "type": "type of the normalized column"},
    "pack": {
        "length": "tokens per row, 2 to 16,777,216",
        "method": "how documents are put into rows",
        "overflow": "documents longer than a row; wrapped takes only split",
        "window": "for best_fit: tokens from which rows are filled at a time; 0 means 2^22, at least 128 rows",
        "keep": "columns to keep beside the tokens",
        "added": "value of a kept column for bos and eos tokens that tokenize adds; default: 0",
    },
    "split": {
        "by": "column, or columns, whose equal values stay in one split",
        "by_time": "column of the time; each split is given the time at which it begins",
    },
    "statistics": {"columns": "columns to measure"},
    "tokenize": {
        "tokenizer": "tokenizer.json, a folder that holds one, or a hub id",
        "column": "column of the text",
        "add_eos": "end every document with the end token",
        "add_bos": "begin every document with the begin token; template: if the tokenizer's template does",
        "eos": "end token, by text or id; default: the tokenizer's",
        "bos": "begin token, by text or id; default: the tokenizer's",
        "special_tokens": "special tokens inside the text: read as plain text, or as tokens",
        "engine": "library that tokenizes; auto takes the fastest with equal ids",
    },
}
# A short form beside the fields.
_SHORT: dict[str, Schema] = {"tokenize": _NAME, "pack": {"type": "integer", "minimum": 2}}


def job_schema() -> Schema:
    schema = Config.model_json_schema()
    export = ExportConfig.model_json_schema()
    export["properties"]["shard_size"] = _size(export["properties"]["shard_size"])
    definitions: Schema = {"SourceConfig": _source_schema(), "ExportConfig": export}
    properties = schema["properties"]
    properties.pop("folder")
    properties["input"] = _input_schema()
    properties["engine"] = _engine_schema(properties["engine"])
    properties["export"]["anyOf"].append(export["properties"]["to"])
    stages = {"description": "steps that each row goes through, in this order", "type": "array"}
    properties["stages"] = {**stages, "items": _stage_schema(definitions)}
    properties["workers"] = {**properties["workers"], "anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 0}]}
    for name in ("memory", "slice_size"):
        properties[name] = _size(properties[name])
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, **schema, "title": "penstock job", "$defs": definitions}


def _input_schema() -> Schema:
    one: list[Schema] = [_NAME, {"$ref": "#/$defs/SourceConfig"}]
    many = {"type": "array", "items": {"anyOf": one}, "minItems": 1}
    return {"description": inspect.getdoc(SourceConfig), "anyOf": [*one, many]}


def _engine_schema(key: Schema) -> Schema:
    """An engine is its name, or a mapping of that one name to its options."""
    options = {name: {**kind.options.model_json_schema(), "type": ["object", "null"]} for name, kind in KINDS.items()}
    by_name = {**_mapping([], **options), "maxProperties": 1}
    return {"anyOf": [{"enum": list(KINDS)}, by_name], "default": key["default"], "description": key["description"]}


def _source_schema() -> Schema:
    schema = SourceConfig.model_json_schema()
    properties = schema["properties"]
    for name in _PATTERNS:
        properties[name] = {"description": properties[name]["description"], "anyOf": [_NAME, _NAMES]}
    properties["items"] = {"description": properties["items"]["description"], **_ITEMS}
    properties["function"] = {**_NAME, "pattern": ":", "description": properties["function"]["description"]}
    properties["function_memory"] = {**_SIZE, "description": properties["function_memory"]["description"]}
    return {
        **schema,
        "oneOf": [{"required": [name]} for name in (*_PATTERNS, "items")],  # a source has one of them
        "dependentRequired": {
            name: ["function"] for name in ("files", "items", "schema", "missing", "function_memory")
        },
        "dependentSchemas": {"npz": {"not": {"required": ["function"]}}},
    }


def _size(text: Schema) -> Schema:
    """A size is written as text, or as a number of bytes."""
    return {**{key: value for key, value in text.items() if key != "type"}, **_SIZE}


def _stage_schema(definitions: Schema) -> Schema:
    """An entry is a stage's name, or a mapping of that one name to its options."""
    stages = {name: _options_schema(name, load_object(target), definitions) for name, target in BUILT_IN.items()}
    installed = [entry.name for entry in importlib.metadata.entry_points(group=ENTRY_POINTS)]
    by_name: Schema = {
        "type": "object",
        "properties": {**{name: {} for name in installed}, **stages},
        "patternProperties": {_OWN_CODE: {"type": ["object", "null"]}},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
    names: Schema = {"anyOf": [{"enum": sorted([*stages, *installed])}, {"type": "string", "pattern": _OWN_CODE}]}
    return {"anyOf": [by_name, names]}


def _options_schema(name: str, kind: type[Stage], definitions: Schema) -> Schema:
    forms = _FORMS.get(name)
    if forms is None:
        forms = [_fields_schema(kind, definitions)]
        if name in _SHORT:
            forms.append(_SHORT[name])
        elif "options_from_yaml" in vars(kind):
            forms.append({})  # it has short forms that are not written down above: nothing must be called wrong
    return {"description": inspect.getdoc(kind), "anyOf": [_described(name, form) for form in forms]}


def _described(name: str, form: Schema) -> Schema:
    """The form with a description for every option that has none."""
    if "properties" not in form:
        return form
    meanings = {key: {"description": words} for key, words in _MEANINGS.get(name, {}).items()}
    return {**form, "properties": {key: {**meanings.get(key, {}), **each} for key, each in form["properties"].items()}}


def _fields_schema(kind: type[Stage], definitions: Schema) -> Schema:
    """The stage's fields as a mapping. What they refer to is moved to the top, where `$ref` looks for it."""
    schema = TypeAdapter(kind).json_schema()
    definitions.update(schema.pop("$defs", {}))
    return {**schema, "additionalProperties": False}
