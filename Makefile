# make               the command-line program, build/mirrortrain
# make test          all tests that a change must pass; the last line is "N passed, N failed"
# make smoke-test    docs/validation-checklist.md, in less than half a minute
# make header        writes mirrortrain.h and mirrortrain.c from src/
# make check-header  fails if they are not what src/ gives
# make examples      compiles each example by its own first line, and runs it; installs the library, which a project uses
# make sanitize      the tests under ASan and UBSan (make asan), and under TSan (make tsan)
# make coverage      lines and branches of src/ that the tests reach; needs gcc, gcov and python3
# make matrix        all compilers and languages, exported symbols, builds without parts of the library
# make cross         compiles for macOS, FreeBSD and musl with zig (pip install ziglang)
# make test-arm64    the kernels and operations for arm64, emulated
# make test-long     what takes too long for every change; wants an idle machine, as it measures
# make test-busy     make test while other processes keep the cores busy (RUNS times, 5) and with every wake-up of a
#                   thread delayed; part of test-long, takes more than an hour
# make kill-test    a run is killed at KILLS random moments and goes on
# make fuzz          damaged files, of each kind for FUZZ_SECONDS or FUZZ_RUNS, and FUZZ_SEQUENCES of random calls; needs clang
#                    FUZZ="csv log" runs these targets alone; fuzz-merge adds what was found to tests/corpus
# make fuzz-planted  every fuzz target finds a fault planted behind the last check of its parser; fuzz-coverage: lines of the parsers
# make mutants       errors planted in reduction, splitting, scaling, optimizers and step, of which the tests must find 80 %;
#                   FILES="run.c step.c" takes these alone, LIMIT so many errors of each file, which SEED draws, and
#                   AGAIN=LOG those that survived an earlier run
# make memcheck      a small tier of tests and all corpora under MemorySanitizer; needs clang
# make accuracy      bfloat16 trains as well as float32: make accuracy PEER_PYTHON=/path/to/python
# make accuracy-photos  the program fine-tunes MobileNetV2 on photographs to the accuracy that Keras reaches
# make onnx-test     models saved as ONNX beside ONNX Runtime: make onnx-test PEER_PYTHON=/path/to/python
# make parity        networks in training beside float64 Keras: make parity PEER_PYTHON=/path/to/python
# make differential  MODELS models (300) drawn from SEED (0) beside float64 Keras, with metrics, schedules, images and
#                   directories: make differential PEER_PYTHON=/path/to/python
#                   differential-planted: errors planted in the library are found
# make convert-test  weights from Keras, torchvision and timm and back: make convert-test PEER_PYTHON=/path/to/python:/another
# make same-bits     weights after training, beside those of another commit: make same-bits BASE=COMMIT
# make sim-test      the GPU backend on a simulated CUDA runtime; needs NVIDIA's headers (tests/sim/fetch_headers), no GPU
#                   sim-full, sim-asan, sim-tsan: more of it; sim-coverage: lines of src/cuda that it reaches;
#                   sim-access: bank conflicts, and bytes that several blocks of a launch touch; sim-contract: the
#                   same with products and sums fused; sim-planted: faults planted in kernels are found
# make gpu-test      with a GPU: kernels beside the CPUs', training, NCCL, compute-sanitizer, in ten minutes
# make gpu-bench     with a GPU: ours beside PyTorch, in ten minutes: make gpu-bench PEER_PYTHON=/path/to/python
# make gpu-hour      build/gpu-hour: prebuilt programs and a script for the first hour on a GPU; needs nvcc
# make cuda          the GPU backend with nvcc, for old and new GPUs, and the examples with it; tables of warps, tensor
#                   instructions and cuBLAS in build/cuda; cuda-speed: its CPU code beside cc -O2
# make bench         ours beside TensorFlow and PyTorch: make bench PEER_PYTHON=/path/to/python:/another
#                   BENCH="mobilenet_v2 resnet50" runs these alone, BENCH_FLAGS=--quick less of each; BENCH=latency:
#                   one image, beside LiteRT and ONNX Runtime as well
# make bench-imagenet  directories of 1,281,167 photographs, and tar shards: make bench-imagenet DIRECTORY=DIR PEER_PYTHON=...
# make mpi           build/mirrortrain-openmpi.so and -mpich.so, which the program needs under mpirun, for what is installed
# make install       library, header, program and man page below PREFIX (packaging/install.mk); make uninstall
#
# Every variable may be set on the command line: make CC=clang CFLAGS="-O2 -g".

