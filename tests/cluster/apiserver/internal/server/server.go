package server

import (
	"context"
	"fmt"
	"os"
	"time"

	noop "go.opentelemetry.io/otel/trace/noop"
	extserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	webhookinit "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	requestunion "k8s.io/apiserver/pkg/authentication/request/union"
	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authzunion "k8s.io/apiserver/pkg/authorization/union"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/metadata"

	"wattpack.io/tests/cluster/apiserver/internal/admission"
	"wattpack.io/tests/cluster/apiserver/internal/collector"
	"wattpack.io/tests/cluster/apiserver/internal/controllers"
	"wattpack.io/tests/cluster/apiserver/internal/faults"
	"wattpack.io/tests/cluster/apiserver/internal/identity"
	"wattpack.io/tests/cluster/apiserver/internal/rbac"
	"wattpack.io/tests/cluster/apiserver/internal/registry"
	"wattpack.io/tests/cluster/apiserver/internal/scheme"
	"wattpack.io/tests/cluster/apiserver/internal/workloads"
)

// shutdownTimeout is how long open watches may hold back the end of the server.
const shutdownTimeout = 300 * time.Millisecond

// Options are the command line's.
type Options struct {
	Etcd, Prefix, Dir string
	Port              int
	Controllers       bool
}

// Run serves until the context ends.
func Run(ctx context.Context, o Options) error {
	pki, err := identity.NewPKI(o.Dir)
	if err != nil {
		return err
	}
	p, err := newParts(pki, o.Port)
	if err != nil {
		return err
	}
	if err := p.audit(o.Dir); err != nil {
		return err
	}
	tokens := &identity.Tokens{PKI: pki, Client: p.client}
	if err := p.authenticate(tokens); err != nil {
		return err
	}
	rules := p.authorize()
	server, ext, err := p.build(o, tokens, rules)
	if err != nil {
		return err
	}
	if err := p.startWith(server, o); err != nil {
		return err
	}
	_, bound, err := p.SecureServing.HostPort()
	if err != nil {
		return err
	}
	if err := pki.WriteKubeconfig(fmt.Sprintf("https://127.0.0.1:%d", bound)); err != nil {
		return err
	}
	prepared := server.PrepareRun()
	if err := p.shareOpenAPI(server, ext); err != nil {
		return err
	}
	fmt.Printf("listening on https://127.0.0.1:%d, kubeconfig %s\n", bound, pki.Path("admin.kubeconfig"))
	return prepared.RunWithContext(ctx)
}

func (p *parts) authenticate(tokens *identity.Tokens) error {
	ca, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", p.pki.Path("ca.crt"))
	if err != nil {
		return err
	}
	if err := p.Authentication.ApplyClientCert(ca, p.SecureServing); err != nil {
		return err
	}
	p.Authentication.APIAudiences = authenticator.Audiences{identity.Issuer}
	// NewFailOnError: a bad credential is refused, it does not make its bearer anonymous.
	p.Authentication.Authenticator = requestunion.NewFailOnError(
		group.NewAuthenticatedGroupAdder(requestunion.New(
			requestx509.NewDynamic(ca.VerifyOptions, requestx509.CommonNameUserConversion),
			bearertoken.New(tokens),
		)),
		anonymous.NewAuthenticator(nil),
	)
	return nil
}

func (p *parts) authorize() *rbac.Authorizer {
	rules := rbac.New(p.factory)
	p.Authorization.Authorizer = authzunion.New(authorizerfactory.NewPrivilegedGroups("system:masters"), rules)
	p.RuleResolver = rules
	return rules
}

// build makes the server of the built-ins in front of the CRD server.
func (p *parts) build(o Options, tokens *identity.Tokens, rules *rbac.Authorizer) (*genericapiserver.GenericAPIServer, *extserver.CustomResourceDefinitions, error) {
	resolver := admission.Services{ServiceLister: p.factory.Core().V1().Services().Lister()}
	wrapper := webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, p.LoopbackClientConfig, noop.NewTracerProvider())
	if err := p.admit(rules, resolver, wrapper); err != nil {
		return nil, nil, err
	}
	ext, err := newExtensions(*p.RecommendedConfig, o, resolver, wrapper)
	if err != nil {
		return nil, nil, err
	}
	if err := etcdOptions(o, scheme.Codecs.LegacyCodec(scheme.GroupVersions...)).ApplyTo(&p.Config); err != nil {
		return nil, nil, err
	}
	server, err := p.Complete().New(title, ext.GenericAPIServer)
	if err != nil {
		return nil, nil, err
	}
	err = registry.Install(server, registry.Options{
		REST: p.RESTOptionsGetter, Tokens: tokens, Client: p.client, Authorizer: p.Authorization.Authorizer, Rules: rules,
	})
	if err != nil {
		return nil, nil, err
	}
	server.ShutdownTimeout = shutdownTimeout
	server.Handler.NonGoRestfulMux.Handle(faults.Path, p.faults)
	publishExtensions(server, ext)
	return server, ext, nil
}

func (p *parts) admit(rules *rbac.Authorizer, resolver webhook.ServiceResolver, wrapper webhook.AuthenticationInfoResolverWrapper) error {
	adm := genericoptions.NewAdmissionOptions()
	adm.Plugins.Register(admission.PodDefaultsName, admission.NewPodDefaults)
	adm.Plugins.Register(admission.PodSecurityName, admission.NewPodSecurity)
	adm.Plugins.Register(rbac.PluginName, rbac.EscalationPlugin(rules, p.Authorization.Authorizer))
	adm.RecommendedPluginOrder = append([]string{admission.PodDefaultsName, admission.PodSecurityName, rbac.PluginName}, adm.RecommendedPluginOrder...)
	adm.DisablePlugins = []string{"MutatingAdmissionPolicy"}
	return adm.ApplyTo(&p.Config, p.factory, p.client, p.dynamic, utilfeature.DefaultFeatureGate, p.EffectiveVersion,
		webhookinit.NewPluginInitializer(wrapper, resolver))
}

func (p *parts) startWith(server *genericapiserver.GenericAPIServer, o Options) error {
	ca, err := os.ReadFile(p.pki.Path("ca.crt"))
	if err != nil {
		return err
	}
	runner, err := workloads.New(p.client, p.factory)
	if err != nil {
		return err
	}
	meta, err := metadata.NewForConfig(p.LoopbackClientConfig)
	if err != nil {
		return err
	}
	return server.AddPostStartHook("wattpack-test-bootstrap", func(h genericapiserver.PostStartHookContext) error {
		go controllers.RunNamespaces(h, p.client, p.dynamic, p.factory, ca)
		if o.Controllers {
			go runner.Run(h)
			go collector.New(p.client.Discovery(), meta).Run(h)
		}
		return controllers.Bootstrap(h, p.client)
	})
}
