"""Lines of the Test Anything Protocol, as tap.h prints them."""
count = failures = 0
# What reorders the text around it, or ends a line.
TURNS = "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def ok(good, text):
    global count, failures
    count += 1
    failures += not good
    print("%sok %d - %s" % ("" if good else "not ", count, text), flush=True)
    return good


def skip(text):
    global count
    count += 1
    print("ok %d # SKIP %s" % (count, text), flush=True)


def tame(data):
    """Whether a terminal shows these lines as they are: all that mirt_printable escapes but the ends of lines is
    absent."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return not any((ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 or c in TURNS for c in text)


def done():
    """The exit status."""
    print("1..%d" % count)
    return failures > 0