comma = ,
CC = cc
CFLAGS = -O2
LDLIBS = -lm -lpthread
JOBS = 2
# Seconds after which a test counts as hung.
TEST_LIMIT = 300
PEER_PYTHON = python3
BENCH =
BENCH_FLAGS =
FUZZ_CC = clang
FUZZ_RUNS =
FUZZ_SECONDS = $(if $(FUZZ_RUNS),0,60)
FUZZ_SEQUENCES = 10000
FUZZ = model image resume cache csv gzip log tar
KILLS = 1000
MODELS = 300
SEED = 0
LIMIT = 0
FILES =
PREFIX = /usr/local

WARNINGS = -Wall -Wextra -Wpedantic -Wshadow -Werror
# Tests may build parts of the library, and leave others unused.
TEST_WARNINGS = $(WARNINGS) -Wno-unused-function
# Sanitizers want a compiler that has them; gcc and clang do.
SANITIZE_CC = $(CC)
ARM64_CC = aarch64-linux-gnu-gcc
ARM64_RUN = qemu-aarch64 -L /usr/aarch64-linux-gnu

TESTS = $(patsubst tests/%.c,%,$(wildcard tests/test_*.c))
LONG_TESTS = $(patsubst tests/%.c,%,$(wildcard tests/long_*.c))
# What runs on several threads; the others would only take longer.
TSAN_TESTS = $(filter-out test_base test_interrupt test_scaling_model test_checkpoints test_crafted test_power_loss test_archive test_half test_tiled_reads test_models test_profile test_memory test_conv_tiles test_depthwise test_winograd test_storage test_custom test_callback_faults test_events test_event_faults test_files test_faults test_formats test_format_faults test_function_faults test_function_misuse test_golden test_gradients \
	test_graphs test_group test_hooks test_hostile test_hostile_members test_images test_image_faults test_augment_faults test_json test_augment \
	test_augment_layers test_png test_functional test_kernels test_layer_faults test_layer_misuse test_layer_names test_layers test_limits test_descriptions test_recording test_passes test_patience test_full test_resume_models test_no_threads test_misuse test_mnist_parity \
	test_model test_models test_norm test_odd_files test_op_refusals test_save test_tensors test_transfer \
	test_segment test_fused_law test_costs test_verdict_words,$(TESTS))
ARM64_TESTS = $(filter test_kernels test_half test_depthwise test_storage test_ops test_tensors test_golden test_team test_tree \
	test_augment test_augment_layers,$(TESTS))
