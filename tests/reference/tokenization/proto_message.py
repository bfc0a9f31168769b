# Messages in protobuf's wire format, written and read without its library: as much as a tokenizer.model takes.
import struct


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    """A field: bytes (a string or a message), a float of 32 bits, or an integer that is not negative."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3) + varint(value)


def field_of(message, path):
    """The first field of a message at this path of numbers, itself bytes; none where there is no such field."""
    at = 0

    def read_varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        tag = read_varint()
        if tag & 7 == 2:
            size = read_varint()
            found, at = message[at:at + size], at + size
        else:
            found = None
            at += {0: 0, 1: 8, 5: 4}[tag & 7]
            if tag & 7 == 0:
                read_varint()
        if tag >> 3 == path[0] and found is not None:
            return found if len(path) == 1 else field_of(found, path[1:])
    return b""
