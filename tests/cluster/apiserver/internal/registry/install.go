package registry

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"

	"wattpack.io/tests/cluster/apiserver/internal/identity"
	"wattpack.io/tests/cluster/apiserver/internal/scheme"
)

// Options are what the built-in resources need of the rest of the server.
type Options struct {
	REST       generic.RESTOptionsGetter
	Tokens     *identity.Tokens
	Client     kubernetes.Interface
	Authorizer authorizer.Authorizer
	Rules      authorizer.RuleResolver
}

type storages map[string]map[string]rest.Storage

func (s storages) add(group, path string, r rest.Storage) {
	if s[group] == nil {
		s[group] = map[string]rest.Storage{}
	}
	s[group][path] = r
}

// Install serves every built-in resource from the server.
func Install(server *genericapiserver.GenericAPIServer, o Options) error {
	all := storages{}
	for _, r := range resources() {
		main, status, err := newStore(r, o.REST)
		if err != nil {
			return err
		}
		all.add(r.gv.Group, r.plural, main)
		if status != nil {
			all.add(r.gv.Group, r.plural+"/status", status)
		}
		if r.scale {
			all.add(r.gv.Group, r.plural+"/scale", &scaleREST{main.Store})
		}
		addSubresources(all, r, main, o)
	}
	all["authentication.k8s.io"], all["authorization.k8s.io"] = reviews(o.Tokens, o.Authorizer, o.Rules)
	return installGroups(server, all)
}

func addSubresources(all storages, r *Resource, main *REST, o Options) {
	switch r.plural {
	case "pods":
		binding := newBindingREST(main)
		all.add("", "pods/binding", binding)
		all.add("", "bindings", bindingsREST{binding})
		all.add("", "pods/eviction", &evictionREST{main.Store, o.Client})
	case "serviceaccounts":
		all.add("", "serviceaccounts/token", &tokenREST{main.Store, o.Tokens, o.Client})
	case "events":
		all.add("events.k8s.io", "events", main)
	}
}

func installGroups(server *genericapiserver.GenericAPIServer, all storages) error {
	var infos []*genericapiserver.APIGroupInfo
	for _, gv := range scheme.GroupVersions {
		if all[gv.Group] == nil {
			continue
		}
		info := genericapiserver.NewDefaultAPIGroupInfo(gv.Group, scheme.Scheme, runtime.NewParameterCodec(scheme.Scheme), scheme.Codecs.CodecFactory)
		info.NegotiatedSerializer = scheme.Codecs
		info.VersionedResourcesStorageMap[gv.Version] = all[gv.Group]
		if gv.Group != "" {
			infos = append(infos, &info)
		} else if err := server.InstallLegacyAPIGroup("/api", &info); err != nil {
			return err
		}
	}
	return server.InstallAPIGroups(infos...)
}
