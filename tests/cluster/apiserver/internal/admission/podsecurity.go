package admission

import (
	"context"
	"errors"
	"io"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	genericinit "k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	podsecurity "k8s.io/pod-security-admission/admission"
	"k8s.io/pod-security-admission/admission/api/load"
	podsecurityapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/metrics"
	"k8s.io/pod-security-admission/policy"
)

// PodSecurityName is the name of the plugin in Kubernetes.
const PodSecurityName = "PodSecurity"

// podSecurity keeps pods within the level that their namespace's labels name; the rules are upstream's own.
type podSecurity struct {
	*admission.Handler
	judge  *podsecurity.Admission
	client kubernetes.Interface
}

var (
	_ admission.ValidationInterface                = &podSecurity{}
	_ genericinit.WantsExternalKubeInformerFactory = &podSecurity{}
	_ genericinit.WantsExternalKubeClientSet       = &podSecurity{}
)

// NewPodSecurity makes the plugin.
func NewPodSecurity(io.Reader) (admission.Interface, error) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return nil, err
	}
	config, err := load.LoadFromData(nil)
	if err != nil {
		return nil, err
	}
	judge := &podsecurity.Admission{
		Configuration: config, Evaluator: evaluator, Metrics: metrics.NewPrometheusRecorder(podsecurityapi.GetAPIVersion()),
	}
	handler := admission.NewHandler(admission.Create, admission.Update)
	return &podSecurity{Handler: handler, judge: judge}, nil
}

// SetExternalKubeClientSet implements initializer.WantsExternalKubeClientSet.
func (p *podSecurity) SetExternalKubeClientSet(client kubernetes.Interface) { p.client = client }

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
func (p *podSecurity) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	namespaces, pods := f.Core().V1().Namespaces(), f.Core().V1().Pods()
	p.judge.PodLister = podsecurity.PodListerFromInformer(pods.Lister())
	p.judge.NamespaceGetter = podsecurity.NamespaceGetterFromListerAndClient(namespaces.Lister(), p.client)
	p.SetReadyFunc(func() bool { return namespaces.Informer().HasSynced() && pods.Informer().HasSynced() })
}

// ValidateInitialization implements admission.InitializationValidator.
func (p *podSecurity) ValidateInitialization() error {
	if err := p.judge.CompleteConfiguration(); err != nil {
		return err
	}
	return p.judge.ValidateConfiguration()
}

// Validate implements admission.ValidationInterface.
func (p *podSecurity) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	kind := a.GetResource().GroupResource()
	if kind.Resource != "namespaces" && !p.judge.PodSpecExtractor.HasPodSpec(kind) {
		return nil
	}
	if !p.WaitForReady() {
		return admission.NewForbidden(a, errors.New("not yet ready to handle request"))
	}
	answer := p.judge.Validate(ctx, &podsecurityapi.AttributesRecord{
		Name: a.GetName(), Namespace: a.GetNamespace(), Kind: a.GetKind(), Resource: a.GetResource(), Subresource: a.GetSubresource(),
		Operation: admissionv1.Operation(a.GetOperation()), Username: a.GetUserInfo().GetName(), Object: a.GetObject(), OldObject: a.GetOldObject(),
	})
	for _, text := range answer.Warnings {
		warning.AddWarning(ctx, "", text)
	}
	if answer.Allowed {
		return nil
	}
	if answer.Result == nil {
		return admission.NewForbidden(a, errors.New("refused by pod security"))
	}
	return &apierrors.StatusError{ErrStatus: *answer.Result}
}
