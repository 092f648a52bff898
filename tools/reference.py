"""Reference: the code -> tables and sections of docs/reference, so that these pages say what the code does.

A page marks the parts that are made: everything between `<!-- made: stages -->` and `<!-- end -->` is replaced.
`python tools/reference.py docs/reference` writes them; with `--check` it names the pages that are out of date instead.
"""

from __future__ import annotations

import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeGuard

import typer

import penstock
from penstock.base.errors import PenstockError
from penstock.cli import EXIT_CODES, app
from penstock.show.asking.job_schema import job_schema

Schema = dict[str, Any]
Line = tuple[str, ...]
_MADE = re.compile(r"(<!-- made: ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_LOCATION = re.compile(r"<([\w.]+) object at 0x[0-9a-f]+>")


def made_page(text: str) -> str:
    """The page with its made parts as the code has them now."""
    return _MADE.sub(lambda found: f"{found[1]}\n{PARTS[found[2]]()}\n{found[3]}", text)


def job_keys() -> str:
    return _keys_table(job_schema()["properties"])


def source_keys() -> str:
    return _keys_table(job_schema()["$defs"]["SourceConfig"]["properties"])


def export_keys() -> str:
    return _keys_table(job_schema()["$defs"]["ExportConfig"]["properties"])


def engines() -> str:
    """A section per engine: its docstring, and a table of its options."""
    by_name = job_schema()["properties"]["engine"]["anyOf"][1]["properties"]
    return "\n".join(_engine(name, schema) for name, schema in by_name.items())


def _engine(name: str, schema: Schema) -> str:
    table = [_keys_table(schema["properties"])] if schema["properties"] else []
    return "\n".join([f"**`{name}`**: {_sentence(schema['description'])}", "", *table])


def stages() -> str:
    """A section per built-in stage: its docstring, and a table of its options."""
    by_name = job_schema()["properties"]["stages"]["items"]["anyOf"][0]["properties"]
    return "\n".join(_stage(name, schema) for name, schema in by_name.items())


def _stage(name: str, schema: Schema) -> str:
    options: Schema = {}
    for form in schema["anyOf"]:
        options |= form.get("properties", {})
    table = [_keys_table(options)] if options else []
    return "\n".join([f"## {name}\n", _paragraphs(schema.get("description") or ""), "", *table])


def _keys_table(properties: Schema) -> str:
    lines = (
        (f"`{name}`", _values(schema), _default(schema), _sentence(schema.get("description", "")))
        for name, schema in properties.items()
    )
    return _table(("key", "values", "default", "meaning"), lines)


def _values(schema: Schema) -> str:
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "anyOf" in schema:
        parts = [_values(each) for each in schema["anyOf"] if each.get("type") != "null"]
        return " or ".join(dict.fromkeys(part for part in parts if part))
    if "$ref" in schema:
        return "mapping"
    if schema.get("type") == "array":
        return "list"
    kind = str(schema["type"])
    return {"object": "mapping", "string": "text", "boolean": "`true`, `false`"}.get(kind, kind)


def _default(schema: Schema) -> str:
    default = schema.get("default")
    if default is None or default in ("", [], {}):
        return ""
    written = str(default).lower() if isinstance(default, bool) else str(default)
    return f"`{written}`"


def exit_codes() -> str:
    public = [getattr(penstock, name) for name in penstock.__all__]
    errors = {each.exit_code: each.__name__ for each in public if _is_error(each)}
    lines = ((str(code), meaning, f"`{errors[code]}`" if code in errors else "") for code, meaning in EXIT_CODES)
    return _table(("exit code", "meaning", "in Python"), lines)


def _is_error(found: Any) -> TypeGuard[type[PenstockError]]:
    return inspect.isclass(found) and issubclass(found, PenstockError) and found is not PenstockError


def commands() -> str:
    """A section per command: its help, its arguments and its options."""
    group: Any = typer.main.get_command(app)
    return "\n".join(_command(name, group.commands[name]) for name in group.commands)


def _command(name: str, command: Any) -> str:
    usage = " ".join(["penstock", name, "[OPTIONS]", *(_metavar(each) for each in _arguments(command))])
    lines = [_option_line(each) for each in command.params if not getattr(each, "hidden", False)]
    table = _table(("argument or option", "meaning", "default"), lines)
    return f"## {name}\n\n{_paragraphs(command.help or '')}\n\n```text\n{usage}\n```\n\n{table}"


def _arguments(command: Any) -> list[Any]:
    return [each for each in command.params if each.param_type_name == "argument"]


def _metavar(argument: Any) -> str:
    name = str(argument.metavar or argument.name.upper())
    return name if argument.required else f"[{name}]"


def _option_line(parameter: Any) -> Line:
    if parameter.param_type_name == "argument":
        return (f"`{_metavar(parameter)}`", _sentence(parameter.help or ""), "")
    names = ", ".join(f"`{each}`" for each in [*parameter.opts, *parameter.secondary_opts])
    value = f" {parameter.metavar}" if parameter.metavar else ""
    default = "" if parameter.default in (None, False, ...) or callable(parameter.default) else str(parameter.default)
    return (f"{names}{value}", _sentence(parameter.help or ""), f"`{default}`" if default else "")


def python() -> str:
    """A section per public name: its signature, its docstring, and of a class its public methods."""
    return "\n".join(_public(name, getattr(penstock, name)) for name in sorted(penstock.__all__, key=str.lower))


def _public(name: str, found: Any) -> str:
    heading = f"## {name}\n"
    if inspect.ismodule(found):
        return f"{heading}\n{_paragraphs(inspect.getdoc(found) or '')}\n"
    if typing.get_origin(found) in (typing.Union, types.UnionType):
        return "\n".join([heading, "One of these dicts:\n", *map(_dictionary, typing.get_args(found)), ""])
    if not inspect.isclass(found):
        return f"{heading}\n{_signature(f'penstock.{name}', found)}\n{_paragraphs(inspect.getdoc(found) or '')}\n"
    if _is_error(found):
        doc = inspect.getdoc(found)
        return f"{heading}\n{doc} A `PenstockError` with exit code {found.exit_code}.\n"
    methods = [_method(name, each, vars(found)[each]) for each in vars(found) if not each.startswith("_")]
    return "\n".join(
        [heading, _paragraphs(inspect.getdoc(found) or ""), "", *_made_by(found), *filter(None, methods), ""]
    )


def _made_by(kind: type) -> list[str]:
    """How people make one, if its constructor says so: options that it explains are for them."""
    made = vars(kind).get("__init__")
    return [_paragraphs(inspect.getdoc(made) or ""), ""] if "Args:" in (getattr(made, "__doc__", None) or "") else []


def _dictionary(kind: Any) -> str:
    keys = ", ".join(f"`{key}`" for key in kind.__annotations__)
    return f"- `{kind.__name__}`: {_sentence(kind.__doc__ or '')} Keys: {keys}."


def _method(owner: str, name: str, found: Any) -> str:
    """A section about a method or a property that has a docstring."""
    function = getattr(found, "__func__", found)
    if not (isinstance(found, property) or inspect.isfunction(function)) or not inspect.getdoc(function):
        return ""
    call = "" if isinstance(found, property) else f"({', '.join(_parameters(function))})"
    return f"### {owner}.{name}{call}\n\n{_paragraphs(inspect.getdoc(function) or '')}\n"


def _parameters(function: Callable[..., Any]) -> list[str]:
    return [each for each in inspect.signature(function).parameters if each not in ("self", "cls")]


def _signature(name: str, function: Callable[..., Any]) -> str:
    """The signature, one parameter per line. Long types and defaults are written as `...`."""
    parameters = list(inspect.signature(function).parameters.values())
    lines = [_parameter(each) for each in parameters]
    keyword_only = [each.kind is each.KEYWORD_ONLY for each in parameters]
    if any(keyword_only):
        lines.insert(keyword_only.index(True), "*")
    return "\n".join(["```text", f"{name}(", *(f"    {line}," for line in lines), ")", "```", ""])


def _parameter(parameter: inspect.Parameter) -> str:
    kind = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
    kind = "**" if parameter.kind is parameter.VAR_KEYWORD else kind
    default = "" if parameter.default is parameter.empty else f" = {_short(repr(parameter.default))}"
    return f"{kind}{parameter.name}: {_short(_type(parameter.annotation))}{default}"


def _type(annotation: Any) -> str:
    """The type in short, and alike in every version of Python."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return " | ".join(_type(each) for each in typing.get_args(annotation))
    if annotation is type(None):
        return "None"
    written = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:[a-z_]\w*\.)+", "", written)


def _short(text: str) -> str:
    return text if len(text) < 80 else "..."


def _table(heads: Line, lines: Iterable[Line]) -> str:
    written = [heads, tuple("---" for _ in heads), *lines]
    return "\n".join(f"| {' | '.join(_cell(each) for each in line)} |" for line in written) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _sentence(text: str) -> str:
    return " ".join(text.split())


def _paragraphs(text: str) -> str:
    """A docstring as Markdown. A section such as `Args:` becomes a list of its names."""
    without_place = re.sub(r" Next: \w+\.py\.", "", _LOCATION.sub(r"\1", text.strip()))
    return "\n".join(_lines(without_place))


def _lines(text: str) -> Iterator[str]:
    is_section = False
    for line in text.splitlines():
        named = re.match(r"    (\w+): (.*)", line)
        if line in ("Args:", "Attributes:", "Returns:", "Raises:", "Yields:"):
            is_section = True
            yield f"**{line[:-1]}**\n"
        elif is_section and named:
            yield f"- `{named[1]}`: {named[2]}"
        elif is_section and line.startswith("    "):
            yield f"  {line.strip()}" if line.startswith("        ") else line.strip()
        else:
            is_section = is_section and not line
            yield line


PARTS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "engines": engines,
    "exit codes": exit_codes,
    "export keys": export_keys,
    "job keys": job_keys,
    "python": python,
    "source keys": source_keys,
    "stages": stages,
}


def outdated(folder: Path) -> list[Path]:
    return [page for page in sorted(folder.glob("*.md")) if made_page(page.read_text()) != page.read_text()]


def main(arguments: list[str]) -> int:
    folder, is_check = Path(arguments[0]), "--check" in arguments
    pages = outdated(folder)
    for page in pages:
        print(f"{page}: {'out of date; run make reference' if is_check else 'written'}")
        if not is_check:
            page.write_text(made_page(page.read_text()))
    return 1 if pages and is_check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
