#include "sim_internal.h"
namespace mirt_sim {
int library_leaks() { return 0; }
}
