# make install: library, header, program and man page below PREFIX, with what pkg-config and CMake need to find them.
# make uninstall removes the same. DESTDIR: a directory in front of PREFIX, for packages.

VERSION = $(shell sed -n 's/^.define MIRT_VERSION_STRING "\(.*\)"/\1/p' mirrortrain.h)
SOVERSION = 0
PACKAGE = build/package

$(PACKAGE)/mirrortrain.o: mirrortrain.c mirrortrain.h build/decoder
	@mkdir -p $(@D)
	$(CC) -std=c11 $(CFLAGS) -fPIC -fvisibility=hidden -DMIRRORTRAIN_SHARED -DMIRRORTRAIN_MPI -c $< -o $@

$(PACKAGE)/libmirrortrain.a: $(PACKAGE)/mirrortrain.o
	@rm -f $@
	ar rcs $@ $<

$(PACKAGE)/libmirrortrain.so: $(PACKAGE)/mirrortrain.o
	$(CC) -shared -Wl,-soname,libmirrortrain.so.$(SOVERSION) $< -o $@ $(LDLIBS)

$(PACKAGE)/mirrortrain.1: packaging/man_page.sh build/mirrortrain
	@mkdir -p $(@D)
	packaging/man_page.sh build/mirrortrain >$@

$(PACKAGE)/%: packaging/%.in mirrortrain.h FORCE
	@mkdir -p $(@D)
	@sed 's|@CMAKE_INSTALL_PREFIX@|$(PREFIX)|; s|@PROJECT_VERSION@|$(VERSION)|' $< >$@

# SOURCE:DIRECTORY below PREFIX. Engines and the GPU backend are compiled with the program that uses them.
INSTALLED = mirrortrain.h:include mirrortrain_cuda.cu:share/mirrortrain mirrortrain_mpi.c:share/mirrortrain \
	mirrortrain_tcp.c:share/mirrortrain $(PACKAGE)/libmirrortrain.a:lib $(PACKAGE)/mirrortrain.pc:lib/pkgconfig \
	packaging/mirrortrainConfig.cmake:lib/cmake/mirrortrain packaging/engines.cmake:lib/cmake/mirrortrain \
	$(PACKAGE)/mirrortrainConfigVersion.cmake:lib/cmake/mirrortrain $(PACKAGE)/mirrortrain.1:share/man/man1 \
	LICENSE:share/doc/mirrortrain
source_of = $(firstword $(subst :, ,$1))
place_of = $(DESTDIR)$(PREFIX)/$(lastword $(subst :, ,$1))
SHARED = $(DESTDIR)$(PREFIX)/lib/libmirrortrain.so
# Directories that are nobody else's.
OWN_DIRECTORIES = share/mirrortrain share/doc/mirrortrain lib/cmake/mirrortrain

install: build/mirrortrain $(PACKAGE)/libmirrortrain.so $(foreach file,$(INSTALLED),$(call source_of,$(file)))
	@$(foreach file,$(INSTALLED),install -d $(call place_of,$(file)) && \
		install -m 644 $(call source_of,$(file)) $(call place_of,$(file))/ &&) true
	@install -m 755 $(PACKAGE)/libmirrortrain.so $(SHARED).$(VERSION)
	@ln -sf libmirrortrain.so.$(VERSION) $(SHARED).$(SOVERSION)
	@ln -sf libmirrortrain.so.$(SOVERSION) $(SHARED)
	@install -d $(DESTDIR)$(PREFIX)/bin
	@install -m 755 build/mirrortrain $(wildcard build/mirrortrain-*.so) $(DESTDIR)$(PREFIX)/bin/
	@echo "installed below $(DESTDIR)$(PREFIX)"

uninstall:
	@rm -f $(foreach file,$(INSTALLED),$(call place_of,$(file))/$(notdir $(call source_of,$(file))))
	@rm -f $(SHARED).$(VERSION) $(SHARED).$(SOVERSION) $(SHARED) $(DESTDIR)$(PREFIX)/bin/mirrortrain \
		$(DESTDIR)$(PREFIX)/bin/mirrortrain-openmpi.so $(DESTDIR)$(PREFIX)/bin/mirrortrain-mpich.so
	@for directory in $(OWN_DIRECTORIES); do \
		if [ -d "$(DESTDIR)$(PREFIX)/$$directory" ]; then rmdir "$(DESTDIR)$(PREFIX)/$$directory"; fi; done

# What the shared library exports, in packaging/symbols.txt, which a test compares.
symbols: $(PACKAGE)/libmirrortrain.so
	@nm -D --defined-only $< | awk '{ print $$3 }' | sort >packaging/symbols.txt
