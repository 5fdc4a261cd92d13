//! The arguments that `crash`, `advise` and `lab run` share.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use lab::Extra;
use lab::record::strace;
use lab::report::counted;
use lab::workload::{self, Script, Tree, TreeSource, Workload};
use vfs::kind::{Format, Technique};

use crate::failure::{Failure, Outcome};
use crate::out;

/// Arguments of every run of crash campaigns.
#[derive(Args)]
pub(crate) struct CampaignArgs {
    /// Directory the tree workload copies
    #[arg(long, default_value = "/usr/share/doc")]
    pub(crate) tree: PathBuf,
    /// Cuts per mode and workload
    #[arg(long, default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) cuts: u32,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Real threads to judge on; the result does not depend on it
    #[arg(long, default_value_t = 2, value_parser = at_least_one)]
    pub(crate) threads: usize,
    /// What was found as JSON: an object per mode, or the report
    #[arg(long)]
    pub(crate) json: bool,
}

/// What the volumes of a run have besides what their mode needs.
#[derive(Args, Clone)]
pub(crate) struct ExtraArgs {
    /// Mount options besides those of the mode, as for mount -o
    #[arg(long = "mount-options", alias = "mount-opts", default_value = "", short = 'o')]
    #[arg(value_name = "OPTIONS", hide_default_value = true)]
    pub(crate) mount_opts: String,
    /// Features of the volume besides those that the mode needs, as for mkfs -O; of ext4 also
    /// block_size=1024 or 2048
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) features: String,
}

impl From<ExtraArgs> for Extra {
    fn from(ExtraArgs { mount_opts, features }: ExtraArgs) -> Self {
        Self { mount_opts, features }
    }
}

/// What loads are made from, besides their names.
#[derive(Args)]
pub(crate) struct LoadArgs {
    /// The directory below which a trace's paths count; everything outside is left out
    #[arg(long)]
    pub(crate) root: Option<PathBuf>,
    /// At most this many bytes of the tree, with k, m or g
    #[arg(long, default_value = "16m", value_parser = crate::target::parse_size)]
    pub(crate) max_bytes: u64,
}

impl LoadArgs {
    /// The load called `name`, of a size for `cuts` cuts; `tree` is what the tree workload copies.
    pub(crate) fn workload(
        &self,
        name: &str,
        tree: &Path,
        cuts: usize,
        is_quiet: bool,
    ) -> Outcome<Arc<dyn Workload>> {
        if name == "tree" {
            let source = TreeSource::load(tree, self.max_bytes)?;
            if source.left_out > 0 && !is_quiet {
                out::line(format!(
                    "tree: {}, {} bytes; {} left out by --max-bytes",
                    counted(source.files, "file"),
                    source.bytes,
                    counted(source.left_out, "file")
                ))?;
            }
            return Ok(Arc::new(Tree::new(Arc::new(source))));
        }
        if let Some(trace) = name.strip_prefix("strace:") {
            let wanted = || Failure::Usage("a trace needs --root DIR: whose files?".into());
            let root = self.root.as_ref().ok_or_else(wanted)?;
            let converted = strace::load(Path::new(trace), root)?;
            out::complain(&format!("{trace}: {converted}"));
            return Ok(Arc::new(converted.script));
        }
        if let Some(path) = name.strip_prefix("file:") {
            return Ok(Arc::new(Script::load(Path::new(path))?));
        }
        if name.contains('/') {
            return Ok(Arc::new(Script::load(Path::new(name))?));
        }
        workload::named(name, cuts).map(Arc::from).map_err(Failure::from)
    }
}

/// For clap: a number of threads.
pub(super) fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("expected a number from 1 on".into()),
        Ok(threads) => Ok(threads),
    }
}

/// The techniques of `format` by their names.
pub(super) fn techniques(
    format: &dyn Format,
    names: &[String],
) -> Outcome<Vec<&'static Technique>> {
    let mut before = names.iter().enumerate();
    if let Some((_, name)) = before.find(|(n, name)| names[..*n].contains(name)) {
        return Err(Failure::Usage(format!("mode {name}: given twice")));
    }
    Ok(names.iter().map(|name| subjects::technique(format, name)).collect::<Result<_, _>>()?)
}
