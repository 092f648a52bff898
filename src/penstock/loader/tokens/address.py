"""Address: text -> (family 0, 4 or 6, 16 bytes), and back. docs/reference/tokens.md says what an address is."""

import functools
import ipaddress

UNREADABLE = 0
NO_ADDRESS = bytes(16)


@functools.lru_cache(maxsize=65536)  # the addresses of a record are few, and asked for with every event
def parse_address(text: bytes) -> tuple[int, bytes]:
    """The bytes of an IPv4 address are the first four of the 16; what cannot be read has family 0 and no bytes."""
    try:
        # Latin-1, so that every byte is one character: what is not ASCII can only be in a zone, which is left out.
        address = ipaddress.ip_address(text.decode("latin-1"))
    except ValueError:
        return UNREADABLE, NO_ADDRESS
    return address.version, address.packed.ljust(16, b"\0")


def format_address(packed: bytes) -> str:
    """4 or 16 bytes as their usual text."""
    return str(ipaddress.ip_address(packed))
