"""Names on Kubernetes objects that placement reads or writes."""

from __future__ import annotations

#: Namespace of an installation that names none; forecasts of domains count only there.
SYSTEM_NAMESPACE = "wattpack-system"

GATE = "wattpack.io/placement"
#: Namespace label (value ``enabled``) by which a namespace opts in.
OPT_IN_LABEL = "wattpack.io/placement"
OPT_IN_VALUE = "enabled"

GANG_LABEL = "wattpack.io/gang"
GANG_SIZE_ANNOTATION = "wattpack.io/gang-size"
#: Bits a second that a member sends to its gang at peak; or bytes and seconds of an iteration.
GANG_PEAK_BANDWIDTH_ANNOTATION = "wattpack.io/gang-peak-bandwidth"
GANG_ITERATION_BYTES_ANNOTATION = "wattpack.io/gang-bytes-per-iteration"
GANG_ITERATION_SECONDS_ANNOTATION = "wattpack.io/gang-iteration-seconds"
GPU_MODELS_ANNOTATION = "wattpack.io/gpu-models"
#: On a node, and which of them a pod allows: any names, or those of feature discovery.
CPU_CLASS_LABEL = "wattpack.io/cpu-class"
CPU_CLASSES_ANNOTATION = "wattpack.io/cpu-classes"
NIC_CLASS_LABEL = "wattpack.io/nic-class"
NIC_CLASSES_ANNOTATION = "wattpack.io/nic-classes"
KERNEL_CLASS_ANNOTATION = "wattpack.io/kernel-class"
EXPECTED_WATTS_ANNOTATION = "wattpack.io/expected-watts-per-gpu"
#: On a pod: a WorkloadProfile of its namespace or a catalogue entry, by name.
WORKLOAD_LABEL = "wattpack.io/workload"
#: What a pod that shares boards keeps busy of one, alone on it, 0 to 1.
GPU_COMPUTE_SHARE_ANNOTATION = "wattpack.io/gpu-compute-share"
GPU_BANDWIDTH_SHARE_ANNOTATION = "wattpack.io/gpu-bandwidth-share"
#: Samples of a step of a pod's workload, where measured pairs of it depend on that.
BATCH_SIZE_ANNOTATION = "wattpack.io/batch-size"
#: On a node: the most that pods which share its boards may slow one another down, from 1.
SHARED_SLOW_DOWN_LABEL = "wattpack.io/shared-slow-down-limit"
#: On a WorkloadProfile that the controller wrote from telemetry and keeps: what binds the work.
CLASSIFIED_LABEL = "wattpack.io/classified"

GPU_MODEL_LABEL = "wattpack.io/gpu-model"
#: As NVIDIA's feature discovery says it.
GPU_PRODUCT_LABEL = "nvidia.com/gpu.product"
#: The first of these labels that a node carries names its GPU model.
GPU_MODEL_LABELS = (GPU_MODEL_LABEL, GPU_PRODUCT_LABEL)
#: On servers that the controller does not hold; it puts it on and takes it off.
UNCONTROLLED_TAINT = "wattpack.io/uncontrolled"
DEFAULT_SCHEDULER = "default-scheduler"

#: Taints by which autoscalers announce that a node will go.
DISRUPTION_TAINTS = frozenset(
    [
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
        "ToBeDeletedByClusterAutoscaler",
        "DeletionCandidateOfClusterAutoscaler",
    ]
)

#: By which a pod names the ProvisioningRequest whose capacity it uses (cluster autoscaler), the
#: older name last, and how that request's class is named beside it.
CONSUMED_REQUEST_ANNOTATIONS = (
    "autoscaling.x-k8s.io/consume-provisioning-request",
    "cluster-autoscaler.kubernetes.io/consume-provisioning-request",
)
PROVISIONING_CLASS_ANNOTATION = "autoscaling.x-k8s.io/provisioning-class-name"
#: Requests of ours begin so.
OWN_REQUEST_PREFIX = "wattpack-"

LEASE_NAME = "wattpack-scheduler"
#: On that Lease: how many times planning has worked; being alive does not count.
SUCCESSES_ANNOTATION = "wattpack.io/planning-successes"
