/* 5,000 random cases of training: see properties.h. Arguments: seed, first case, count. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "function_util.h"
#include "tap.h"
#include "properties.h"

int main(int argc, char **argv) { return property_main(argc, argv, 5000); }
