/* test_verdict.c with the machine's clock, real sleeps and real wake-ups. */
#define TIMED
#include "test_verdict.c"
