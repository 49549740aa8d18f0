// Command binder stands in for kube-scheduler in tests: it binds ungated pending pods of the default scheduler,
// first fit by node name, through the same API call.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"wattpack.io/tests/cluster/binder/internal/loop"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "whose credentials to use")
	health := flag.String("health-address", "127.0.0.1:0", "where /healthz answers")
	klog.InitFlags(nil)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *health); err != nil {
		fmt.Fprintln(os.Stderr, "binder:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, health string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = -1, -1
	config.UserAgent = "wattpack-test-binder"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	binder, err := loop.New(client)
	if err != nil {
		return err
	}
	var ready atomic.Bool
	server := &http.Server{Addr: health, ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !ready.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})}
	go func() {
		if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			klog.ErrorS(err, "health endpoint ended")
		}
	}()
	defer server.Close() //nolint:errcheck // the process ends
	return binder.Run(ctx, func() { ready.Store(true) })
}
