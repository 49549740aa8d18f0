package scheme

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
)

// FieldSet names the selectable fields of one kind and reads their values.
type FieldSet struct {
	Names []string
	Get   func(runtime.Object, fields.Set)
}

func event(get func(runtime.Object, fields.Set)) *FieldSet {
	return &FieldSet{[]string{"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
		"involvedObject.apiVersion", "involvedObject.fieldPath", "regarding.kind", "regarding.namespace", "regarding.name",
		"regarding.uid", "reason", "reportingComponent", "reportingController", "source", "type"}, get}
}

// Selectable lists field selectors beyond metadata.name and metadata.namespace, by kind.
var Selectable = map[string]*FieldSet{
	"Pod": {[]string{"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "status.phase", "status.podIP"},
		func(o runtime.Object, s fields.Set) {
			p := o.(*corev1.Pod)
			s["spec.nodeName"], s["spec.restartPolicy"] = p.Spec.NodeName, string(p.Spec.RestartPolicy)
			s["spec.schedulerName"], s["spec.serviceAccountName"] = p.Spec.SchedulerName, p.Spec.ServiceAccountName
			s["status.phase"], s["status.podIP"] = string(p.Status.Phase), p.Status.PodIP
		}},
	"Node": {[]string{"spec.unschedulable"}, func(o runtime.Object, s fields.Set) {
		s["spec.unschedulable"] = fmt.Sprint(o.(*corev1.Node).Spec.Unschedulable)
	}},
	"Namespace": {[]string{"status.phase"}, func(o runtime.Object, s fields.Set) {
		s["status.phase"] = string(o.(*corev1.Namespace).Status.Phase)
	}},
	"Secret": {[]string{"type"}, func(o runtime.Object, s fields.Set) { s["type"] = string(o.(*corev1.Secret).Type) }},
	"Job": {[]string{"status.successful"}, func(o runtime.Object, s fields.Set) {
		s["status.successful"] = fmt.Sprint(o.(*batchv1.Job).Status.Succeeded)
	}},
	"Event": event(func(o runtime.Object, s fields.Set) {
		e := o.(*corev1.Event)
		for _, p := range []string{"involvedObject", "regarding"} {
			s[p+".kind"], s[p+".namespace"], s[p+".name"] = e.InvolvedObject.Kind, e.InvolvedObject.Namespace, e.InvolvedObject.Name
			s[p+".uid"] = string(e.InvolvedObject.UID)
		}
		s["involvedObject.apiVersion"], s["involvedObject.fieldPath"] = e.InvolvedObject.APIVersion, e.InvolvedObject.FieldPath
		s["reason"], s["type"], s["source"] = e.Reason, e.Type, e.Source.Component
		s["reportingComponent"], s["reportingController"] = e.ReportingController, e.ReportingController
	}),
}
