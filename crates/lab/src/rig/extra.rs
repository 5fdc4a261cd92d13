//! What the volumes of a run have besides what their mode needs.

use serde::{Deserialize, Serialize};

use crate::workload::shell_word;

/// Words for every volume of a run. In what is printed for machines they are there if they are not
/// empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extra {
    /// Mount options besides those of the mode.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mount_opts: String,
    /// Features besides those that the mode needs: see [`vfs::kind::Format::make_with`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub features: String,
}

impl Extra {
    /// As arguments of a command.
    pub fn arguments(&self) -> String {
        let words = [("mount-options", &self.mount_opts), ("features", &self.features)];
        let given = words.iter().filter(|(_, words)| !words.is_empty());
        given.map(|(name, words)| format!(" --{name} {}", shell_word(words))).collect()
    }
}
