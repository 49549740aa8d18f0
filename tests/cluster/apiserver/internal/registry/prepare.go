package registry

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// NamespaceFinalizer holds a namespace until the namespace controller has emptied it.
const NamespaceFinalizer = "testapi.local/namespace"

func prepareNamespace(o runtime.Object) {
	ns := o.(*corev1.Namespace)
	ns.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
	ns.Finalizers = append(ns.Finalizers, NamespaceFinalizer)
}

// terminateNamespace runs inside the storage update that sets deletionTimestamp, so the phase changes with it.
func terminateNamespace(o runtime.Object, _ *metav1.DeleteOptions) bool {
	o.(*corev1.Namespace).Status.Phase = corev1.NamespaceTerminating
	return false
}

func mergeStringData(o runtime.Object) {
	s := o.(*corev1.Secret)
	for k, v := range s.StringData {
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		s.Data[k] = []byte(v)
	}
	s.StringData = nil
}

func prepareJob(o runtime.Object) {
	j := o.(*batchv1.Job)
	if j.Spec.Selector != nil {
		return
	}
	uid := string(j.UID)
	for k, v := range map[string]string{batchv1.ControllerUidLabel: uid, batchv1.JobNameLabel: j.Name} {
		if j.Spec.Template.Labels == nil {
			j.Spec.Template.Labels = map[string]string{}
		}
		j.Spec.Template.Labels[k] = v
	}
	j.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{batchv1.ControllerUidLabel: uid}}
}

func preparePod(o runtime.Object) {
	p := o.(*corev1.Pod)
	p.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: qosClass(&p.Spec)}
	if len(p.Spec.SchedulingGates) > 0 {
		p.Status.Conditions = []corev1.PodCondition{gatedCondition()}
	}
}

func gatedCondition() corev1.PodCondition {
	return corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
		Message: "Scheduling is blocked due to non-empty scheduling gates", LastTransitionTime: metav1.Now(),
	}
}

// updatePod drops the SchedulingGated condition with the last gate, as Kubernetes' pod strategy does.
func updatePod(o, oldObj runtime.Object) {
	p, old := o.(*corev1.Pod), oldObj.(*corev1.Pod)
	if len(old.Spec.SchedulingGates) == 0 || len(p.Spec.SchedulingGates) > 0 {
		return
	}
	kept := []corev1.PodCondition{}
	for _, c := range p.Status.Conditions {
		if c.Type != corev1.PodScheduled || c.Reason != corev1.PodReasonSchedulingGated {
			kept = append(kept, c)
		}
	}
	p.Status.Conditions = kept
}

func qosClass(s *corev1.PodSpec) corev1.PodQOSClass {
	guaranteed, any := true, false
	for _, c := range s.Containers {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, limited := c.Resources.Limits[name]
			request, requested := c.Resources.Requests[name]
			any = any || limited || requested
			if !limited || (requested && request.Cmp(limit) != 0) {
				guaranteed = false
			}
		}
	}
	switch {
	case !any:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

func podGrace(o runtime.Object, opts *metav1.DeleteOptions) bool {
	p, period := o.(*corev1.Pod), int64(0)
	if opts.GracePeriodSeconds != nil {
		period = *opts.GracePeriodSeconds
	} else if p.Spec.TerminationGracePeriodSeconds != nil {
		period = *p.Spec.TerminationGracePeriodSeconds
	}
	if p.Spec.NodeName == "" || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		period = 0
	}
	opts.GracePeriodSeconds = &period
	return true
}
