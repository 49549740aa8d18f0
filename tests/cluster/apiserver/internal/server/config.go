// Package server puts the parts of the test API server together.
package server

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"

	extserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	auditlog "k8s.io/apiserver/plugin/pkg/audit/log"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	basecompatibility "k8s.io/component-base/compatibility"

	"wattpack.io/tests/cluster/apiserver/internal/faults"
	"wattpack.io/tests/cluster/apiserver/internal/identity"
	"wattpack.io/tests/cluster/apiserver/internal/openapi"
	"wattpack.io/tests/cluster/apiserver/internal/scheme"
)

// The version that clients see: that of the Kubernetes libraries in go.mod.
const (
	version          = "1.35.7"
	minorVersion     = "1.35"
	emulationVersion = "1.34"
	title            = "wattpack-test"
)

// parts are the configuration and the clients of the server to itself.
type parts struct {
	*genericapiserver.RecommendedConfig
	factory informers.SharedInformerFactory
	client  *kubernetes.Clientset
	dynamic *dynamic.DynamicClient
	pki     *identity.PKI
	faults  *faults.Injector
}

func newParts(pki *identity.PKI, port int) (*parts, error) {
	cfg := genericapiserver.NewRecommendedConfig(scheme.Codecs.CodecFactory)
	cfg.Serializer = scheme.Codecs
	cfg.EffectiveVersion = basecompatibility.NewEffectiveVersionFromString(version, minorVersion, emulationVersion)
	cfg.AggregatedDiscoveryGroupManager = aggregated.NewResourceManager("apis") // shared with the CRD server
	cfg.MaxRequestsInFlight, cfg.MaxMutatingRequestsInFlight = 4000, 2000
	p := &parts{RecommendedConfig: cfg, pki: pki, faults: &faults.Injector{}}
	cfg.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		return p.faults.Wrap(genericapiserver.DefaultBuildHandlerChain(api, c))
	}
	if err := p.listen(port); err != nil {
		return nil, err
	}
	p.describe()
	return p, p.clients()
}

func (p *parts) listen(port int) error {
	listener, _, err := genericoptions.CreateListener("tcp", fmt.Sprintf("127.0.0.1:%d", port), net.ListenConfig{})
	if err != nil {
		return err
	}
	serving := genericoptions.NewSecureServingOptions()
	serving.Listener, serving.BindAddress, serving.BindPort = listener, net.IPv4(127, 0, 0, 1), listener.Addr().(*net.TCPAddr).Port
	serving.ServerCert.CertKey = genericoptions.CertKey{CertFile: p.pki.Path("server.crt"), KeyFile: p.pki.Path("server.key")}
	if err := serving.WithLoopback().ApplyTo(&p.SecureServing, &p.LoopbackClientConfig); err != nil {
		return err
	}
	p.LoopbackClientConfig.QPS, p.LoopbackClientConfig.Burst = -1, -1
	p.ExternalAddress = fmt.Sprintf("127.0.0.1:%d", serving.BindPort)
	return nil
}

// describe publishes OpenAPI; the client-go scheme keeps internal kinds out of the documents.
func (p *parts) describe() {
	namer := openapinamer.NewDefinitionNamer(clientscheme.Scheme, extserver.Scheme)
	p.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitions, namer)
	p.OpenAPIConfig.Info.Title = title
	p.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, namer)
	p.OpenAPIV3Config.Info.Title = title
}

func (p *parts) clients() (err error) {
	if p.client, err = kubernetes.NewForConfig(p.LoopbackClientConfig); err != nil {
		return err
	}
	if p.dynamic, err = dynamic.NewForConfig(p.LoopbackClientConfig); err != nil {
		return err
	}
	p.factory = informers.NewSharedInformerFactory(p.client, 0)
	p.SharedInformerFactory = p.factory
	return nil
}

// audit writes one JSON line for each request of a client other than the server itself.
func (p *parts) audit(dir string) error {
	out, err := os.OpenFile(filepath.Join(dir, "audit.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	p.AuditBackend = auditlog.NewBackend(out, auditlog.FormatJson, auditv1.SchemeGroupVersion)
	p.AuditPolicyRuleEvaluator = policy.NewPolicyRuleEvaluator(&auditinternal.Policy{Rules: []auditinternal.PolicyRule{
		{Level: auditinternal.LevelNone, Users: []string{"system:apiserver"}},
		{Level: auditinternal.LevelMetadata, OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived}},
	}})
	return nil
}
