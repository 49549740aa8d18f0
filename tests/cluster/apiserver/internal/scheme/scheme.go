// Package scheme holds the served Go types, their codecs, defaults and selectable fields.
package scheme

import (
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/versioning"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

// GroupVersions are the built-in API groups of the server, in storage preference order.
var GroupVersions = []schema.GroupVersion{
	{Version: "v1"},
	{Group: "apps", Version: "v1"},
	{Group: "batch", Version: "v1"},
	{Group: "autoscaling", Version: "v1"},
	{Group: "coordination.k8s.io", Version: "v1"},
	{Group: "events.k8s.io", Version: "v1"},
	{Group: "policy", Version: "v1"},
	{Group: "networking.k8s.io", Version: "v1"},
	{Group: "rbac.authorization.k8s.io", Version: "v1"},
	{Group: "scheduling.k8s.io", Version: "v1"},
	{Group: "admissionregistration.k8s.io", Version: "v1"},
	{Group: "authentication.k8s.io", Version: "v1"},
	{Group: "authorization.k8s.io", Version: "v1"},
}

var (
	// Scheme knows every served Go type twice: as its v1 and as its own "internal" version.
	Scheme = newScheme()
	// Codecs never share an object between encoders (see SafeCodecs).
	Codecs = SafeCodecs{serializer.NewCodecFactory(Scheme)}
)

// SafeCodecs encodes through the deep-copying convertor. The stock factory uses the unsafe one, which, when
// internal and external Go types are the same, would write apiVersion and kind into objects of the watch cache.
type SafeCodecs struct{ serializer.CodecFactory }

// EncoderForVersion returns an encoder that never writes to the object it is given.
func (f SafeCodecs) EncoderForVersion(e runtime.Encoder, gv runtime.GroupVersioner) runtime.Encoder {
	return versioning.NewCodec(e, nil, Scheme, Scheme, Scheme, nil, gv, nil, Scheme.Name())
}

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, gv := range GroupVersions {
		for kind, t := range clientscheme.Scheme.KnownTypes(gv) {
			if !strings.HasSuffix(t.PkgPath(), "apis/meta/v1") {
				addKind(s, gv.WithKind(kind), reflect.New(t).Interface().(runtime.Object))
			}
		}
		metav1.AddToGroupVersion(s, gv)
		utilruntime.Must(s.SetVersionPriority(gv))
	}
	addEventConversions(s)
	addDefaults(s)
	return s
}

func addKind(s *runtime.Scheme, gvk schema.GroupVersionKind, obj runtime.Object) {
	internal := schema.GroupVersionKind{Group: gvk.Group, Version: runtime.APIVersionInternal, Kind: gvk.Kind}
	s.AddKnownTypeWithName(gvk, obj)
	switch {
	case gvk.Group == "events.k8s.io" && gvk.Kind == "Event": // internal form is core's Event, as in Kubernetes
		s.AddKnownTypeWithName(internal, &corev1.Event{})
	case gvk.Group == "events.k8s.io":
		s.AddKnownTypeWithName(internal, &corev1.EventList{})
	default:
		s.AddKnownTypeWithName(internal, obj)
	}
	// runtime.Scheme.Convert has no identity conversion; webhooks and DecodeInto need one.
	utilruntime.Must(s.AddConversionFunc(obj, obj, func(a, b any, _ conversion.Scope) error {
		reflect.ValueOf(b).Elem().Set(reflect.ValueOf(a.(runtime.Object).DeepCopyObject()).Elem())
		return nil
	}))
	if f := Selectable[gvk.Kind]; f != nil {
		utilruntime.Must(s.AddFieldLabelConversionFunc(gvk, fieldLabels(f.Names)))
	}
}

func fieldLabels(names []string) runtime.FieldLabelConversionFunc {
	return func(label, value string) (string, string, error) {
		for _, n := range names {
			if n == label {
				return label, value, nil
			}
		}
		return runtime.DefaultMetaV1FieldSelectorConversion(label, value)
	}
}
