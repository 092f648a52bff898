"""Shown: an object of the Python interface as one line, and as a table in a notebook. Markup in names is escaped."""

import html
from abc import ABC, abstractmethod

from penstock.base.errors import printable


class Shown(ABC):
    """Base of objects that describe themselves in a few words. Names come from data, so they are escaped."""

    @abstractmethod
    def facts(self) -> dict[str, str]:
        """Facts for people, each with a title."""

    def __repr__(self) -> str:
        facts = ", ".join(f"{title} {fact}" for title, fact in self.facts().items())
        return printable(f"<{type(self).__name__}: {facts}>")

    def _repr_html_(self) -> str:
        rows = [f"<tr><th>{_escaped(title)}</th><td>{_escaped(fact)}</td></tr>" for title, fact in self.facts().items()]
        return f"<table><caption>{type(self).__name__}</caption>{''.join(rows)}</table>"


def _escaped(text: str) -> str:
    return html.escape(printable(text))
