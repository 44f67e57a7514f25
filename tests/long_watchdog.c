/* test_watchdog.c with the machine's clock. Wants an idle machine: a device that gets no core for as long as its limit,
   some tenths of a second here, counts as one that makes no progress. */
#define TIMED
#include "test_watchdog.c"