TEST_HEADERS = mirrortrain.h build/decoder $(wildcard tests/*.h tests/golden/*.h)
CLI = $(wildcard cli/*.c)

all: build/mirrortrain

build/mirrortrain: $(CLI) cli/cli.h cli/report.h cli/scaling.h cli/parallelism.h mirrortrain_tcp.c build/mirrortrain.o
	$(CC) -std=c11 $(CFLAGS) $(CLI) build/mirrortrain.o -o $@ $(LDLIBS) -ldl

# Says which stb_image the compiler finds, as src/images/decode.c looks for it; changes only when that does, so that
# what contains a decoder is compiled again when one was added, removed or replaced.
FIND_DECODER = '\#if __has_include(<stb/stb_image.h>)\n\#include <stb/stb_image.h>\n' \
	'\#elif __has_include(<stb_image.h>)\n\#include <stb_image.h>\n\#endif\n'
build/decoder: FORCE
	@mkdir -p build
	@own=$@.$$$$; printf '%b' $(FIND_DECODER) | $(CC) $(CFLAGS) -DSTB_IMAGE_IMPLEMENTATION -w -E -x c - >$$own.found 2>/dev/null; \
	if grep -q stbi_load $$own.found; then cksum <$$own.found >$$own; else echo none >$$own; fi; rm -f $$own.found; \
	if cmp -s $$own $@; then rm -f $$own; else mv $$own $@; \
	if grep -q none $@; then \
	echo "no stb_image.h: no photographs can be read; apt-get install libstb-dev, then make"; fi; fi
# ccache's direct mode does not see a header that was added.
build/mirrortrain.o build/%/parts/images/decode.o: export CCACHE_NODIRECT = 1
FORCE:

build/mirrortrain.o: mirrortrain.c mirrortrain.h build/decoder
	@mkdir -p build
	$(CC) -std=c11 $(CFLAGS) -DMIRRORTRAIN_MPI -c mirrortrain.c -o $@

# The header is committed, so nothing but these two needs src/.
header: build/amalgamate
	build/amalgamate src .

check-header: build/amalgamate
	build/amalgamate --check src .

build/amalgamate: tools/amalgamate.c
	@mkdir -p build
	$(CC) -std=c11 -O1 $(WARNINGS) tools/amalgamate.c -o $@

test:
	@$(MAKE) --no-print-directory -j$(JOBS) build/mirrortrain build/tests/onnx_models $(TESTS:%=build/tests/%)
	@CC="$(CC)" tests/run -t $(TEST_LIMIT) -j $(JOBS) tests/run_snippets tests/check_api.sh tests/check_language.py \
		$(filter-out $(MEASURING),$(wildcard tests/test_*.sh tests/test_*.py)) $(TESTS:%=build/tests/%) -- $(MEASURING)

# Scripts that compare times need the cores for themselves.
MEASURING = tests/test_doctor.sh tests/test_mpi.sh tests/test_scaling.sh

# Tests of other numbers in place of floats or of how the header is set up are compiled with all of the header; the others with src/
# compiled file by file, once, so that a test may put functions of its own in place of the system's. A test that looks into a file of
# src/ includes it.
WHOLE = $(patsubst tests/%.c,%,$(shell grep -lE '^.define (MIRRORTRAIN_(MALLOC|OPEN|STATIC|NO_THREADS)|MIRT__REAL_DOUBLE)' tests/*.c))
SOURCES = $(shell sed -n 's|^\([a-z].*\)\.c$$|\1|p' src/FILES)
PARTS = -std=c11 -D_POSIX_C_SOURCE=200809L -DMIRRORTRAIN_SPLIT_BUILD
# Tests of the whole header wait for conditions through hooks too, which MIRT_TEST_WAKE_DELAY delays (tests/hooks.h).
LATE = -Dpthread_cond_wait=hook_wait -Dpthread_cond_timedwait=hook_timedwait

build/parts.h: src/FILES
	@mkdir -p build
	@{ sed -n 's|^\([a-z].*\.h\)$$|#include "../src/\1"|p' src/FILES; echo '#define MIRRORTRAIN_IMPLEMENTED'; } >$@

# NAME, COMPILER, FLAGS: the rules of build/NAME/TEST. The vectors' kernels are half of the time to compile, with sanitizers a minute;
# tests that take the whole header are not about them, and do without.
define TEST_RULES
build/$(1)/parts/%.o: src/%.c tests/hooks.h
	@mkdir -p $$(@D)
	$(2) $$(PARTS) $(3) -Wmissing-prototypes -include tests/hooks.h -MMD -MP -c $$< -o $$@
build/$(1)/parts/images/decode.o: build/decoder
build/$(1)/parts/hooks.o: tests/hooks.c tests/hooks.h
	@mkdir -p $$(@D)
	$(2) $$(PARTS) $(3) -c $$< -o $$@
build/$(1)/parts.a: $$(SOURCES:%=build/$(1)/parts/%.o) build/$(1)/parts/hooks.o
	@rm -f $$@
	@ar rcs $$@ $$^
$$(WHOLE:%=build/$(1)/%): build/$(1)/%: tests/%.c build/$(1)/parts/hooks.o $$(TEST_HEADERS)
	@mkdir -p $$(@D)
	$(2) -std=c11 $(3) $(LATE) -DMIRRORTRAIN_NO_SIMD $$< build/$(1)/parts/hooks.o -o $$@ $$(LDLIBS)
build/$(1)/%: tests/%.c build/parts.h build/$(1)/parts.a $$(TEST_HEADERS)
	$(2) $$(PARTS) $(3) -include build/parts.h $$< build/$(1)/parts.a -o $$@ $$(LDLIBS)
build/$(1)/test_segment: examples/segment.c
build/$(1)/test_interrupt: cli/stop.c cli/cli.h
build/$(1)/test_tcp: $$(wildcard src/tcp/*)
build/$(1)/test_scaling_model: cli/scaling_model.c cli/shares.c cli/scaling.h cli/cli.h
build/$(1)/test_parallelism: cli/parallel_replay.c cli/parallel_record.c cli/times.c cli/parallelism.h cli/cli.h
# The program with hooks, for MIRT_TEST_WAKE_DELAY.
build/$(1)/mirrortrain: $$(CLI) cli/cli.h cli/report.h cli/scaling.h cli/parallelism.h mirrortrain_tcp.c build/$(1)/parts.a
	$(2) -std=c11 $(3) $$(CLI) build/$(1)/parts.a -o $$@ $$(LDLIBS) -ldl
-include $$(wildcard build/$(1)/parts/*/*.d)
endef
# NAME, COMPILER, FLAGS, LIBRARY: the target for logs of runs, which the program reads.
define LOG_RULES
build/$(1)/fuzz_log: tests/fuzz_log.c $$(CLI) cli/cli.h cli/report.h cli/scaling.h cli/parallelism.h $(4) $$(TEST_HEADERS)
	@mkdir -p $$(@D)
	$(2) -std=c11 $(3) -Dmain=program_main -c cli/main.c -o build/$(1)/program_main.o
	$(2) -std=c11 $(3) $$< $$(filter-out cli/main.c,$$(CLI)) build/$(1)/program_main.o $(4) -o $$@ $$(LDLIBS) -ldl
