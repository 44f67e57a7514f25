# The simulated CUDA runtime, and tests that run on it. A test is one line, SIM_TESTS += name: tests/sim/name.cpp,
# linked with the simulator and with what name_WITH says, compiled with name_FLAGS too.
# NVIDIA's headers: those that tests/sim/fetch_headers brought, CUDA's, or where compilers look.
CUDA_INCLUDE = $(foreach place,$(firstword $(wildcard build/nvidia/include /usr/local/cuda/include)),-isystem $(place))
SIM_CXX = g++
SIM_FLAGS = -std=c++17 -O3 -g $(TEST_WARNINGS) $(CUDA_INCLUDE)
# fmaf as one instruction where there is one, and nothing fused but what says so.
SIM_ARCH = $(if $(shell grep -m1 -o ' fma ' /proc/cpuinfo 2>/dev/null),-mfma) -ffp-contract=off
SIM_SEEDS = 0 1 2
SIM_PARTS = fibers memory streams blas nccl faults access

# The library that is linked with them, and what else its sanitizers want.
PARTS_sim = build/tests/parts.a
PARTS_sim-access = build/tests/parts.a
PARTS_sim-contract = build/tests/parts.a
PARTS_sim-asan = build/asan/parts.a
PARTS_sim-tsan = build/tsan/parts.a
PARTS_sim-coverage = build/tests/parts.a
PARTS_sim-cover = build/cover/parts.a
LDLIBS_sim-asan = -lubsan
LDLIBS_sim-cover = -lgcov

SIM_TESTS += test_sim
SIM_TESTS += test_watch
SIM_TESTS += test_access
SIM_TESTS += test_multiply
test_multiply_FLAGS = -I. -DMIRRORTRAIN_BACKEND -include mirrortrain.h -Wno-unknown-pragmas -Wno-pedantic -Wno-shadow -Wno-uninitialized -Wno-maybe-uninitialized
SIM_TESTS += test_sums
test_sums_FLAGS = $(test_multiply_FLAGS)
SIM_TESTS += test_gpu_faults
test_gpu_faults_WITH = $(@D)/cuda.o $(PARTS_$(notdir $(@D)))
SIM_TESTS += test_services
test_services_WITH = $(@D)/cuda.o $(PARTS_$(notdir $(@D)))

# Flags that only device code is compiled with. access.cpp defines the functions that -fsanitize=thread calls, so
# libtsan is not linked; nothing makes one access of several.
DEVICE_sim-access = -DMIRT_SIM_ACCESS -fsanitize=thread --param tsan-instrument-func-entry-exit=0 -fno-tree-vectorize \
	-fno-store-merging
# nvcc makes one instruction of a product and the sum that takes it, unless told otherwise.
DEVICE_sim-contract = -DMIRT_SIM_CONTRACT -ffp-contract=fast

