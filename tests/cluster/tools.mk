# Tools of the cluster tests, built from pinned Go modules; included by the root Makefile.
CLUSTER := tests/cluster

.PHONY: control-plane tools system-tools test-go

control-plane: ## build the test control plane: API server, etcd, kwok, kubectl, binder (cached)
	@$(CLUSTER)/tools/build.sh etcd kubectl apiserver binder kwok

tools: ## build helm (cached)
	@$(CLUSTER)/tools/build.sh helm

system-tools: ## install Debian's prometheus and chromium if they are missing (root only)
	@$(CLUSTER)/tools/system.sh

test-go: ## format, vet and unit tests (race detector) of the test control plane's own Go code
	@$(CLUSTER)/tools/check.sh lint && $(CLUSTER)/tools/check.sh test

