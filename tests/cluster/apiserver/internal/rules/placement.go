package rules

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func gates(s *corev1.PodSpec, path *field.Path) (errs field.ErrorList) {
	seen := sets.New[string]()
	for i, g := range s.SchedulingGates {
		p := path.Child("schedulingGates").Index(i)
		if msgs := validation.IsQualifiedName(g.Name); len(msgs) > 0 {
			errs = append(errs, field.Invalid(p.Child("name"), g.Name, strings.Join(msgs, "; ")))
		}
		if seen.Has(g.Name) {
			errs = append(errs, field.Duplicate(p, g.Name))
		}
		seen.Insert(g.Name)
	}
	if len(s.SchedulingGates) > 0 && s.NodeName != "" {
		errs = append(errs, field.Forbidden(path.Child("nodeName"), "cannot be set until all schedulingGates have been cleared"))
	}
	return errs
}

func nodeAffinityTerms(a *corev1.NodeAffinity, path *field.Path) (errs field.ErrorList) {
	if r := a.RequiredDuringSchedulingIgnoredDuringExecution; r != nil {
		p := path.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
		if len(r.NodeSelectorTerms) == 0 {
			errs = append(errs, field.Required(p, "must have at least one node selector term"))
		}
		for i, t := range r.NodeSelectorTerms {
			errs = append(errs, selectorTerm(t, p.Index(i))...)
		}
	}
	for i, t := range a.PreferredDuringSchedulingIgnoredDuringExecution {
		p := path.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
		if t.Weight < 1 || t.Weight > 100 {
			errs = append(errs, field.Invalid(p.Child("weight"), t.Weight, "must be in the range 1-100"))
		}
		errs = append(errs, selectorTerm(t.Preference, p.Child("preference"))...)
	}
	return errs
}

func selectorTerm(t corev1.NodeSelectorTerm, path *field.Path) (errs field.ErrorList) {
	for i, r := range t.MatchExpressions {
		p := path.Child("matchExpressions").Index(i)
		if msgs := validation.IsQualifiedName(r.Key); len(msgs) > 0 {
			errs = append(errs, field.Invalid(p.Child("key"), r.Key, strings.Join(msgs, "; ")))
		}
		errs = append(errs, operands(r, p)...)
	}
	for i, r := range t.MatchFields {
		p := path.Child("matchFields").Index(i)
		if r.Key != "metadata.name" {
			errs = append(errs, field.Invalid(p.Child("key"), r.Key, "not a valid field selector key"))
		}
		if r.Operator != corev1.NodeSelectorOpIn && r.Operator != corev1.NodeSelectorOpNotIn {
			errs = append(errs, field.Invalid(p.Child("operator"), r.Operator, "not a valid selector operator"))
		} else if len(r.Values) != 1 {
			errs = append(errs, field.Required(p.Child("values"), "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"))
		}
		for j, v := range r.Values {
			errs = append(errs, dnsName(v, p.Child("values").Index(j))...)
		}
	}
	return errs
}

func operands(r corev1.NodeSelectorRequirement, path *field.Path) field.ErrorList {
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			return field.ErrorList{field.Required(path.Child("values"), "must be specified when `operator` is 'In' or 'NotIn'")}
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			return field.ErrorList{field.Forbidden(path.Child("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")}
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			return field.ErrorList{field.Required(path.Child("values"), "must be specified single value when `operator` is 'Lt' or 'Gt'")}
		}
	default:
		return field.ErrorList{field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator")}
	}
	return nil
}

func toleration(t corev1.Toleration, path *field.Path) (errs field.ErrorList) {
	if t.Key == "" && t.Operator != corev1.TolerationOpExists {
		errs = append(errs, field.Invalid(path.Child("operator"), t.Operator, "operator must be Exists when `key` is empty"))
	}
	if t.Operator == corev1.TolerationOpExists && t.Value != "" {
		errs = append(errs, field.Invalid(path, t.Operator, "value must be empty when `operator` is 'Exists'"))
	}
	if t.Operator != "" {
		errs = append(errs, oneOf(path.Child("operator"), t.Operator, corev1.TolerationOpEqual, corev1.TolerationOpExists)...)
	}
	if t.Effect != "" {
		errs = append(errs, oneOf(path.Child("effect"), t.Effect, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
	}
	return errs
}

func labelPair(key, value string, path *field.Path) (errs field.ErrorList) {
	for _, msg := range validation.IsQualifiedName(key) {
		errs = append(errs, field.Invalid(path, key, msg))
	}
	for _, msg := range validation.IsValidLabelValue(value) {
		errs = append(errs, field.Invalid(path.Key(key), value, msg))
	}
	return errs
}

// dnsName accepts an empty name: required fields are checked where they are required.
func dnsName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return nil
	}
	if msgs := validation.IsDNS1123Subdomain(name); len(msgs) > 0 {
		return field.ErrorList{field.Invalid(path, name, strings.Join(msgs, "; "))}
	}
	return nil
}

func oneOf[T ~string](path *field.Path, value T, allowed ...T) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}
