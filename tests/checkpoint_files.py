"""Looks into checkpoints."""
import hashlib
import json
import struct


def whole(path):
    """The step of a checkpoint whose checksum is right, or a sentence."""
    data = open(path, "rb").read()
    try:
        size = struct.unpack("<Q", data[:8])[0]
        metadata = json.loads(data[8:8 + size])["__metadata__"]
        right = metadata["mirrortrain.sha256"] == hashlib.sha256(data[8 + size:]).hexdigest()
        return json.loads(metadata["training"])["iterations"] if right else path + ": wrong checksum"
    except Exception as error:
        return "%s: %s" % (path, error)
