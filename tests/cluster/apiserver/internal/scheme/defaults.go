package scheme

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Default sets *p to v when it is the zero value.
func Default[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// DefaultPointer sets the pointer *p to &v when it is nil.
func DefaultPointer[T any](p **T, v T) {
	if *p == nil {
		*p = &v
	}
}

func register[T any](s *runtime.Scheme, f func(*T)) {
	s.AddTypeDefaultingFunc(any(new(T)).(runtime.Object), func(o any) { f(o.(*T)) })
}

func addDefaults(s *runtime.Scheme) {
	addCoreDefaults(s)
	addWorkloadDefaults(s)
	addPolicyDefaults(s)
}

func addCoreDefaults(s *runtime.Scheme) {
	register(s, func(o *corev1.Pod) {
		defaultPodSpec(&o.Spec)
		DefaultPointer(&o.Spec.EnableServiceLinks, true)
		Default(&o.Status.Phase, corev1.PodPending)
	})
	register(s, func(o *corev1.Namespace) {
		Default(&o.Status.Phase, corev1.NamespaceActive)
		if o.Name != "" {
			metav1.SetMetaDataLabel(&o.ObjectMeta, corev1.LabelMetadataName, o.Name)
		}
	})
	register(s, func(o *corev1.Secret) { Default(&o.Type, corev1.SecretTypeOpaque) })
	register(s, func(o *corev1.Node) {
		if o.Status.Allocatable == nil && o.Status.Capacity != nil {
			o.Status.Allocatable = o.Status.Capacity.DeepCopy()
		}
	})
	register(s, func(o *corev1.Service) {
		Default(&o.Spec.Type, corev1.ServiceTypeClusterIP)
		Default(&o.Spec.SessionAffinity, corev1.ServiceAffinityNone)
		for i := range o.Spec.Ports {
			p := &o.Spec.Ports[i]
			Default(&p.Protocol, corev1.ProtocolTCP)
			Default(&p.TargetPort, intstr.FromInt32(p.Port))
		}
	})
}
