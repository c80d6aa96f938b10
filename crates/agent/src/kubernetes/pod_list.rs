//! The kubelet's list of pods (`GET /pods`), of which few fields are read.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Annotations with the hash by which the groups of a static pod are named: of the kubelet's own pod, and of
/// the pod that the API server shows for it.
const CONFIG_HASHES: [&str; 2] = ["kubernetes.io/config.hash", "kubernetes.io/config.mirror"];
/// The label with the suffix of the names of a deployment's replica sets.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// The names of a pod and its containers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pod {
    /// The UID, and for a static pod the hash of its configuration.
    pub uids: Vec<String>,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// Kind and name of the object that manages the pod; of a deployment's replica set the deployment.
    pub owner: Option<(String, String)>,
    /// Names of the containers by ID.
    pub containers: BTreeMap<String, String>,
}

impl Pod {
    /// The name of the object that manages the pod, or its own.
    #[must_use]
    pub fn workload(&self) -> &str {
        self.owner.as_ref().map_or(&self.name, |(_, name)| name)
    }
}

/// Why an answer is no list of pods.
#[derive(Debug, thiserror::Error)]
pub enum PodListError {
    /// It is not JSON, or a field has another type.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// It is another object.
    #[error("it is {0:?}, not a PodList")]
    OtherKind(String),
}

/// Parses a list of pods. With `node`, only those of this node. Pods without a UID are left out.
///
/// # Errors
/// The text is no list of pods.
pub fn parse(text: &[u8], node: Option<&str>) -> Result<Vec<Pod>, PodListError> {
    let list: List = serde_json::from_slice(text)?;
    if list.kind != "PodList" {
        return Err(PodListError::OtherKind(list.kind));
    }
    let items = list.items.unwrap_or_default().into_iter();
    let is_of_node = |item: &Item| match (node, &item.spec.node_name) {
        (Some(wanted), Some(node)) => wanted == node,
        _ => true,
    };
    Ok(items.filter(is_of_node).filter_map(pod).collect())
}

fn pod(item: Item) -> Option<Pod> {
    let metadata = item.metadata;
    let hashes = CONFIG_HASHES
        .iter()
        .filter_map(|name| metadata.annotations.get(*name).cloned());
    let uids: Vec<String> = std::iter::once(metadata.uid)
        .chain(hashes)
        .filter(|uid| !uid.is_empty())
        .collect();
    if uids.is_empty() {
        return None;
    }
    let status = item.status;
    let statuses = [
        status.container_statuses,
        status.init_container_statuses,
        status.ephemeral_container_statuses,
    ];
    let containers = statuses.into_iter().flatten().flatten().filter_map(|container| {
        // `containerd://ID`
        let (_, id) = container.container_id.split_once("://")?;
        Some((id.to_owned(), container.name))
    });
    Some(Pod {
        owner: owner(&metadata.owner_references, &metadata.labels),
        uids,
        namespace: metadata.namespace,
        name: metadata.name,
        labels: metadata.labels,
        containers: containers.collect(),
    })
}

fn owner(owners: &[Owner], labels: &BTreeMap<String, String>) -> Option<(String, String)> {
    let owner = owners.iter().find(|owner| owner.controller).or(owners.first())?;
    // The hash is compared, not guessed: a replica set without a deployment may have any name.
    let deployment = labels
        .get(TEMPLATE_HASH)
        .filter(|_| owner.kind == "ReplicaSet")
        .and_then(|hash| owner.name.strip_suffix(hash.as_str())?.strip_suffix('-'));
    Some(match deployment {
        Some(name) => ("Deployment".to_owned(), name.to_owned()),
        None => (owner.kind.clone(), owner.name.clone()),
    })
}

#[derive(Deserialize)]
struct List {
    kind: String,
    // Go writes an empty list as null.
    items: Option<Vec<Item>>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    name: String,
    namespace: String,
    uid: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    #[serde(rename = "ownerReferences")]
    owner_references: Vec<Owner>,
}

#[derive(Deserialize)]
struct Owner {
    kind: String,
    name: String,
    #[serde(default)]
    controller: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Spec {
    #[serde(rename = "nodeName")]
    node_name: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    container_statuses: Option<Vec<ContainerStatus>>,
    init_container_statuses: Option<Vec<ContainerStatus>>,
    ephemeral_container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Deserialize)]
struct ContainerStatus {
    name: String,
    // Absent while the container waits.
    #[serde(default, rename = "containerID")]
    container_id: String,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    const PODS: &[u8] = include_bytes!("../../tests/pods.json");

    #[test]
    fn list_has_names_owners_and_containers() {
        let pods = parse(PODS, Some("worker-1")).unwrap();
        let names: Vec<_> = pods
            .iter()
            .map(|pod| (pod.name.as_str(), pod.workload()))
            .collect();
        assert_eq!(
            names,
            [
                ("web-7d4b9c6f5d-x2k8p", "web"),
                ("db-0", "db"),
                ("lone-abc12-zzzzz", "lone-abc12"),
                ("etcd-worker-1", "etcd-worker-1"),
            ]
        );
        let web = &pods[0];
        assert_eq!(web.owner.as_ref().unwrap().0, "Deployment");
        assert_eq!(web.labels["app"], "web");
        let containers: Vec<&str> = web.containers.values().map(String::as_str).collect();
        assert_eq!(
            containers,
            ["server", "migrate"],
            "and none for the one that waits"
        );
        assert_eq!(pods[3].uids.len(), 2, "a static pod has a hash as well");
    }

    #[test]
    fn pods_of_other_nodes_are_left_out() {
        let names = |node| parse(PODS, node).unwrap().len();
        assert_eq!(
            (names(Some("worker-1")), names(None), names(Some("none"))),
            (4, 5, 0)
        );
    }

    #[test]
    fn empty_and_foreign_answers_are_told_apart() {
        assert_eq!(parse(br#"{"kind":"PodList","items":null}"#, None).unwrap(), []);
        for (text, why) in [
            (
                &br#"{"kind":"Status","message":"no"}"#[..],
                "it is \"Status\", not a PodList",
            ),
            (b"<html>", "expected value"),
            (br#"{"kind":"PodList","items":[{}]}"#, "missing field `metadata`"),
            (br#"{"items":[]}"#, "missing field `kind`"),
            (
                br#"{"kind":"PodList","items":[{"metadata":{"uid":7}}]}"#,
                "invalid type",
            ),
        ] {
            let error = parse(text, None).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
