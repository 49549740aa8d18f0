package registry

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/kubernetes"

	"wattpack.io/tests/cluster/apiserver/internal/identity"
	"wattpack.io/tests/cluster/apiserver/internal/scheme"
)

const (
	defaultTokenSeconds = 3600
	minTokenSeconds     = 600
	maxTokenSeconds     = 1 << 32
)

// tokenREST serves serviceaccounts/token.
type tokenREST struct {
	accounts *genericregistry.Store
	tokens   *identity.Tokens
	client   kubernetes.Interface
}

func (r *tokenREST) New() runtime.Object { return &authenticationv1.TokenRequest{} }
func (r *tokenREST) Destroy()            {}
func (r *tokenREST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")
}

func (r *tokenREST) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	req := obj.(*authenticationv1.TokenRequest)
	if validate != nil {
		if err := validate(ctx, req.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	got, err := r.accounts.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	account := got.(*corev1.ServiceAccount)
	scheme.Default(&req.Name, account.Name)
	scheme.Default(&req.Namespace, account.Namespace)
	scheme.DefaultPointer(&req.Spec.ExpirationSeconds, defaultTokenSeconds)
	if s := *req.Spec.ExpirationSeconds; s < minTokenSeconds || s > maxTokenSeconds {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("spec.expirationSeconds: Invalid value: %d: must be between %d and %d", s, minTokenSeconds, maxTokenSeconds))
	}
	if len(req.Spec.Audiences) == 0 {
		req.Spec.Audiences = []string{identity.Issuer}
	}
	bound, err := r.bound(ctx, account, req.Spec.BoundObjectRef)
	if err != nil {
		return nil, err
	}
	raw, expiry, err := r.tokens.Sign(account, req.Spec.Audiences, time.Duration(*req.Spec.ExpirationSeconds)*time.Second, bound)
	if err != nil {
		return nil, err
	}
	req.Status = authenticationv1.TokenRequestStatus{Token: raw, ExpirationTimestamp: metav1.NewTime(expiry)}
	return req, nil
}

// bound looks up what the token shall be bound to; a UID in the reference must match.
func (r *tokenREST) bound(ctx context.Context, account *corev1.ServiceAccount, ref *authenticationv1.BoundObjectReference) (b identity.Bound, err error) {
	if ref == nil {
		return b, nil
	}
	var uid types.UID
	switch {
	case ref.Kind == "Pod" && ref.APIVersion == "v1":
		pod, err := r.client.CoreV1().Pods(account.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return b, err
		}
		if pod.Spec.ServiceAccountName != account.Name {
			return b, apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", account.Name))
		}
		uid, b.Pod = pod.UID, &identity.Ref{Name: pod.Name, UID: string(pod.UID)}
		if pod.Spec.NodeName != "" {
			b.Node = r.nodeRef(ctx, pod.Spec.NodeName)
		}
	case ref.Kind == "Node" && ref.APIVersion == "v1":
		node, err := r.client.CoreV1().Nodes().Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return b, err
		}
		uid, b.Node = node.UID, &identity.Ref{Name: node.Name, UID: string(node.UID)}
	case ref.Kind == "Secret" && ref.APIVersion == "v1":
		secret, err := r.client.CoreV1().Secrets(account.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return b, err
		}
		uid, b.Secret = secret.UID, &identity.Ref{Name: secret.Name, UID: string(secret.UID)}
	default:
		return b, apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s %s", ref.APIVersion, ref.Kind))
	}
	if ref.UID != "" && ref.UID != uid {
		return b, apierrors.NewConflict(schema.GroupResource{Resource: ref.Kind}, ref.Name,
			fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record (%s)", ref.UID, uid))
	}
	return b, nil
}

// nodeRef carries the node's name even when its object is gone, as Kubernetes does.
func (r *tokenREST) nodeRef(ctx context.Context, name string) *identity.Ref {
	ref := &identity.Ref{Name: name}
	if node, err := r.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}); err == nil {
		ref.UID = string(node.UID)
	}
	return ref
}
