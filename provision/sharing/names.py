"""Names that the charts of HAMi and KAI give to what they bring."""

from __future__ import annotations

from provision.kube.kinds import NAMESPACE, KubeKind
from provision.kube.queries import object_query

ROLE_NAME = "gpu_sharing"

HAMI, HAMI_NAMESPACE = "hami", "hami-system"
HAMI_REPOSITORY = "https://project-hami.github.io/HAMi"
HAMI_PLUGIN, HAMI_SCHEDULER = "hami-device-plugin", "hami-scheduler"
HAMI_PODS = "app.kubernetes.io/component=hami-device-plugin"
HAMI_WEBHOOK = "hami-webhook"
HAMI_LABEL = ("gpu", "on")
"""Label of the nodes on which HAMi's plugin runs."""

KAI, KAI_NAMESPACE = "kai-scheduler", "kai-scheduler"
KAI_REPOSITORY = "oci://ghcr.io/kai-scheduler/kai-scheduler/kai-scheduler"
KAI_DEPLOYMENTS = (
    "kai-operator",
    "kai-scheduler-default",
    "binder",
    "admission",
    "pod-grouper",
    "podgroup-controller",
    "queue-controller",
)
"""What KAI's operator runs; the scheduler's name is that of its shard."""
KAI_NAMESPACES = ("kai-resource-reservation", "kai-scale-adjust")
"""Namespaces that stay behind; a pod in the first one holds a card."""
KAI_CRDS = (
    "bindrequests.scheduling.run.ai",
    "podgroups.scheduling.run.ai",
    "queues.scheduling.run.ai",
    "schedulingshards.kai.scheduler",
    "topologies.kai.scheduler",
    "configs.kai.scheduler",
)
DEFAULT_PARENT, DEFAULT_QUEUE = "default-parent-queue", "default-queue"

QUEUE = KubeKind("scheduling.run.ai/v2", "Queue", "queues", namespaced=False)
WEBHOOK = KubeKind(
    "admissionregistration.k8s.io/v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    namespaced=False,
)

VALIDATING_WEBHOOK = KubeKind(
    "admissionregistration.k8s.io/v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
)
KAI_WEBHOOKS = (
    (WEBHOOK, "mutating-kai-admission"),
    (VALIDATING_WEBHOOK, "validating-kai-admission"),
    (VALIDATING_WEBHOOK, "kai-queue-validation-v2"),
    (VALIDATING_WEBHOOK, "kai-podgroup-validation-v2alpha2"),
)
"""Webhooks that KAI's operator makes (its `config_controller.go`); one that is left refuses pods."""

FRACTIONING_NAMESPACE = "gpu-fractioning"
MODE_LABEL = "provision/sharing-mode"
"""Label of KAI's namespace: its release and that of its fork have one name, and exclude each other."""
HOMES = {
    "hami": object_query(NAMESPACE, HAMI_NAMESPACE),
    "kai_fractions": object_query(NAMESPACE, FRACTIONING_NAMESPACE),
    "kai": object_query(NAMESPACE, KAI_NAMESPACE),
}
"""The questions for the namespaces whose label says that a mode is ours; they go last."""
