package fit

import (
	corev1 "k8s.io/api/core/v1"
)

const everyAddress = "0.0.0.0"

type hostPort struct {
	address  string
	protocol corev1.Protocol
	number   int32
}

// hostPorts are the node's ports that the pod takes for itself: those of its containers and sidecars.
func hostPorts(pod *corev1.Pod) (out []hostPort) {
	containers := pod.Spec.Containers
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			containers = append(containers[:len(containers):len(containers)], c)
		}
	}
	for _, c := range containers {
		for _, p := range c.Ports {
			port := hostPort{address: p.HostIP, protocol: p.Protocol, number: p.HostPort}
			if pod.Spec.HostNetwork && port.number == 0 {
				port.number = p.ContainerPort
			}
			if port.number == 0 {
				continue
			}
			if port.address == "" {
				port.address = everyAddress
			}
			if port.protocol == "" {
				port.protocol = corev1.ProtocolTCP
			}
			out = append(out, port)
		}
	}
	return out
}

// portTaken says whether one of the others has a port that the pod asks for.
func portTaken(pod *corev1.Pod, others []*corev1.Pod) bool {
	for _, wanted := range hostPorts(pod) {
		for _, other := range others {
			for _, taken := range hostPorts(other) {
				same := wanted.number == taken.number && wanted.protocol == taken.protocol
				everywhere := wanted.address == everyAddress || taken.address == everyAddress
				if same && (everywhere || wanted.address == taken.address) {
					return true
				}
			}
		}
	}
	return false
}
