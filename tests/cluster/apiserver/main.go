// Command apiserver is a Kubernetes API server for tests: custom resources and the common built-ins on etcd, without
// containers.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/klog/v2"

	"wattpack.io/tests/cluster/apiserver/internal/server"
)

func main() {
	var o server.Options
	pflag.StringVar(&o.Etcd, "etcd", "http://127.0.0.1:2379", "etcd endpoint")
	pflag.StringVar(&o.Prefix, "prefix", "/registry", "etcd key prefix; one per independent server")
	pflag.IntVar(&o.Port, "port", 0, "port on 127.0.0.1 (0: any)")
	pflag.StringVar(&o.Dir, "dir", "apiserver-data", "where certificates, admin.kubeconfig and audit.log go")
	pflag.BoolVar(&o.Controllers, "controllers", true, "run the workload controllers and the garbage collector")
	klog.InitFlags(nil)
	pflag.Parse()
	if err := server.Run(genericapiserver.SetupSignalContext(), o); err != nil {
		fmt.Fprintln(os.Stderr, "apiserver:", err)
		os.Exit(1)
	}
}
