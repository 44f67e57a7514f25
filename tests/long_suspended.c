/* test_suspended.c with a process that is really stopped. Wants an idle machine: between two looks of the watchdog
   there must be less than three quarters of its limit of 1 s. */
#define TIMED
#include "test_suspended.c"
