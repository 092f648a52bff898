"""Written: the value of a condition, as a person wrote it -> a value of Python, as YAML reads it. Used by literals.py.

A worker gets conditions that were read: it does without YAML.
"""

import re
from typing import Any

import yaml

from penstock.base.numbers import WrittenFloat


class _Values(yaml.SafeLoader):
    """YAML's values, where 1e-3 is a number too; 12:30:00 and 007 are text, which YAML would take for other numbers."""


_Values.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if not tag.endswith((":int", ":float"))]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Values.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0b[01_]+)\Z"), list("-+0123456789")
)
_Values.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"(?:[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
    ),
    list("-+0123456789."),
)


def _construct_float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> WrittenFloat:
    number = WrittenFloat(loader.construct_yaml_float(node))
    number.text = node.value
    return number


def _construct_time(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
    """YAML cuts a second after six digits: a finer time stays text, which no column of times takes."""
    fraction = re.search(r"\.([0-9]+)", node.value)
    is_fine = fraction and fraction[1][6:].strip("0")
    return node.value if is_fine else loader.construct_yaml_timestamp(node)


_Values.add_constructor("tag:yaml.org,2002:float", _construct_float)
_Values.add_constructor("tag:yaml.org,2002:timestamp", _construct_time)


def read_literal(text: str) -> Any:
    """Raises ValueError for what is no value, and where YAML would read another one than is written: `a #1` is `a`."""
    try:
        node, value = yaml.compose(text, _Values), yaml.load(text, _Values)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a day such as 2020-13-45
        raise ValueError(f"{text!r} is not a value") from error
    if not node or _written(node, text) != text or not _is_as_written(node, text):
        raise ValueError(f"{text!r} has characters that mean something else in YAML")
    return value


def unquoted(text: str) -> list[str]:
    """The pieces of a value that stand without quotes; all of it where it is no value."""
    try:
        node = yaml.compose(text, _Values)
    except yaml.YAMLError:
        return [text]
    pieces = node.value if isinstance(node, yaml.SequenceNode) else [node]
    return [piece.value for piece in pieces if isinstance(piece, yaml.ScalarNode) and piece.style is None]


def _is_as_written(node: yaml.Node, text: str) -> bool:
    """Whether it is `[`a list`]`, a text in quotes, or a scalar of just the characters that stand there."""
    written = _written(node, text)
    if isinstance(node, yaml.SequenceNode):
        return written.startswith("[") and all(_is_as_written(each, text) for each in node.value)
    return isinstance(node, yaml.ScalarNode) and (written == node.value or written[:1] in ("'", '"'))


def _written(node: yaml.Node, text: str) -> str:
    return text[node.start_mark.index : node.end_mark.index]
