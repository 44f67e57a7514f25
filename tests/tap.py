"""Lines of the Test Anything Protocol, as tap.h prints them."""
count = failures = 0


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


def done():
    """The exit status."""
    print("1..%d" % count)
    return failures > 0
