package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The same fields as api/checkpoint.h reads, as Go's operators write them: a struct with pointers where a field may be missing, and deep
// copies as controller-gen makes them.

type Condition = metav1.Condition

type PodReference struct {
	Name string `json:"name"`
	UID  string `json:"uid,omitempty"`
}

type CheckpointSpec struct {
	PodRef     PodReference     `json:"podRef"`
	Containers []string         `json:"containers,omitempty"`
	Final      bool             `json:"final,omitempty"`
	Trigger    string           `json:"trigger,omitempty"`
	Deadline   *metav1.Duration `json:"deadline,omitempty"`
	Pinned     bool             `json:"pinned,omitempty"`
	TTL        *metav1.Duration `json:"ttl,omitempty"`
}

type Owner struct {
	Kind         string `json:"kind,omitempty"`
	Name         string `json:"name,omitempty"`
	UID          string `json:"uid,omitempty"`
	TemplateHash string `json:"templateHash,omitempty"`
	Ordinal      string `json:"ordinal,omitempty"`
}

type Container struct {
	Name        string `json:"name"`
	Image       string `json:"image,omitempty"`
	ImageDigest string `json:"imageDigest,omitempty"`
	Pages       int64  `json:"pages,omitempty"`
	Restorable  bool   `json:"restorable,omitempty"`
	Reason      string `json:"reason,omitempty"`
}

type Size struct {
	Memory int64 `json:"memory,omitempty"`
	Files  int64 `json:"files,omitempty"`
	Stored int64 `json:"stored,omitempty"`
}

type Timings struct {
	Frozen metav1.Duration `json:"frozen,omitempty"`
	Dump   metav1.Duration `json:"dump,omitempty"`
	Store  metav1.Duration `json:"store,omitempty"`
}

type Platform struct {
	Architecture string `json:"architecture,omitempty"`
	CPU          string `json:"cpu,omitempty"`
	Kernel       string `json:"kernel,omitempty"`
}

type Manifest struct {
	Store  string `json:"store,omitempty"`
	ID     string `json:"id,omitempty"`
	Digest string `json:"digest,omitempty"`
}

type CheckpointStatus struct {
	Phase       string       `json:"phase,omitempty"`
	Conditions  []Condition  `json:"conditions,omitempty"`
	NodeName    string       `json:"nodeName,omitempty"`
	PodUID      string       `json:"podUID,omitempty"`
	Owner       Owner        `json:"owner,omitempty"`
	StartedAt   *metav1.Time `json:"startedAt,omitempty"`
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`
	Size        Size         `json:"size,omitempty"`
	Timings     Timings      `json:"timings,omitempty"`
	Platform    Platform     `json:"platform,omitempty"`
	Containers  []Container  `json:"containers,omitempty"`
	Manifest    *Manifest    `json:"manifest,omitempty"`
}

type Checkpoint struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              CheckpointSpec   `json:"spec,omitempty"`
	Status            CheckpointStatus `json:"status,omitempty"`
}

type CheckpointList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Checkpoint `json:"items"`
}

func copyOf[T any](p *T) *T {
	if p == nil {
		return nil
	}
	value := *p
	return &value
}

func (in *Checkpoint) DeepCopyInto(out *Checkpoint) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Containers = append([]string(nil), in.Spec.Containers...)
	out.Spec.Deadline, out.Spec.TTL = copyOf(in.Spec.Deadline), copyOf(in.Spec.TTL)
	out.Status.Conditions = append([]Condition(nil), in.Status.Conditions...)
	out.Status.StartedAt, out.Status.CompletedAt = in.Status.StartedAt.DeepCopy(), in.Status.CompletedAt.DeepCopy()
	out.Status.Containers = append([]Container(nil), in.Status.Containers...)
	out.Status.Manifest = copyOf(in.Status.Manifest)
}

func (in *Checkpoint) DeepCopyObject() runtime.Object {
	out := new(Checkpoint)
	in.DeepCopyInto(out)
	return out
}

func (in *CheckpointList) DeepCopyObject() runtime.Object {
	out := new(CheckpointList)
	*out = *in
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Checkpoint, len(in.Items))
	for i := range in.Items {
		in.Items[i].DeepCopyInto(&out.Items[i])
	}
	return out
}

func AddToScheme(scheme *runtime.Scheme) error {
	version := schema.GroupVersion{Group: "holdfast.dev", Version: "v1alpha1"}
	scheme.AddKnownTypes(version, &Checkpoint{}, &CheckpointList{})
	metav1.AddToGroupVersion(scheme, version)
	return nil
}