endef
ASAN_FLAGS = -O1 -g -fsanitize=address$(comma)undefined -fno-sanitize-recover=all
FUZZ_FLAGS = -O2 -g -DFUZZER -DMIRRORTRAIN_NO_SIMD -Wno-pass-failed -fsanitize=fuzzer$(comma)address$(comma)undefined -fno-sanitize-recover=undefined -fsanitize-ignorelist=tests/fuzz_ignore.txt
MSAN_FLAGS = -O1 -g -DMIRRORTRAIN_NO_SIMD -Wno-pass-failed -fsanitize=memory -fno-omit-frame-pointer -fno-sanitize-recover=all
COVER_FLAGS = -O0 -g -DMIRRORTRAIN_NO_SIMD --coverage -fprofile-update=atomic

$(eval $(call TEST_RULES,tests,$(CC),$(CFLAGS) -g $(TEST_WARNINGS)))
$(eval $(call TEST_RULES,asan,$(SANITIZE_CC),$(ASAN_FLAGS)))
$(eval $(call TEST_RULES,tsan,$(SANITIZE_CC),-O1 -g -fsanitize=thread))
$(eval $(call TEST_RULES,msan,$(FUZZ_CC),$(MSAN_FLAGS)))
$(eval $(call TEST_RULES,cover,gcc,$(COVER_FLAGS)))
# tests/mutants.py links one changed object of src/ before parts.a. Fewer vectors compile faster; their text is the same.
MUTANT_FLAGS = -O2 -DMIRRORTRAIN_NO_SIMD -w
$(eval $(call TEST_RULES,mutants,$(CC),$(MUTANT_FLAGS)))
build/mutants/%.o: tests/%.c build/parts.h $(TEST_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(PARTS) $(MUTANT_FLAGS) -include build/parts.h -c $< -o $@
$(eval $(call TEST_RULES,arm64,$(ARM64_CC),-O2 $(TEST_WARNINGS)))
$(eval $(call TEST_RULES,fuzz,$(FUZZ_CC),$(FUZZ_FLAGS)))
$(eval $(call LOG_RULES,tests,$(CC),$(CFLAGS) -g $(TEST_WARNINGS),build/tests/parts.a))
$(eval $(call LOG_RULES,asan,$(SANITIZE_CC),$(ASAN_FLAGS),build/asan/parts.a))
$(eval $(call LOG_RULES,msan,$(FUZZ_CC),$(MSAN_FLAGS),build/msan/parts.a))
$(eval $(call LOG_RULES,cover,gcc,$(COVER_FLAGS),build/cover/parts.a))
$(eval $(call LOG_RULES,fuzz,$(FUZZ_CC),$(FUZZ_FLAGS),build/fuzz/parts.a))
$(eval $(call LOG_RULES,planted,$(FUZZ_CC),$(FUZZ_FLAGS) -DFUZZ_PLANTED,build/fuzz/parts.a))

build/planted/%: tests/%.c build/parts.h build/fuzz/parts.a $(TEST_HEADERS)
	@mkdir -p $(@D)
	$(FUZZ_CC) $(PARTS) $(FUZZ_FLAGS) -DFUZZ_PLANTED -include build/parts.h $< build/fuzz/parts.a -o $@ $(LDLIBS)

build/tests/long_verdict: tests/test_verdict.c
build/tests/long_watchdog: tests/test_watchdog.c
build/tests/long_suspended: tests/test_suspended.c

build/checklist: examples/checklist.c mirrortrain.h
	@mkdir -p build
	$(CC) $(CFLAGS) $< -o $@ $(LDLIBS)

smoke-test:
	@$(MAKE) --no-print-directory -j$(JOBS) build/mirrortrain build/checklist
	@tests/run -t 300 tests/smoke_test.sh

# Processes under mpirun, in several layouts.
test-layouts:
	@tests/run -t 900 tests/check_layouts.sh

test-long:
	@$(MAKE) --no-print-directory -j$(JOBS) build/mirrortrain $(LONG_TESTS:%=build/tests/%)
	@tests/run -t 3600 tests/check_size.sh tests/check_caller_speed.sh tests/check_stb_units.sh $(LONG_TESTS:%=build/tests/%)
	@LAYOUTS="1:1 4:2 5:2 2:1:5,3 3:1:1,1,6" tests/run -t 3600 tests/check_layouts.sh
	@if command -v mpicc >/dev/null; then tools/build_mpi.sh build; fi
	@tests/run -t 3600 tests/kill_processes.py
	@MPI=tcp LAYOUTS="2:1 3:2 5:1 4:1:3,1,2,2" tests/run -t 3600 tests/check_layouts.sh
	@MPI=mpich LAYOUTS="1:1 1:2 2:1 2:2 3:1 3:2 4:1 4:2 5:1 5:2 4:1:3,1,2,2 2:2:1,3" tests/run -t 3600 tests/check_layouts.sh
	@$(MAKE) --no-print-directory asan tsan matrix
	@$(MAKE) --no-print-directory memcheck cross
	@WHOLE=1 tests/run -t 3600 tests/run_snippets
	@CUDA_SECONDS=180 QUICK=1 tests/run -t 3600 tests/check_cuda.sh
	@$(MAKE) --no-print-directory differential
	@$(MAKE) --no-print-directory mutants LIMIT=20
	@$(MAKE) --no-print-directory sim-access ACCESS_PROGRAMS="$(SIM_PROGRAMS)"
	@$(MAKE) --no-print-directory sim-contract sim-planted
	@$(MAKE) --no-print-directory test-busy

# Seven runs of make test.
test-busy: build/tests/mirrortrain
	@MAKE="$(MAKE)" CC="$(CC)" tests/run -t 21600 tests/busy

kill-test: build/mirrortrain
	@python3 tests/test_kill.py $(KILLS)

# MIRT_TEST_SMALL asks the tests for small shapes only.
sanitize: asan tsan

# QUICK=1: without tests that take the whole header or the vectors' primitives, which need a minute each to compile, and
# those that take the longest.
ASAN_LONG = $(WHOLE) test_models test_transfer test_servers test_tcp test_winograd test_conv_tiles test_group \
	$(patsubst tests/%.c,%,$(shell grep -l 'src/kernels/simd.c' tests/test_*.c))
ASAN_TESTS = $(if $(QUICK),$(filter-out $(ASAN_LONG),$(TESTS)),$(TESTS))
asan:
	@$(MAKE) --no-print-directory -j$(JOBS) $(ASAN_TESTS:%=build/asan/%) $(FUZZ:%=build/asan/fuzz_%)
	@MIRT_TEST_SMALL=1 ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
		tests/run -t 400 $(ASAN_TESTS:%=build/asan/%) tests/fuzz_seeds.sh

# QUICK=1: without those that take the longest.
TSAN_QUICK = $(if $(QUICK),$(filter-out test_separate_devices test_fused_networks test_entry \
	test_servers test_together_faults,$(TSAN_TESTS)),$(TSAN_TESTS))
tsan:
	@$(MAKE) --no-print-directory -j$(JOBS) $(TSAN_QUICK:%=build/tsan/%)
	@MIRT_TEST_SMALL=1 TSAN_OPTIONS=halt_on_error=1 tests/run -t 400 $(TSAN_QUICK:%=build/tsan/%)

# Scripts that run the command-line program that the environment variable MIRRORTRAIN names.
COVERAGE_SCRIPTS = fuzz_seeds.sh test_cli.sh test_doctor.sh test_runs.sh test_graph_svg.py test_planted.py \
	test_predict.py test_report.py test_signals.py test_trace.py
# With NVIDIA's headers (tests/sim/sim.mk), what runs GPUs' side of src/ without being about single kernels.
COVERAGE_SIMULATED = $(if $(SIM_SEEN),$(addprefix sim/,test_float16 test_not_finite test_training test_ahead test_corners \
	test_services test_gpu_faults))

# What no test reached is in build/coverage/*.txt.
coverage: header
	@JOBS=$(JOBS) tests/coverage.py build/coverage $(TESTS) $(COVERAGE_SCRIPTS) $(COVERAGE_SIMULATED)

# QUICK=1: without nvcc and newer processors, and stb_image beside the header with the compiler of make test alone.
matrix:
	@QUICK="$(QUICK)" STB_COMPILERS="g++ clang clang++" tests/run -t 1800 tests/check_matrix.sh tests/check_builds.sh \
		$(if $(QUICK),,tests/test_stb_unit.sh)

# QUICK=1: three of them with the whole library.
examples:
	@QUICK="$(QUICK)" tests/run -t 900 tests/check_examples.sh tests/check_packages.sh tests/check_cross.sh

cross:
	@tests/run -t 3600 tests/check_cross.sh

test-arm64:
	@$(MAKE) --no-print-directory -j$(JOBS) $(ARM64_TESTS:%=build/arm64/%)
	@MIRT_TEST_SMALL=1 tests/run -t 600 -r "$(ARM64_RUN)" $(ARM64_TESTS:%=build/arm64/%)


# What writes files to begin with.
FUZZ_SEEDS = build/tests/test_hostile build/tests/test_images build/tests/fuzz_resume build/tests/fuzz_tar

fuzz: $(FUZZ:%=build/fuzz/fuzz_%) $(FUZZ_SEEDS) build/asan/test_api_fuzz
	@FUZZ="$(FUZZ)" tests/fuzz.sh run $(FUZZ_SECONDS) $(FUZZ_RUNS)
	build/asan/test_api_fuzz $(FUZZ_SEQUENCES) `date +%s`

fuzz-planted: $(FUZZ:%=build/planted/fuzz_%) $(FUZZ_SEEDS)
	@FUZZ="$(FUZZ)" tests/fuzz.sh planted

fuzz-merge: $(FUZZ:%=build/fuzz/fuzz_%) $(FUZZ_SEEDS)
	@FUZZ="$(FUZZ)" tests/fuzz.sh merge

# Files of src/ and cli/ that read what others may have written, by the corpora and these tests.
PARSER_TESTS = test_base test_json test_crafted test_hostile test_data test_arrays test_directory test_tar \
	test_split_directories test_images test_resume test_checkpoints test_callbacks test_events test_formats test_format_faults \
	test_save test_workers test_augment_layers test_optimizers
fuzz-coverage: $(FUZZ:%=build/cover/fuzz_%) $(PARSER_TESTS:%=build/cover/%)
	@tests/fuzz_coverage.sh $(PARSER_TESTS)

# A small tier: what reads and writes files, and training.
MEMORY_TESTS = test_base test_json test_formats test_format_faults test_hostile test_data test_arrays test_directory test_tar \
	test_split_directories test_checkpoints test_save test_callbacks test_events test_training test_custom test_metrics
# FILES="run.c optimizers.c": these alone; LIMIT: at most so many mutants of each file, which SEED draws.
mutants:
	@CC="$(CC)" MUTANT_FLAGS="$(PARTS) $(filter-out -w,$(MUTANT_FLAGS))" SEED=$(SEED) LIMIT=$(LIMIT) JOBS=$(JOBS) \
		AGAIN=$(AGAIN) python3 tests/mutants.py $(FILES)

memcheck:
	@$(MAKE) --no-print-directory -j$(JOBS) $(FUZZ:%=build/msan/fuzz_%) $(MEMORY_TESTS:%=build/msan/%)
	@MIRT_TEST_SMALL=1 MSAN_OPTIONS=poison_in_dtor=1 FUZZ_BUILD=msan tests/run -t 600 $(MEMORY_TESTS:%=build/msan/%) tests/fuzz_seeds.sh

# MIRT_CATSDOGS_DIR and MIRT_WEIGHTS_DIR say where photographs and weights are; PARITY: some of the networks.
accuracy: build/tests/accuracy_networks
	@$(PEER_PYTHON) tests/accuracy.py build/tests/accuracy_networks

accuracy-photos: build/mirrortrain
	@python3 tests/accuracy_photos.py build/mirrortrain

ONNX_NETWORKS = mnist:28 mobilenet_v2:224 mobilenet_v3_small:224 mobilenet_v3_large:224 resnet18:224 resnet50:224 \
	vgg16:64 efficientnet_v2_b0:224 efficientnet_v2_m:224
onnx-test: build/tests/onnx_models
	@$(PEER_PYTHON) tests/test_onnx.py
	@$(PEER_PYTHON) tests/test_onnx.py "$(ONNX_NETWORKS)"

parity: build/tests/parity_networks
	@$(PEER_PYTHON) tests/parity.py build/tests/parity_networks $(PARITY)

# The C side in several files; MODELS and SEED choose what is drawn.
build/tests/differential: $(wildcard tests/differential/*.c) tests/differential/runner.h build/parts.h \
		build/tests/parts.a mirrortrain.h
	$(CC) $(PARTS) $(CFLAGS) -g $(TEST_WARNINGS) -include build/parts.h $(filter %.c,$^) build/tests/parts.a \
		-o $@ $(LDLIBS)

differential: build/tests/differential
	@$(PEER_PYTHON) tests/differential.py --models $(MODELS) --seed $(SEED) build/tests/differential

differential-planted: build/tests/differential
	@CC="$(CC)" CFLAGS="$(CFLAGS)" $(PEER_PYTHON) tests/differential.py --planted build/tests/differential

convert-test: build/tests/predict_file
	@for python in $(subst :, ,$(PEER_PYTHON)); do $$python tests/check_convert.py build/tests/predict_file || exit 1; done

# Trained weights of BASE and of this tree, on CPUs and simulated GPUs; STEPS and GPU_STEPS say for how long.
BASE = HEAD
same-bits:
	@python3 tests/same_bits.py $(BASE)

build/pipeline: bench/pipeline.c bench/photos.h build/mirrortrain.o
	$(CC) -std=c11 $(CFLAGS) $(WARNINGS) $< build/mirrortrain.o -o $@ $(LDLIBS)

build/pipeline_turbojpeg: bench/pipeline.c bench/photos.h mirrortrain.c mirrortrain.h
	$(CC) -std=c11 $(CFLAGS) $(WARNINGS) -DMIRRORTRAIN_TURBOJPEG bench/pipeline.c mirrortrain.c -o $@ -lturbojpeg $(LDLIBS)

build/latency: bench/latency.c build/mirrortrain.o
	$(CC) -std=c11 $(CFLAGS) $(WARNINGS) $< build/mirrortrain.o -o $@ $(LDLIBS)

bench: build/mirrortrain build/pipeline build/latency $(if $(wildcard /usr/include/turbojpeg.h /usr/local/include/turbojpeg.h),build/pipeline_turbojpeg)
	PEER_PYTHON="$(PEER_PYTHON)" python3 bench/bench.py $(BENCH_FLAGS) $(BENCH)

build/imagenet: bench/imagenet.c bench/photos.h build/mirrortrain.o
	$(CC) -std=c11 $(CFLAGS) $(WARNINGS) $< build/mirrortrain.o -o $@ $(LDLIBS)

# DIRECTORY gets 1,281,167 links, unless it has them.
bench-imagenet: build/imagenet
	PEER_PYTHON="$(PEER_PYTHON)" python3 bench/imagenet.py $(BENCH_FLAGS) $(DIRECTORY)

include tests/sim/sim.mk
include tests/gpu/gpu.mk

cuda:
	@tests/run -t 2100 tests/check_cuda.sh

cuda-speed: build/mirrortrain
	@if command -v nvcc >/dev/null; then python3 bench/nvcc.py; else echo "cuda-speed: skipped, no nvcc"; fi

mpi:
	@CFLAGS="$(CFLAGS)" tools/build_mpi.sh build

include packaging/install.mk

clean:
	rm -rf build

.PHONY: FORCE all onnx-test cross mpi cuda cuda-speed header check-header test kill-test smoke-test test-long test-busy test-layouts \
	sanitize asan tsan coverage matrix examples test-arm64 fuzz fuzz-planted fuzz-merge fuzz-coverage memcheck \
	mutants parity differential differential-planted accuracy accuracy-photos convert-test same-bits bench bench-imagenet \
	install uninstall symbols \
	clean
