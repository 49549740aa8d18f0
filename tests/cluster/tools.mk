# Tools of the cluster tests, built from pinned Go modules; included by the root Makefile.
CLUSTER := tests/cluster

# ARGS="--nodes 20" for a larger one.
cluster: $(VENV)/.dev control-plane ## a Kubernetes control plane with simulated GPU nodes to play with, until Ctrl-C
	@$(RUN) -m tests.cluster.playground $(ARGS)

.PHONY: cluster control-plane tools system-tools test-go test-cluster-race

control-plane: ## build the test control plane: API server, etcd, kwok, kubectl, binder, Karpenter (cached)
	@$(CLUSTER)/tools/build.sh etcd kubectl apiserver binder kwok karpenter

tools: ## build helm (cached)
	@$(CLUSTER)/tools/build.sh helm

system-tools: ## install Debian's prometheus and chromium if they are missing (root only)
	@$(CLUSTER)/tools/system.sh

test-go: ## format, vet and unit tests (race detector) of the test control plane's own Go code
	@$(CLUSTER)/tools/check.sh lint && $(CLUSTER)/tools/check.sh test


test-cluster-race: control-plane ## the cluster tests with the API server under the race detector (builds for 8 minutes)
	@$(CLUSTER)/tools/build.sh apiserver-race
	@WATTPACK_TEST_APISERVER=apiserver-race GORACE=halt_on_error=1 .venv/bin/python -m pytest -q -p no:cacheprovider $(CLUSTER)
