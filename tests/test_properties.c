/* The first 300 of the random cases of properties.h; long_properties.c takes 5,000. Arguments: seed, first case,
   count. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "function_util.h"
#include "tap.h"
#include "properties.h"

int main(int argc, char **argv) { return property_main(argc, argv, small_tier() ? 60 : 300); }
