"""Reads TensorBoard's event files: TFRecord frames, then protocol buffers by field numbers."""
import struct

TABLE = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
    TABLE.append(n)


def masked_crc(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    """The messages of a file; ValueError where it is damaged."""
    with open(path, "rb") as f:
        data = f.read()
    at = 0
    while at < len(data):
        size, crc = struct.unpack_from("<QI", data, at)
        if masked_crc(data[at:at + 8]) != crc:
            raise ValueError("%s: checksum of a length at %d" % (path, at))
        message = data[at + 12:at + 12 + size]
        if struct.unpack_from("<I", data, at + 12 + size)[0] != masked_crc(message):
            raise ValueError("%s: checksum of a message at %d" % (path, at))
        yield message
        at += 16 + size


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """{number: [values]}: numbers, and bytes of whatever has a length."""
    out, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif kind == 5:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        elif kind == 2:
            size, at = varint(data, at)
            if at + size > len(data):
                raise ValueError("a field ends after its message")
            value, at = data[at:at + size], at + size
        else:
            raise ValueError("a field of kind %d" % kind)
        out.setdefault(key >> 3, []).append(value)
    return out


def tensor(data):
    """(dimensions, values): floats, doubles or bytes."""
    t = fields(data)
    dims = [fields(d).get(1, [0])[0] for d in fields(t.get(2, [b""])[0]).get(2, [])]
    form = {1: "f", 2: "d"}.get(t[1][0])
    if form is None:
        return dims, t.get(8, [])
    content = t.get(4, [b""])[0]
    return dims, list(struct.unpack("<%d%s" % (len(content) // struct.calcsize(form), form), content))


def events(path):
    """Dictionaries: time, step, and version, graph, or tag, plugin, content, dims, values."""
    for record in records(path):
        e = fields(record)
        out = {"time": e[1][0], "step": e.get(2, [0])[0]}
        if 3 in e:
            out["version"] = e[3][0].decode()
        if 4 in e:
            out["graph"] = [
                {"name": n[1][0].decode(), "op": n[2][0].decode(), "input": [i.decode() for i in n.get(3, [])]}
                for n in map(fields, fields(e[4][0]).get(1, []))
            ]
        if 5 in e:
            value = fields(fields(e[5][0])[1][0])
            plugin = fields(fields(value[9][0])[1][0])
            out.update(tag=value[1][0].decode(), plugin=plugin[1][0].decode(), content=plugin.get(2, [b""])[0])
            out["dims"], out["values"] = tensor(value[8][0])
        yield out
