#!/bin/sh
# tests/test_stb_unit.sh with every configuration, compiler and language.
STB_ALL=1 exec "$(dirname "$0")/test_stb_unit.sh"
