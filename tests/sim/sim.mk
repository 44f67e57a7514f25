# The simulated CUDA runtime, and tests that run on it. A test is one line, SIM_TESTS += name: tests/sim/name.cpp, linked with the simulator and
# with what name_WITH says, compiled with name_FLAGS too.
SIM_CXX = g++
SIM_FLAGS = -std=c++17 -O2 -g $(TEST_WARNINGS)
SIM_SEEDS = 0 1 2
SIM_PARTS = fibers memory streams blas nccl

SIM_TESTS += test_sim

# NAME, FLAGS of everything, FLAGS of tests: the rules of build/NAME/simulator.a and build/NAME/TEST.
define SIM_RULES
build/$(1)/%.o: tests/sim/%.cpp $$(wildcard tests/sim/*.h)
	@mkdir -p $$(@D)
	$$(SIM_CXX) $$(SIM_FLAGS) $(2) -c $$< -o $$@
build/$(1)/simulator.a: $$(SIM_PARTS:%=build/$(1)/%.o)
	@rm -f $$@
	@ar rcs $$@ $$^
.SECONDEXPANSION:
$$(SIM_TESTS:%=build/$(1)/%): build/$(1)/%: tests/sim/%.cpp build/$(1)/simulator.a $$$$($$$$*_WITH) tests/tap.h
	$$(SIM_CXX) $$(SIM_FLAGS) $(3) -Itests -Itests/sim -include tests/sim/sim_device.h $$($$*_FLAGS) $$< $$($$*_WITH) build/$(1)/simulator.a -o $$@ -rdynamic -ldl $$(LDLIBS)
endef
$(eval $(call SIM_RULES,sim,,))

sim-test:
	@$(MAKE) --no-print-directory -j$(JOBS) $(SIM_TESTS:%=build/sim/%)
	@for seed in $(SIM_SEEDS); do echo "seed $$seed"; MIRT_SIM_SEED=$$seed tests/run -t 400 $(SIM_TESTS:%=build/sim/%) || exit 1; done

.PHONY: sim-test
