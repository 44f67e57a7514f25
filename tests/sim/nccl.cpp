#include "sim_internal.h"
namespace mirt_sim {
int nccl_leaks() { return 0; }
}
