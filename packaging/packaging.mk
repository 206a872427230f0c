# What is installed and packed: the manual pages, make install, the OCI image, Debian's packages. Included by the Makefile.
# Annotations for editors.
META    := $(patsubst lua/meta/%,%,$(wildcard lua/meta/*.lua lua/meta/lunarch/*.lua))

# The manual pages: made of what the program's --help says, and of the docs (packaging/man.lua). Of the commit's date, so that the same
# sources make the same pages (https://reproducible-builds.org/docs/source-date-epoch/).
MAN_DATE := $(or $(SOURCE_DATE_EPOCH),$(shell scripts/git.sh log -1 --format=%ct 2>/dev/null),0)
COMMANDS := $(shell sed -n 's/^	C([A-Z]*, \([a-z]*\),.*).*/\1/p' runtime/config/options.h)
$(if $(COMMANDS),,$(error runtime/config/options.h: expected lines such as C(RUN, run, "<script>"), found none))
UNITS := lunarch@.service lunarch-exec@.service lunarch-cron@.service
MAN := $(COMMANDS:%=man1/lunarch-%.1) man1/lunarch.1 man7/lunarch.7 man7/lunarch-script.7
man: $(BUILD)/man/made ## the manual pages
$(BUILD)/man/made: packaging/man.lua README.md docs/operations.md docs/glossary.md docs/api.md $(NATIVE)/lunarch
	@rm -rf $(@D) && mkdir -p $(@D)/man1 $(@D)/man7
	@echo "  MAN   $(@D)"
	$(Q)SOURCE_DATE_EPOCH=$(MAN_DATE) lua5.4 packaging/man.lua $(NATIVE)/lunarch $(@D) && touch $@

install: all man ## into PREFIX, which is /usr/local; DESTDIR goes before it
	install -D -m 755 $(BUILD)/lunarch $(DESTDIR)$(PREFIX)/bin/lunarch
	for m in $(MODULES); do install -D -m 755 $$m $(DESTDIR)$(PREFIX)/lib/lunarch/$${m##*/}; done
	for m in $(META); do install -D -m 644 lua/meta/$$m $(DESTDIR)$(PREFIX)/share/lunarch/meta/$$m; done
	install -D -m 644 packaging/completion/lunarch.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/lunarch
	install -D -m 644 packaging/completion/lunarch.zsh $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_lunarch
	install -D -m 644 packaging/completion/lunarch.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/lunarch.fish
	for m in $(MAN); do install -D -m 644 $(BUILD)/man/$$m $(DESTDIR)$(PREFIX)/share/man/$$m; done
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	for u in $(UNITS); do sed 's|@BIN@|$(PREFIX)/bin|' packaging/units/$$u >$(DESTDIR)$(PREFIX)/lib/systemd/system/$$u; done
	install -D -m 644 packaging/units/lunarch.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/lunarch.conf

uninstall: ## removes what install wrote
	rm -f $(DESTDIR)$(PREFIX)/lib/lunarch/*.so
	[ ! -d $(DESTDIR)$(PREFIX)/lib/lunarch ] || rmdir --ignore-fail-on-non-empty $(DESTDIR)$(PREFIX)/lib/lunarch
	for m in $(META); do rm -f $(DESTDIR)$(PREFIX)/share/lunarch/meta/$$m; done
	for d in lunarch/meta/lunarch lunarch/meta lunarch; do [ ! -d $(DESTDIR)$(PREFIX)/share/$$d ] || rmdir --ignore-fail-on-non-empty $(DESTDIR)$(PREFIX)/share/$$d; done
	rm -f $(DESTDIR)$(PREFIX)/bin/lunarch $(addprefix $(DESTDIR)$(PREFIX)/share/,bash-completion/completions/lunarch zsh/site-functions/_lunarch fish/vendor_completions.d/lunarch.fish $(MAN:%=man/%)) $(addprefix $(DESTDIR)$(PREFIX)/lib/,$(UNITS:%=systemd/system/%) sysusers.d/lunarch.conf)

# What the scripts below know of another architecture: its tools, and the directory that has its libraries.
CROSSED = $(if $(CROSS),CROSS='$(CROSS)' SYSROOT='$(abspath $(or $(SYSROOT),$(BUILD)/sysroot))')
image: all ## an OCI image, in build/image/oci: the program, its modules and what they need of this Debian
	@scripts/deps.sh image
	@$(CROSSED) packaging/image.sh $(BUILD) $(BUILD)/image '$(VERSION)'

tarball: all man $(BUNDLED) ## an archive that runs wherever it is unpacked, in build/tarball: the program, its modules and their libraries
	@$(CROSSED) packaging/tarball.sh $(BUILD) $(BUILD)/tarball '$(VERSION)'

deb: ## Debian's packages, in build/deb: the program, and one for each store's library. ARCH=arm64: cross-built, in build/aarch64-linux-gnu/deb
	@scripts/deps.sh deb
	$(if $(CROSS),@$(submake) sysroot CROSS=$(CROSS))
	@$(CROSSED) packaging/deb.sh $(BUILD)/deb
	@ls -l $(BUILD)/deb/*.deb | awk '{ printf "%8d %s\n", $$5, $$NF }'

# MORE=directory...: what was built on another Debian, or for another architecture.
release: ## all files of a release of what is committed, in build/release: sources, packages, archive, image, notes, checksums
	@scripts/deps.sh deb && scripts/deps.sh image
	@packaging/release.sh $(BUILD) '$(VERSION)' $(MORE)

.PHONY: man install uninstall image tarball deb release
