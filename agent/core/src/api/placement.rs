//! Which nodes a deployment could land on, in the terms of a pod spec.
//!
//! Deliberately absent: pod affinity, which says nothing of a node by itself, and the decision whether a node matches.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{WhileUnschedulable, is_label_key, is_label_value};

/// The one field of a node that a term can match.
const NAME_FIELD: &str = "metadata.name";

/// Which nodes the deployment could land on, as a pod spec says it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Placement {
    /// Labels that a node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Affinity to nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Taints that the pods tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// What to do while the node takes no pods: it is cordoned, not ready or under a health check.
    #[serde(default)]
    pub while_unschedulable: WhileUnschedulable,
}

/// Affinity to nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Affinity {
    /// Affinity to nodes by their labels and name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<NodeAffinity>,
}

/// Affinity to nodes by their labels and name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeAffinity {
    /// What a node must fulfil.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
    /// What the scheduler prefers. Allowed, and not used: a node that is not preferred can still be landed on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preferred_during_scheduling_ignored_during_execution: Vec<PreferredTerm>,
}

/// Terms of which a node must match one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeSelector {
    /// The terms; a node matches if one of them does.
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// A term with a weight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PreferredTerm {
    /// How much it weighs, 1 to 100.
    pub weight: i32,
    /// The term.
    pub preference: NodeSelectorTerm,
}

/// One term: a node must match all of it. An empty term matches no node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeSelectorTerm {
    /// Requirements on labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Requirement>,
    /// Requirements on fields; metadata.name is the only one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_fields: Vec<Requirement>,
}

/// A requirement on one label or field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Requirement {
    /// The label key, or the field.
    pub key: String,
    /// How it compares.
    pub operator: SelectorOperator,
    /// What it is compared with: one or more for In and NotIn, none for Exists and DoesNotExist, one whole number for Gt and Lt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// How a label compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SelectorOperator {
    /// It is one of the values.
    In,
    /// It is none of the values, or not there.
    NotIn,
    /// It is there.
    Exists,
    /// It is not there.
    DoesNotExist,
    /// It is a number above the value.
    Gt,
    /// It is a number below the value.
    Lt,
}

/// A taint that the pods tolerate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Toleration {
    /// The taint's key; not set, with Exists, tolerates all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How the value compares.
    #[serde(default)]
    pub operator: TolerationOperator,
    /// The taint's value, for Equal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The taint's effect; not set tolerates all effects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<TaintEffect>,
    /// How long NoExecute is tolerated, in seconds. Allowed as in a pod spec, and not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

/// How a taint's value compares.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TolerationOperator {
    /// Key and value are equal.
    #[default]
    Equal,
    /// The key is there.
    Exists,
}

/// What a taint does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TaintEffect {
    /// No new pods.
    NoSchedule,
    /// No new pods, if there is another node.
    PreferNoSchedule,
    /// No pods.
    NoExecute,
}

impl Placement {
    /// Checks what needs more than one field. `path` is where it stands.
    ///
    /// # Errors
    /// A sentence that names the field and what is allowed.
    pub(crate) fn check(&self, path: &str) -> Result<(), String> {
        for (key, value) in &self.node_selector {
            if !is_label_key(key) || !is_label_value(value) {
                return Err(format!("{path}.nodeSelector: {key:?}: {value:?} is not a label"));
            }
        }
        let affinity = self.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        if let Some(affinity) = affinity {
            affinity.check(&format!("{path}.affinity.nodeAffinity"))?;
        }
        for (at, toleration) in self.tolerations.iter().enumerate() {
            toleration.check().map_err(|why| format!("{path}.tolerations[{at}].{why}"))?;
        }
        Ok(())
    }
}

impl NodeAffinity {
    fn check(&self, path: &str) -> Result<(), String> {
        if let Some(required) = &self.required_during_scheduling_ignored_during_execution {
            let path = format!("{path}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms");
            if required.node_selector_terms.is_empty() {
                return Err(format!("{path}: is empty; allowed: one or more terms"));
            }
            for (at, term) in required.node_selector_terms.iter().enumerate() {
                term.check().map_err(|why| format!("{path}[{at}].{why}"))?;
            }
        }
        for (at, preferred) in self.preferred_during_scheduling_ignored_during_execution.iter().enumerate() {
            let path = format!("{path}.preferredDuringSchedulingIgnoredDuringExecution[{at}]");
            if !(1..=100).contains(&preferred.weight) {
                return Err(format!("{path}.weight: {} is not allowed; allowed: 1 to 100", preferred.weight));
            }
            preferred.preference.check().map_err(|why| format!("{path}.preference.{why}"))?;
        }
        Ok(())
    }
}

impl NodeSelectorTerm {
    fn check(&self) -> Result<(), String> {
        for (at, requirement) in self.match_expressions.iter().enumerate() {
            if !is_label_key(&requirement.key) {
                return Err(format!("matchExpressions[{at}].key: {:?} is not a label key", requirement.key));
            }
            requirement.check_values().map_err(|why| format!("matchExpressions[{at}].values: {why}"))?;
        }
        for (at, requirement) in self.match_fields.iter().enumerate() {
            if requirement.key != NAME_FIELD {
                return Err(format!(
                    "matchFields[{at}].key: {:?} is not {NAME_FIELD}, the only one allowed",
                    requirement.key
                ));
            }
            let one_name = match requirement.operator {
                SelectorOperator::In | SelectorOperator::NotIn => requirement.values.len() == 1,
                SelectorOperator::Exists
                | SelectorOperator::DoesNotExist
                | SelectorOperator::Gt
                | SelectorOperator::Lt => false,
            };
            if !one_name {
                return Err(format!("matchFields[{at}]: allowed: In or NotIn with exactly one value"));
            }
        }
        Ok(())
    }
}

impl Requirement {
    fn check_values(&self) -> Result<(), String> {
        let count = self.values.len();
        let is_number = self.values.first().is_some_and(|value| value.parse::<i64>().is_ok());
        let (fits, allowed) = match self.operator {
            SelectorOperator::In | SelectorOperator::NotIn => (count > 0, "one or more for In and NotIn"),
            SelectorOperator::Exists | SelectorOperator::DoesNotExist => {
                (count == 0, "none for Exists and DoesNotExist")
            }
            SelectorOperator::Gt | SelectorOperator::Lt => (count == 1 && is_number, "one whole number for Gt and Lt"),
        };
        if fits { Ok(()) } else { Err(format!("{:?} is not allowed; allowed: {allowed}", self.values)) }
    }
}

impl Toleration {
    fn check(&self) -> Result<(), String> {
        let has_key = self.key.as_ref().is_some_and(|key| !key.is_empty());
        match self.operator {
            TolerationOperator::Equal if !has_key => {
                Err("operator: Equal needs a key; allowed without one: Exists".to_owned())
            }
            TolerationOperator::Exists if self.value.as_ref().is_some_and(|value| !value.is_empty()) => {
                Err("value: is set; allowed with Exists: none".to_owned())
            }
            TolerationOperator::Equal | TolerationOperator::Exists => Ok(()),
        }
    }
}
