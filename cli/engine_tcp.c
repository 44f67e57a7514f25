/* The engine of TCP, which scaling limits. The library looks for the name that mirrortrain_tcp.c defines. */
#include "posix.h"
#define mirt__tcp_engine whole_tcp_engine
#include "../mirrortrain_tcp.c"
#undef mirt__tcp_engine
#include "cli.h"

const mirt__engine *mirt__tcp_engine(void);
const mirt__engine *mirt__tcp_engine(void) { return limited_engine(whole_tcp_engine()); }
