//! The same fields as api/checkpoint.h reads, as kube-rs operators write them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use serde::{Deserialize, Serialize};

#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default)]
#[kube(group = "holdfast.dev", version = "v1alpha1", kind = "Checkpoint", namespaced, status = "CheckpointStatus", schema = "disabled")]
#[serde(rename_all = "camelCase", default)]
pub struct CheckpointSpec {
    pub pod_ref: PodReference,
    pub containers: Option<Vec<String>>,
    pub r#final: bool,
    pub trigger: String,
    pub deadline: Option<String>,
    pub pinned: bool,
    pub ttl: Option<String>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct PodReference {
    pub name: String,
    pub uid: Option<String>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct CheckpointStatus {
    pub phase: String,
    pub conditions: Vec<Condition>,
    pub node_name: Option<String>,
    #[serde(rename = "podUID")]
    pub pod_uid: Option<String>,
    pub owner: Owner,
    pub started_at: Option<Time>,
    pub completed_at: Option<Time>,
    pub size: Size,
    pub timings: Timings,
    pub platform: Platform,
    pub containers: Vec<Container>,
    pub manifest: Option<Manifest>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub template_hash: String,
    pub ordinal: String,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct Size {
    pub memory: i64,
    pub files: i64,
    pub stored: i64,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct Timings {
    pub frozen: String,
    pub dump: String,
    pub store: String,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct Platform {
    pub architecture: String,
    pub cpu: String,
    pub kernel: String,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    pub name: String,
    pub image: String,
    pub image_digest: String,
    pub pages: i64,
    pub restorable: bool,
    pub reason: Option<String>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct Manifest {
    pub store: String,
    pub id: String,
    pub digest: String,
}
