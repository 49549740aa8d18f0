package server

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	extserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	extoptions "k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"

	"wattpack.io/tests/cluster/apiserver/internal/controllers"
	"wattpack.io/tests/cluster/apiserver/internal/scheme"
)

func etcdOptions(o Options, codec runtime.Codec) *genericoptions.EtcdOptions {
	storage := storagebackend.NewDefaultConfig(o.Prefix, codec)
	storage.Transport.ServerList = []string{o.Etcd}
	return genericoptions.NewEtcdOptions(storage)
}

// newExtensions makes the CRD server, which ends the chain.
func newExtensions(cfg genericapiserver.RecommendedConfig, o Options, resolver webhook.ServiceResolver, wrapper webhook.AuthenticationInfoResolverWrapper) (*extserver.CustomResourceDefinitions, error) {
	cfg.PostStartHooks = map[string]genericapiserver.PostStartHookConfigEntry{}
	cfg.MergedResourceConfig = extserver.DefaultAPIResourceConfigSource()
	opts := etcdOptions(o, extserver.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion))
	opts.SkipHealthEndpoints = true
	if err := opts.ApplyTo(&cfg.Config); err != nil {
		return nil, err
	}
	return (&extserver.Config{GenericConfig: &cfg, ExtraConfig: extserver.ExtraConfig{
		CRDRESTOptionsGetter: extoptions.NewCRDRESTOptionsGetter(*opts, nil, cfg.StorageObjectCountTracker),
		MasterCount:          1,
		ServiceResolver:      resolver,
		AuthResolverWrapper:  wrapper,
	}}).Complete().New(genericapiserver.NewEmptyDelegate())
}

var extensionsVersion = metav1.GroupVersionForDiscovery{GroupVersion: apiextensionsv1.SchemeGroupVersion.String(), Version: "v1"}

// publishExtensions lists the CRD group and every group that CRDs add in the front server's discovery.
func publishExtensions(server *genericapiserver.GenericAPIServer, ext *extserver.CustomResourceDefinitions) {
	server.DiscoveryGroupManager.AddGroup(metav1.APIGroup{
		Name: apiextensionsv1.GroupName, Versions: []metav1.GroupVersionForDiscovery{extensionsVersion}, PreferredVersion: extensionsVersion,
	})
	fixed := []string{apiextensionsv1.GroupName}
	for _, gv := range scheme.GroupVersions {
		fixed = append(fixed, gv.Group)
	}
	controllers.PublishGroups(ext.Informers, server.DiscoveryGroupManager, fixed...)
}

// shareOpenAPI lets the CRD controllers publish into the front server's documents; call it after PrepareRun.
func (p *parts) shareOpenAPI(server *genericapiserver.GenericAPIServer, ext *extserver.CustomResourceDefinitions) error {
	services := ext.GenericAPIServer.Handler.GoRestfulContainer.RegisteredWebServices()
	specs, err := builder3.BuildOpenAPISpecFromRoutes(restfuladapter.AdaptWebServices(services), p.OpenAPIV3Config)
	if err != nil {
		return err
	}
	server.OpenAPIV3VersionedService.UpdateGroupVersion("apis/"+extensionsVersion.GroupVersion, specs)
	ext.GenericAPIServer.OpenAPIV3VersionedService = server.OpenAPIV3VersionedService
	ext.GenericAPIServer.OpenAPIVersionedService = server.OpenAPIVersionedService
	ext.GenericAPIServer.StaticOpenAPISpec = server.StaticOpenAPISpec
	return nil
}
