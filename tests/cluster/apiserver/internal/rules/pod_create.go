// Package rules holds what Kubernetes accepts and refuses of the built-in kinds that the project uses, as pure functions.
package rules

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Pod validates a pod as it is created or updated.
func Pod(pod *corev1.Pod) field.ErrorList { return PodSpec(&pod.Spec, field.NewPath("spec")) }

// PodSpec validates a pod spec, of a pod or of a workload's template.
func PodSpec(s *corev1.PodSpec, path *field.Path) (errs field.ErrorList) {
	errs = append(errs, containers(s, path)...)
	errs = append(errs, volumes(s, path)...)
	errs = append(errs, oneOf(path.Child("restartPolicy"), s.RestartPolicy, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)...)
	errs = append(errs, gates(s, path)...)
	for k, v := range s.NodeSelector {
		errs = append(errs, labelPair(k, v, path.Child("nodeSelector"))...)
	}
	if a := nodeAffinity(s); a != nil {
		errs = append(errs, nodeAffinityTerms(a, path.Child("affinity", "nodeAffinity"))...)
	}
	for i, t := range s.Tolerations {
		errs = append(errs, toleration(t, path.Child("tolerations").Index(i))...)
	}
	if g := s.TerminationGracePeriodSeconds; g != nil && *g < 0 {
		errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"), *g, "must be greater than or equal to 0"))
	}
	if d := s.ActiveDeadlineSeconds; d != nil && *d < 1 {
		errs = append(errs, field.Invalid(path.Child("activeDeadlineSeconds"), *d, "must be greater than 0"))
	}
	errs = append(errs, dnsName(s.NodeName, path.Child("nodeName"))...)
	errs = append(errs, dnsName(s.ServiceAccountName, path.Child("serviceAccountName"))...)
	errs = append(errs, dnsName(s.PriorityClassName, path.Child("priorityClassName"))...)
	return errs
}

func containers(s *corev1.PodSpec, path *field.Path) (errs field.ErrorList) {
	if len(s.Containers) == 0 {
		errs = append(errs, field.Required(path.Child("containers"), ""))
	}
	seen, mounted := sets.New[string](), sets.New[string]()
	for _, v := range s.Volumes {
		mounted.Insert(v.Name)
	}
	check := func(list []corev1.Container, path *field.Path) {
		for i := range list {
			c, p := &list[i], path.Index(i)
			errs = append(errs, container(c, mounted, p)...)
			if seen.Has(c.Name) {
				errs = append(errs, field.Duplicate(p.Child("name"), c.Name))
			}
			seen.Insert(c.Name)
		}
	}
	check(s.Containers, path.Child("containers"))
	check(s.InitContainers, path.Child("initContainers"))
	return errs
}

func container(c *corev1.Container, mounted sets.Set[string], path *field.Path) (errs field.ErrorList) {
	if c.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	} else if msgs := validation.IsDNS1123Label(c.Name); len(msgs) > 0 {
		errs = append(errs, field.Invalid(path.Child("name"), c.Name, strings.Join(msgs, "; ")))
	}
	if strings.TrimSpace(c.Image) == "" {
		errs = append(errs, field.Required(path.Child("image"), ""))
	}
	for i, m := range c.VolumeMounts {
		if !mounted.Has(m.Name) {
			errs = append(errs, field.NotFound(path.Child("volumeMounts").Index(i).Child("name"), m.Name))
		}
		if m.MountPath == "" {
			errs = append(errs, field.Required(path.Child("volumeMounts").Index(i).Child("mountPath"), ""))
		}
	}
	for i, p := range c.Ports {
		if p.ContainerPort < 1 || p.ContainerPort > 65535 {
			errs = append(errs, field.Invalid(path.Child("ports").Index(i).Child("containerPort"), p.ContainerPort, "must be between 1 and 65535, inclusive"))
		}
	}
	for i, e := range c.Env {
		if e.Name == "" {
			errs = append(errs, field.Required(path.Child("env").Index(i).Child("name"), ""))
		}
	}
	return append(errs, resources(c.Resources, path.Child("resources"))...)
}

func resources(r corev1.ResourceRequirements, path *field.Path) (errs field.ErrorList) {
	zero := resource.Quantity{}
	for name, q := range r.Limits {
		if q.Cmp(zero) < 0 {
			errs = append(errs, field.Invalid(path.Child("limits").Key(string(name)), q.String(), "must be greater than or equal to 0"))
		}
	}
	for name, q := range r.Requests {
		p := path.Child("requests").Key(string(name))
		limit, limited := r.Limits[name]
		extended := extendedResource(name)
		switch {
		case q.Cmp(zero) < 0:
			errs = append(errs, field.Invalid(p, q.String(), "must be greater than or equal to 0"))
		case extended && (!limited || q.Cmp(limit) != 0):
			errs = append(errs, field.Invalid(p, q.String(), fmt.Sprintf("must be equal to %s limit", name)))
		case extended && q.MilliValue()%1000 != 0:
			errs = append(errs, field.Invalid(p, q.String(), "must be an integer"))
		case limited && q.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(p, q.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		}
	}
	return errs
}

func extendedResource(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.HasPrefix(string(name), "kubernetes.io/")
}

func volumes(s *corev1.PodSpec, path *field.Path) (errs field.ErrorList) {
	seen := sets.New[string]()
	for i, v := range s.Volumes {
		p := path.Child("volumes").Index(i).Child("name")
		if msgs := validation.IsDNS1123Label(v.Name); len(msgs) > 0 {
			errs = append(errs, field.Invalid(p, v.Name, strings.Join(msgs, "; ")))
		}
		if seen.Has(v.Name) {
			errs = append(errs, field.Duplicate(p, v.Name))
		}
		seen.Insert(v.Name)
	}
	return errs
}
