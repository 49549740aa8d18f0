package admission

import (
	"fmt"
	"net/url"

	corelisters "k8s.io/client-go/listers/core/v1"
)

// EndpointAnnotation on a Service says where on loopback its webhook listens (host:port).
const EndpointAnnotation = "testapi.local/endpoint"

// Services resolves webhook service references to the address in the Service's annotation, because the test cluster
// has no pod network.
type Services struct{ corelisters.ServiceLister }

// ResolveEndpoint implements webhook.ServiceResolver.
func (s Services) ResolveEndpoint(namespace, name string, _ int32) (*url.URL, error) {
	svc, err := s.Services(namespace).Get(name)
	if err != nil {
		return nil, err
	}
	if address := svc.Annotations[EndpointAnnotation]; address != "" {
		return &url.URL{Scheme: "https", Host: address}, nil
	}
	return nil, fmt.Errorf("service %s/%s has no %s annotation", namespace, name, EndpointAnnotation)
}