# NAME, FLAGS of the simulator, FLAGS of tests: the rules of build/NAME/simulator.a and build/NAME/TEST.
define SIM_RULES
build/$(1)/%.o: tests/sim/%.cpp $$(wildcard tests/sim/*.h)
	@mkdir -p $$(@D)
	$$(SIM_CXX) $$(SIM_FLAGS) $(2) -c $$< -o $$@
build/$(1)/simulator.a: $$(SIM_PARTS:%=build/$(1)/%.o)
	@rm -f $$@
	@ar rcs $$@ $$^
.SECONDEXPANSION:
$$(SIM_TESTS:%=build/$(1)/%): build/$(1)/%: tests/sim/%.cpp build/$(1)/simulator.a $$$$($$$$*_WITH) tests/tap.h
	$$(SIM_CXX) $$(SIM_FLAGS) $(3) $$(DEVICE_$(1)) -Itests -Itests/sim -include tests/sim/sim_device.h \
		$$($$*_FLAGS) -c $$< -o $$@.o
	$$(SIM_CXX) $(3) $$@.o $$($$*_WITH) build/$(1)/simulator.a -o $$@ -rdynamic -ldl $$(LDLIBS) $$(LDLIBS_$(1))
endef
$(eval $(call SIM_RULES,sim,,))
$(eval $(call SIM_RULES,sim-asan,-O1 -fsanitize=address,-O1 -fsanitize=address))
# The simulator tells the sanitizer what is ordered, and is not looked at itself.
$(eval $(call SIM_RULES,sim-tsan,-DMIRT_SIM_TSAN,-O1 -fsanitize=thread))
$(eval $(call SIM_RULES,sim-coverage,,--coverage))
$(eval $(call SIM_RULES,sim-access,-DMIRT_SIM_ACCESS,-O2))
$(eval $(call SIM_RULES,sim-contract,,$(SIM_ARCH)))
# Coverage of the rest of src/, not of src/cuda: tests/coverage.py.
$(eval $(call SIM_RULES,sim-cover,,))

# The GPU's kernels as one more table in the tests of the CPUs' (sim_kernels.c). A program in C on simulated devices,
# tests/sim/NAME.c, tests/gpu/NAME.c or tests/NAME.c, is one line too: SIM_C_TESTS += NAME.
SIM_KERNEL_TESTS = test_kernels test_ops test_storage test_golden test_tensors test_depthwise test_conv_tiles test_norm test_augment
SIM_C_TESTS += test_products
SIM_C_TESTS += test_fuse
SIM_C_TESTS += test_float16
SIM_C_TESTS += test_training
SIM_C_TESTS += test_ahead
SIM_C_TESTS += test_corners
SIM_C_TESTS += test_gpu
SIM_C_TESTS += test_not_finite
SIM_C_TESTS += test_processes
# No test: records the launches of a step (tests/check_gpu_tables.sh).
SIM_C_PROGRAMS = $(SIM_C_TESTS) launches
# How many devices there are, where it is not one, and which seeds it takes where not all.
test_training_DEVICES = 4
test_float16_DEVICES = 4
test_ahead_DEVICES = 4
test_corners_DEVICES = 4
test_not_finite_DEVICES = 4
test_gpu_SEEDS = 1
test_not_finite_SEEDS = 1
test_processes_SEEDS = 1
test_float16_SEEDS = 1
test_corners_SEEDS = 1
test_gpu_faults_SEEDS = 1

# src/cuda file by file in one translation unit, so that messages and coverage name its files.
build/cuda_parts.cu: src/cuda/FILES
	@mkdir -p build
	@{ echo '#define MIRRORTRAIN_BACKEND'; echo '#include "../mirrortrain.h"'; sed -n 's|^\(cuda/.*\)|#include "../src/\1"|p' src/cuda/FILES; } >$@

# NAME, FLAGS, FLAGS of src/cuda alone (SIM_LIBRARY is another archive of the library, made already)
define SIM_LIBRARY_RULES
build/$(1)/cuda.o: build/cuda_parts.cu $$(wildcard src/cuda/*) tests/sim/sim_device.h mirrortrain.h
	@mkdir -p $$(@D)
	$$(SIM_CXX) -std=c++17 -O2 -g $$(SIM_ARCH) $(2) $(3) $$(DEVICE_$(1)) -Wall -Wextra -Werror \
		-Wno-unknown-pragmas -Wno-unused-function -Wno-maybe-uninitialized $$(CUDA_INCLUDE) -I. -DMIRT_SIM \
		-include tests/sim/sim_device.h -x c++ -c $$< -o $$@
build/$(1)/sim_kernels.o: tests/sim/sim_kernels.c build/parts.h mirrortrain.h
	@mkdir -p $$(@D)
	$$(CC) $$(PARTS) -O2 -g $(2) $$(WARNINGS) -c $$< -o $$@
$$(SIM_KERNEL_TESTS:%=build/$(1)/c/%.o): build/$(1)/c/%.o: tests/%.c build/parts.h $$(TEST_HEADERS)
	@mkdir -p $$(@D)
	$$(CC) $$(PARTS) -O2 -g $(2) $$(TEST_WARNINGS) -include build/parts.h -c $$< -o $$@
$$(SIM_KERNEL_TESTS:%=build/$(1)/%): build/$(1)/%: build/$(1)/c/%.o build/$(1)/sim_kernels.o build/$(1)/cuda.o build/$(1)/simulator.a $$(or $$(SIM_LIBRARY),$$(PARTS_$(1)))
	$$(SIM_CXX) $(2) $(3) -rdynamic $$^ -Wl,--wrap=mirt__kernel_tables -Wl,--wrap=mirt__kernels_best -o $$@ -ldl $$(LDLIBS) $$(LDLIBS_$(1))
$$(SIM_C_PROGRAMS:%=build/$(1)/c/%.o): build/$(1)/c/%.o: $$$$(firstword $$$$(wildcard tests/sim/$$$$*.c tests/gpu/$$$$*.c tests/$$$$*.c)) build/parts.h $$(TEST_HEADERS) $$(wildcard tests/sim/*.h)
	@mkdir -p $$(@D)
	$$(CC) $$(PARTS) -O2 -g $(2) $$(TEST_WARNINGS) -include build/parts.h -c $$< -o $$@
$$(SIM_C_PROGRAMS:%=build/$(1)/%): build/$(1)/%: build/$(1)/c/%.o build/$(1)/cuda.o build/$(1)/simulator.a $$(or $$(SIM_LIBRARY),$$(PARTS_$(1)))
	$$(SIM_CXX) $(2) $(3) -rdynamic $$^ -o $$@ -ldl $$(LDLIBS) $$(LDLIBS_$(1))
endef
$(eval $(call SIM_LIBRARY_RULES,sim,,))
$(eval $(call SIM_LIBRARY_RULES,sim-asan,-fsanitize=address,))
$(eval $(call SIM_LIBRARY_RULES,sim-tsan,-fsanitize=thread,))
$(eval $(call SIM_LIBRARY_RULES,sim-coverage,,--coverage -fprofile-update=atomic))
$(eval $(call SIM_LIBRARY_RULES,sim-cover,,))
$(eval $(call SIM_LIBRARY_RULES,sim-access,,))
$(eval $(call SIM_LIBRARY_RULES,sim-contract,,))

# The program on simulated devices, and what stands for the machine in tests of a GPU's kernels.
SIM_OTHERS = test_program.sh test_launches.sh test_host_memory
build/sim/mirrortrain: $(CLI:cli/%.c=build/sim/cli/%.o) build/mirrortrain.o build/sim/cuda.o build/sim/simulator.a
	$(SIM_CXX) -rdynamic $^ -o $@ -ldl $(LDLIBS)
build/sim/cli/%.o: cli/%.c cli/cli.h cli/report.h mirrortrain.h mirrortrain_tcp.c
	@mkdir -p $(@D)
	$(CC) -std=c11 $(CFLAGS) -c $< -o $@
# Stands for NVIDIA's management library where LD_LIBRARY_PATH names its directory.
build/sim/nvml/libnvidia-ml.so.1: tests/sim/fake_nvml.c
	@mkdir -p $(@D)
	$(CC) -std=c11 -O1 $(TEST_WARNINGS) -fPIC -shared $< -o $@
build/sim/test_program.sh: tests/sim/test_program.sh build/sim/mirrortrain build/sim/nvml/libnvidia-ml.so.1
	ln -sf ../../tests/sim/test_program.sh $@
build/sim/test_launches.sh: tests/sim/test_launches.sh build/sim/launches
	ln -sf ../../tests/sim/test_launches.sh $@
build/sim/test_host_memory: tests/sim/test_host_memory.c tests/gpu/host_memory.c tests/tap.h
	$(CC) -std=c11 -D_GNU_SOURCE -O1 -g $(TEST_WARNINGS) $(CUDA_INCLUDE) -D__real_malloc=malloc -D__real_free=free \
		-D__real_realloc=realloc $< -o $@ $(LDLIBS)

# SEED:PROGRAM, or SEED:PROGRAM:DEVICES. Kernels and the simulator itself in a few orders, networks (SIM_MANY) in many.
SIM_MANY += test_training
SIM_MANY_SEEDS = $(shell seq 1 20)
export SIM_NO_STACK = $(GPU_KERNEL_TESTS)
SIM_PROGRAMS = $(sort $(filter-out test_access,$(SIM_TESTS)) $(SIM_KERNEL_TESTS) $(SIM_C_TESTS))
# SEEDS, TESTS
sim_runs = $(foreach test,$(2),$(foreach seed,$(or $($(test)_SEEDS),$(1)),$(seed):$(test)$(addprefix :,$($(test)_DEVICES))))
SIM_RUNS = $(call sim_runs,$(SIM_SEEDS),$(filter-out $(SIM_MANY),$(SIM_PROGRAMS))) $(call sim_runs,$(SIM_MANY_SEEDS),$(SIM_MANY))

# Those that sim-test runs with each access looked at; ACCESS_PROGRAMS="$(SIM_PROGRAMS)" takes all.
ACCESS_PROGRAMS = test_access test_multiply test_sums test_products test_depthwise test_kernels test_ops test_norm \
	test_conv_tiles test_storage test_augment
CONTRACT_PROGRAMS = $(filter-out test_sim,$(SIM_PROGRAMS))

# MIRT_TEST_SMALL asks for small shapes; sim-full has all of them, and more seeds.
SIM_SEEN = $(if $(CUDA_INCLUDE)$(wildcard /usr/include/cublas_v2.h /usr/local/include/cublas_v2.h),yes)
ifeq ($(SIM_SEEN),)
sim-test sim-full sim-asan sim-tsan sim-access sim-contract sim-planted sim-coverage:
	@echo "skipped: there are no headers of NVIDIA's; tests/sim/fetch_headers brings them"
else
sim-test:
	@$(MAKE) --no-print-directory sim-access
	@$(MAKE) --no-print-directory -j$(JOBS) $(SIM_PROGRAMS:%=build/sim/%) $(SIM_OTHERS:%=build/sim/%)
	@MIRT_TEST_SMALL=1 tests/sim/run_seeds $(JOBS) build/sim $(SIM_RUNS) $(SIM_OTHERS:%=0:%)

sim-full:
	@$(MAKE) --no-print-directory -j$(JOBS) $(SIM_PROGRAMS:%=build/sim/%)
	@SIM_LIMIT=3600 tests/sim/run_seeds $(JOBS) build/sim $(call sim_runs,$(shell seq 0 9),$(SIM_PROGRAMS))

# Bank conflicts, and bytes that several blocks of a launch touch. sim-test has the programs of single kernels.
sim-access:
	@$(MAKE) --no-print-directory -j$(JOBS) $(ACCESS_PROGRAMS:%=build/sim-access/%)
	@rm -rf build/sim-access/banks && mkdir -p build/sim-access/banks
	@MIRT_TEST_SMALL=1 MIRT_SIM_BANKS=build/sim-access/banks SIM_LIMIT=1200 \
		tests/sim/run_seeds $(JOBS) build/sim-access $(call sim_runs,1,$(ACCESS_PROGRAMS))
	@tests/run tests/sim/test_banks.py

# Kernels with products and sums fused, as nvcc compiles them: what must be bit-identical still is.
sim-contract:
	@$(MAKE) --no-print-directory -j$(JOBS) $(CONTRACT_PROGRAMS:%=build/sim-contract/%)
	@MIRT_TEST_SMALL=1 SIM_LIMIT=1200 tests/sim/run_seeds $(JOBS) build/sim-contract \
		$(call sim_runs,1 2,$(CONTRACT_PROGRAMS))

# Faults planted in src/cuda are found (tests/sim/planted.py). PLANTS: words of the descriptions of some.
sim-planted:
	@$(MAKE) --no-print-directory -j$(JOBS) build/sim/test_depthwise build/sim/test_products \
		build/sim-access/simulator.a build/sim-contract/simulator.a
	@CXX="$(SIM_CXX) -std=c++17 -O1 -w $(SIM_ARCH) $(CUDA_INCLUDE)" FLAGS="$(test_multiply_FLAGS)" JOBS=$(JOBS) \
		ACCESS_FLAGS="$(DEVICE_sim-access)" CONTRACT_FLAGS="$(DEVICE_sim-contract)" LIBS="-ldl $(LDLIBS)" \
		python3 tests/sim/planted.py $(PLANTS)

sim-asan:
	@$(MAKE) --no-print-directory -j$(JOBS) $(SIM_PROGRAMS:%=build/sim-asan/%)
	@MIRT_TEST_SMALL=1 ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 SIM_LIMIT=1200 \
		tests/sim/run_seeds $(JOBS) build/sim-asan $(call sim_runs,1,$(SIM_PROGRAMS))

sim-tsan:
	@$(MAKE) --no-print-directory -j$(JOBS) $(SIM_PROGRAMS:%=build/sim-tsan/%)
	@MIRT_TEST_SMALL=1 TSAN_OPTIONS=halt_on_error=1 SIM_LIMIT=7200 tests/sim/run_seeds $(JOBS) build/sim-tsan $(call sim_runs,1,$(SIM_PROGRAMS))

# Lines of src/cuda that sim-test reaches with its first two seeds, what is not about single kernels with one; what none
# did is in build/sim-coverage/*.txt.
sim-coverage:
	@rm -f build/sim-coverage/*.gcda
	@$(MAKE) --no-print-directory -j$(JOBS) $(SIM_PROGRAMS:%=build/sim-coverage/%)
	@MIRT_TEST_SMALL=1 tests/sim/run_seeds $(JOBS) build/sim-coverage $(call sim_runs,0 1,$(SIM_KERNEL_TESTS)) $(call sim_runs,0,$(filter-out $(SIM_KERNEL_TESTS),$(SIM_PROGRAMS)))
	@python3 tests/sim/coverage.py build/sim-coverage

endif

.PHONY: sim-test sim-full sim-asan sim-tsan sim-access sim-contract sim-planted sim-coverage
