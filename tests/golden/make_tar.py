"""Archives by Python's tarfile in its three formats, and the samples that WebDataset finds.

python make_tar.py > tar.h   (needs webdataset 1.0.2)"""
import io
import sys
import tarfile
import tempfile

import webdataset

LONG = "a/directory/of/a/long/name/" * 5
SPLIT = "y" * 98 + "/" + "z" * 90
MEMBERS = [("000.bmp", 0), ("000.cls", b"2"), ("000.json", b"{}"), ("__notes__", b"x"), ("__notes__/00.bmp", b"x"),
           ("sub.dir/001.CLS", b" 0\n"), ("sub.dir/001.BMP", 1), (LONG + "002.bmp", 2), (LONG + "002.cls", b"11"),
           ("./003.cls", b"1"), ("./003.seg.bmp", b"no image"), ("./003.bmp", 3), ("b\u00e4r.bmp", 4),
           ("b\u00e4r.cls", b"3"), (".hidden", b""), ("README", b"none"), ("notes.txt", b"about the data"),
           (SPLIT + ".bmp", 5), (SPLIT + ".cls", b"007")]
FORMATS = ("ustar", tarfile.USTAR_FORMAT), ("pax", tarfile.PAX_FORMAT), ("gnu", tarfile.GNU_FORMAT)


def bmp(shade):
    """Three pixels of one shade."""
    head = [66, 0, 0, 0, 0, 0, 0, 0, 54, 0, 0, 0, 40, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 24, 0]
    return b"BM" + bytes(head + [0] * 24 + [40 * shade + 7] * 9 + [0] * 3)


def archive(kind):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=kind) as tar:
        def add(name, content, **more):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for key, value in more.items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(content))
        add("sub.dir", b"", type=tarfile.DIRTYPE)
        add("link.bmp", b"", type=tarfile.SYMTYPE, linkname="000.bmp")
        for name, content in MEMBERS:
            add(name, bmp(content) if isinstance(content, int) else content)
        add("hard.bmp", b"", type=tarfile.LNKTYPE, linkname="000.bmp")
    return out.getvalue()


def samples(data):
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        file.write(data)
        file.flush()
        found = webdataset.WebDataset(file.name, shardshuffle=False)
        return [(s["__key__"], s["bmp"], int(s["cls"])) for s in found if "bmp" in s]


def text(value):
    plain = [c if " " <= c <= "~" and c not in '"\\' else "".join("\\%03o" % b for b in c.encode()) for c in value]
    return '"' + "".join(plain) + '"'


print("/* Written by make_tar.py: tarfile of Python %s, webdataset %s. */" % (sys.version.split()[0],
                                                                             webdataset.__version__))
print("typedef struct golden_block {\n    int at; /* of 512 bytes */\n"
      "    const char *bytes; /* hexadecimal, without the zeros at their end */\n} golden_block;")
print("typedef struct golden_sample {\n    const char *key;\n    int label, shade;\n} golden_sample;")
for name, kind in FORMATS:
    data = archive(kind)
    print("static const golden_block golden_%s[] = {" % name)
    for at in range(0, len(data), 512):
        block = data[at:at + 512].rstrip(b"\0").hex()
        lines = ['"%s"' % block[i:i + 96] for i in range(0, len(block), 96)]
        if block:
            print("    {%d, %s}," % (at // 512, "\n        ".join(lines)))
    print("    {%d, NULL}};" % (len(data) // 512))
    print("static const golden_sample golden_%s_samples[] = {" % name)
    for key, image, label in samples(data):
        parts = [text(key[i:i + 90]) for i in range(0, len(key), 90)]
        print("    {%s,\n        %d, %d}," % ("\n        ".join(parts), label, image[54]))
    print("};")
