// Package admission holds the admission steps of the built-in kinds and the address book of webhooks.
package admission

import (
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	genericinit "k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	schedlisters "k8s.io/client-go/listers/scheduling/v1"

	"wattpack.io/tests/cluster/apiserver/internal/scheme"
)

// PodDefaultsName stands in for the ServiceAccount, Priority and DefaultTolerationSeconds plugins.
const PodDefaultsName = "PodDefaults"

// podUnreachableSeconds is what Kubernetes gives a pod on an unreachable node.
const podUnreachableSeconds = 300

type podDefaults struct {
	*admission.Handler
	classes  schedlisters.PriorityClassLister
	accounts corelisters.ServiceAccountLister
}

var (
	_ admission.MutationInterface                  = &podDefaults{}
	_ genericinit.WantsExternalKubeInformerFactory = &podDefaults{}
)

// NewPodDefaults makes the plugin.
func NewPodDefaults(io.Reader) (admission.Interface, error) {
	return &podDefaults{Handler: admission.NewHandler(admission.Create)}, nil
}

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
func (p *podDefaults) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	classes, accounts := f.Scheduling().V1().PriorityClasses(), f.Core().V1().ServiceAccounts()
	p.classes, p.accounts = classes.Lister(), accounts.Lister()
	p.SetReadyFunc(func() bool { return classes.Informer().HasSynced() && accounts.Informer().HasSynced() })
}

// ValidateInitialization implements admission.InitializationValidator.
func (p *podDefaults) ValidateInitialization() error { return nil }

// Admit gives a new pod its account, tolerations and priority.
func (p *podDefaults) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || a.GetSubresource() != "" {
		return nil
	}
	if !p.WaitForReady() {
		return admission.NewForbidden(a, fmt.Errorf("not yet ready to handle request"))
	}
	if err := p.account(pod, a); err != nil {
		return err
	}
	tolerateShortOutages(pod)
	return p.priority(pod, a)
}

func (p *podDefaults) account(pod *corev1.Pod, a admission.Attributes) error {
	scheme.Default(&pod.Spec.ServiceAccountName, "default")
	pod.Spec.DeprecatedServiceAccount = pod.Spec.ServiceAccountName
	if pod.Spec.ServiceAccountName == "default" { // made a moment after the namespace; Kubernetes waits for it
		return nil
	}
	if _, err := p.accounts.ServiceAccounts(a.GetNamespace()).Get(pod.Spec.ServiceAccountName); err != nil {
		return admission.NewForbidden(a, fmt.Errorf("error looking up service account %s/%s: %w", a.GetNamespace(), pod.Spec.ServiceAccountName, err))
	}
	return nil
}

func tolerateShortOutages(pod *corev1.Pod) {
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
		found := false
		for _, have := range pod.Spec.Tolerations {
			found = found || (have.Key == key || have.Key == "") && (have.Effect == "" || have.Effect == t.Effect)
		}
		if !found {
			scheme.DefaultPointer(&t.TolerationSeconds, podUnreachableSeconds)
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, t)
		}
	}
}

// priority resolves the pod's PriorityClass, or the global default, to a number.
func (p *podDefaults) priority(pod *corev1.Pod, a admission.Attributes) error {
	class, err := p.class(pod.Spec.PriorityClassName)
	if apierrors.IsNotFound(err) {
		return admission.NewForbidden(a, fmt.Errorf("no PriorityClass with name %v was found", pod.Spec.PriorityClassName))
	} else if err != nil {
		return err
	}
	value, policy := int32(0), corev1.PreemptLowerPriority
	if class != nil {
		value, pod.Spec.PriorityClassName = class.Value, class.Name
		if class.PreemptionPolicy != nil {
			policy = *class.PreemptionPolicy
		}
	}
	if pod.Spec.Priority != nil && *pod.Spec.Priority != value {
		return admission.NewForbidden(a, fmt.Errorf("the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name", *pod.Spec.Priority, value))
	}
	pod.Spec.Priority, pod.Spec.PreemptionPolicy = &value, &policy
	return nil
}

func (p *podDefaults) class(name string) (*schedulingv1.PriorityClass, error) {
	if name != "" {
		return p.classes.Get(name)
	}
	all, err := p.classes.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	var found *schedulingv1.PriorityClass
	for _, c := range all {
		if c.GlobalDefault && (found == nil || c.Value < found.Value) {
			found = c
		}
	}
	return found, nil
}
