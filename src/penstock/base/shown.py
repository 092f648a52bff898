"""Shown: an object of the Python interface in one line, and as a table in a notebook. Nothing in it can be markup."""

import html
from abc import ABC, abstractmethod

from penstock.base.errors import printable


class Shown(ABC):
    """An object that says in a few words what it is. Names come from data, so they may hold anything."""

    @abstractmethod
    def facts(self) -> dict[str, str]:
        """Words for people, each with a title."""

    def __repr__(self) -> str:
        facts = ", ".join(f"{title} {fact}" for title, fact in self.facts().items())
        return printable(f"<{type(self).__name__}: {facts}>")

    def _repr_html_(self) -> str:
        rows = [f"<tr><th>{_escaped(title)}</th><td>{_escaped(fact)}</td></tr>" for title, fact in self.facts().items()]
        return f"<table><caption>{type(self).__name__}</caption>{''.join(rows)}</table>"


def _escaped(text: str) -> str:
    return html.escape(printable(text))
