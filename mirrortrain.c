#define MIRRORTRAIN_IMPLEMENTATION
#include "mirrortrain.h"
