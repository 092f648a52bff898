"""Plan: arguments of the events kernel as numbers: vocabulary, columns, shape of a row; and its scratch memory."""

from typing import Any, NamedTuple

from penstock.loader.compiled.jit import jit_inline
from penstock.loader.compiled.pointers import read_i8, shifted
from penstock.loader.order.order import EVENTS_A_CONTEXT

IP, TIME, FLOAT11, INT, CATEGORY, BYTES, FLOAT16, FLOAT32, BOOLEAN, BINS = range(10)  # in the order of KINDS
# One row of `Plan.facts` per field: its kind, its markers, then the slots of its columns (-1: it has none).
(
    KIND,
    MARKER,  # the first of its tokens, and the second and third where it has them
    MARKER_2,
    MARKER_3,
    OF_EVENTS,  # 1: a column of events, 0: of the record
    VALUE,  # slot of numbers, or of the bytes of text
    VALID,
    CODES,
    OFFSETS,  # of text
    PARSED,  # slot of parsed addresses, or of the categories of codes
    VERSION,
    VERSION_VALID,
    VERSION_OF_EVENTS,
    TICKS,  # a second, in a time column
    WIDTH,
    FIRST_CATEGORY,  # in Plan.categories; of bins the first edge
    CATEGORIES,
    FIELD_FACTS,
) = range(18)
# One row of `Plan.categories` per value: the number, the bits of the edge, or where its text begins; its place in the
# vocabulary; the text's size.
CATEGORY_VALUE, CATEGORY_PLACE, CATEGORY_SIZE, CATEGORY_FACTS = range(4)
MOST_BLOCK = 2 + 255  # tokens of one field: a marker, a length, 255 bytes
SHORT_BLOCK = 8  # tokens: as many are copied at once, and what is too much written over


class Plan(NamedTuple):
    """The vocabulary and the shape of a row, as numbers and addresses."""

    fields: int
    facts: Any  # address of int64 [fields, FIELD_FACTS]
    categories: Any  # address of int64 [values, CATEGORY_FACTS]: of each field in ascending order
    texts: Any  # address of the bytes of all categories that are text
    offsets: int  # slot of the records' events
    address_field: int  # the field of the record's own address, or -1
    time_field: int
    packed: bool
    augment: int  # 1: reorder events, leave times out, reorder blocks. A factor, not a branch: that took 20% longer
    length: int
    byte_base: int
    smallest: int
    typical: int
    typical_ipv6: int


@jit_inline
def fact(plan: Any, number: int, fact: int) -> int:
    return read_i8(plan.facts, number * FIELD_FACTS + fact)


class Scratch(NamedTuple):
    """Memory that the rows of a batch use one after the other: addresses within one array."""

    tokens: Any  # int32, of the row
    blocks: Any  # int32 [fields, MOST_BLOCK]
    sizes: Any  # int64, of each field's block; 0: the event has none
    noted: Any  # int64, of each field: what to count when the event is taken, or -1
    families: Any  # int64, of each address: 4, 6, or 0 if there is none
    places: Any  # int64, the order of blocks
    chosen: Any  # int64, events of the record in time order
    order: Any  # int64, numbers of chosen events in the order they are written
    timed: Any  # int64, whether each keeps its time
    keeps: Any  # int64
    shuffled: Any  # int64
    entry: Any  # an address
    stream: Any  # two words: the segment's draws


def scratch_words(fields: int, length: int, typical: int) -> int:
    """int64 words of scratch memory that a kernel call needs."""
    return _row_words(length, fields) + fields * MOST_BLOCK + 4 * fields + 5 * _most_events(length, typical) + 8


@jit_inline
def _row_words(length: int, fields: int) -> int:
    """A row and one event behind it, of int32."""
    return (length + 2 + fields * MOST_BLOCK + SHORT_BLOCK) // 2 + 1


def _most_events(length: int, typical: int) -> int:
    return (length + 1) // min(typical, EVENTS_A_CONTEXT) + 2


@jit_inline
def lay_out(memory: Any, plan: Any) -> Any:
    """Cut scratch memory into its parts. The sum is `scratch_words`."""
    events = 8 * ((plan.length + 1) // min(plan.typical, EVENTS_A_CONTEXT) + 2)
    blocks = shifted(memory, 8 * _row_words(plan.length, plan.fields))
    sizes = shifted(blocks, 8 * plan.fields * MOST_BLOCK)
    noted = shifted(sizes, 8 * plan.fields)
    families = shifted(noted, 8 * plan.fields)
    places = shifted(families, 8 * plan.fields)
    chosen = shifted(places, 8 * plan.fields)
    order, timed = shifted(chosen, events), shifted(chosen, 2 * events)
    keeps, shuffled = shifted(chosen, 3 * events), shifted(chosen, 4 * events)
    entry = shifted(chosen, 5 * events)
    return Scratch(
        memory, blocks, sizes, noted, families, places, chosen, order, timed, keeps, shuffled, entry, shifted(entry, 32)
    )
