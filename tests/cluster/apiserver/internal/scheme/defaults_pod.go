package scheme

import corev1 "k8s.io/api/core/v1"

func defaultPodSpec(s *corev1.PodSpec) {
	Default(&s.RestartPolicy, corev1.RestartPolicyAlways)
	Default(&s.DNSPolicy, corev1.DNSClusterFirst)
	Default(&s.SchedulerName, corev1.DefaultSchedulerName)
	DefaultPointer(&s.TerminationGracePeriodSeconds, 30)
	DefaultPointer(&s.SecurityContext, corev1.PodSecurityContext{})
	s.DeprecatedServiceAccount = s.ServiceAccountName
	for _, cs := range [][]corev1.Container{s.Containers, s.InitContainers} {
		for i := range cs {
			defaultContainer(&cs[i])
		}
	}
	for i := range s.Volumes {
		defaultVolume(&s.Volumes[i])
	}
}

func defaultContainer(c *corev1.Container) {
	Default(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	Default(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	Default(&c.ImagePullPolicy, corev1.PullIfNotPresent)
	for j := range c.Ports {
		Default(&c.Ports[j].Protocol, corev1.ProtocolTCP)
	}
	for k, v := range c.Resources.Limits {
		if _, ok := c.Resources.Requests[k]; !ok {
			if c.Resources.Requests == nil {
				c.Resources.Requests = corev1.ResourceList{}
			}
			c.Resources.Requests[k] = v
		}
	}
	for j := range c.Env {
		if f := c.Env[j].ValueFrom; f != nil && f.FieldRef != nil {
			Default(&f.FieldRef.APIVersion, "v1")
		}
	}
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if p != nil {
			Default(&p.TimeoutSeconds, 1)
			Default(&p.PeriodSeconds, 10)
			Default(&p.SuccessThreshold, 1)
			Default(&p.FailureThreshold, 3)
			if p.HTTPGet != nil {
				Default(&p.HTTPGet.Path, "/")
				Default(&p.HTTPGet.Scheme, corev1.URISchemeHTTP)
			}
		}
	}
}

func defaultVolume(v *corev1.Volume) {
	switch {
	case v.Secret != nil:
		DefaultPointer(&v.Secret.DefaultMode, 0o644)
	case v.ConfigMap != nil:
		DefaultPointer(&v.ConfigMap.DefaultMode, 0o644)
	case v.Projected != nil:
		DefaultPointer(&v.Projected.DefaultMode, 0o644)
	case v.DownwardAPI != nil:
		DefaultPointer(&v.DownwardAPI.DefaultMode, 0o644)
	}
}
