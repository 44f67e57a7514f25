# With a GPU at hand: one command each, within ten minutes. GPU_ARCH may name another one than the machine's.
# Objects that were made elsewhere are used.
GPU_ARCH = native
NVCC = nvcc
# Where cuBLAS and NCCL are, found out once.
GPU_COMPILE = $$(sed -n 1p build/gpu/libraries)
GPU_LINK = $$(sed -n 2p build/gpu/libraries)
GPU_KERNEL_TESTS = test_kernels test_ops test_storage test_depthwise test_conv_tiles
GPU_PROGRAMS = $(GPU_KERNEL_TESTS:%=build/gpu/%) build/gpu/test_gpu build/gpu/nccl_pair build/gpu/selftest

# Changes if the machine's libraries do.
build/gpu/libraries: tests/gpu/library_flags FORCE
	@mkdir -p $(@D)
	@tests/gpu/library_flags $(NVCC) >$@.new && if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
build/gpu/cuda.o: mirrortrain_cuda.cu mirrortrain.h build/gpu/libraries
	@mkdir -p $(@D)
	$(NVCC) -std=c++17 -O2 -lineinfo -arch=$(GPU_ARCH) $(GPU_COMPILE) -c $< -o $@
build/gpu/sim_kernels.o: tests/sim/sim_kernels.c build/parts.h mirrortrain.h
	@mkdir -p $(@D)
	$(CC) $(PARTS) -O2 -g $(WARNINGS) -c $< -o $@
build/gpu/host_memory.o: tests/gpu/host_memory.c
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_DEFAULT_SOURCE -O2 -g -Wall -Wextra -Wshadow -Werror $(CUDA_INCLUDE) -c $< -o $@
$(GPU_KERNEL_TESTS:%=build/gpu/c/%.o): build/gpu/c/%.o: tests/%.c build/parts.h $(TEST_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(PARTS) -O2 -g $(TEST_WARNINGS) -include build/parts.h -c $< -o $@
build/gpu/c/test_gpu.o: tests/gpu/test_gpu.c build/parts.h $(TEST_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(PARTS) -O2 -g $(TEST_WARNINGS) -include build/parts.h -c $< -o $@
$(GPU_KERNEL_TESTS:%=build/gpu/%): build/gpu/%: build/gpu/c/%.o build/gpu/sim_kernels.o build/gpu/host_memory.o build/gpu/cuda.o build/tests/parts.a
	$(SIM_CXX) -no-pie -rdynamic $^ -Wl,--wrap=mirt__kernel_tables -Wl,--wrap=mirt__kernels_best -Wl,--wrap=malloc -Wl,--wrap=calloc \
		-Wl,--wrap=realloc -Wl,--wrap=free -o $@ $(GPU_LINK) -ldl $(LDLIBS)
build/gpu/test_gpu: build/gpu/c/test_gpu.o build/gpu/cuda.o build/tests/parts.a
	$(SIM_CXX) -rdynamic $^ -o $@ $(GPU_LINK) -ldl $(LDLIBS)
build/gpu/nccl_pair: tests/gpu/nccl_pair.cu build/gpu/libraries
	@mkdir -p $(@D)
	$(NVCC) -std=c++17 -arch=$(GPU_ARCH) $(GPU_COMPILE) -c $< -o $@.o
	$(SIM_CXX) $@.o -o $@ $(GPU_LINK)
build/gpu/selftest: examples/selftest.c mirrortrain.h build/gpu/cuda.o
	$(CC) -O2 $(TEST_WARNINGS) $< build/gpu/cuda.o -o $@ $(GPU_LINK) -ldl -lstdc++ $(LDLIBS)
build/gpu/mirrortrain: $(CLI) cli/cli.h cli/report.h build/mirrortrain.o build/gpu/cuda.o
	$(SIM_CXX) -rdynamic $(CLI:cli/%.c=build/gpu/cli/%.o) build/mirrortrain.o build/gpu/cuda.o -o $@ $(GPU_LINK) -ldl $(LDLIBS)
$(CLI:cli/%.c=build/gpu/cli/%.o): build/gpu/cli/%.o: cli/%.c cli/cli.h cli/report.h mirrortrain.h
	@mkdir -p $(@D)
	$(CC) -std=c11 $(CFLAGS) -c $< -o $@
build/gpu/mirrortrain: $(CLI:cli/%.c=build/gpu/cli/%.o)

gpu-test:
	@tests/gpu/run_all "$(MAKE)" $(GPU_PROGRAMS)

# PEER_PYTHON: an interpreter with PyTorch for this GPU (python3); without, ours alone. GPU_LIMIT: seconds for it all.
gpu-bench:
	@began=$$(date +%s); command -v $(NVCC) >/dev/null || { echo "gpu-bench: skipped, no nvcc"; exit 0; }; \
	nvidia-smi -L 2>/dev/null | grep -q GPU || { echo "gpu-bench: skipped, nvidia-smi knows no GPU"; exit 0; }; \
	$(MAKE) --no-print-directory -j$(or $(GPU_JOBS),4) build/gpu/mirrortrain && \
	python3 bench/gpu.py --peer-python "$(or $(PEER_PYTHON),python3)" --limit $$(($${GPU_LIMIT:-560} - ($$(date +%s) - began)))

# What the first hour on a GPU needs, in one folder: prebuilt programs, the sources, and a script of four stages.
gpu-hour:
	@command -v $(NVCC) >/dev/null || { echo "gpu-hour: skipped, no nvcc"; exit 0; }; \
	$(MAKE) --no-print-directory -j$(JOBS) build/gpu/libraries build/gpu/sim_kernels.o build/gpu/host_memory.o \
		$(GPU_KERNEL_TESTS:%=build/gpu/c/%.o) build/gpu/c/test_gpu.o build/tests/parts.a build/mirrortrain.o \
		$(CLI:cli/%.c=build/gpu/cli/%.o) && \
	tests/gpu/make_hour "$(NVCC)" "$(SIM_CXX)" "$(GPU_KERNEL_TESTS)" "$(CLI:cli/%.c=build/gpu/cli/%.o)" "$(LDLIBS)"

.PHONY: gpu-test gpu-bench gpu-hour
