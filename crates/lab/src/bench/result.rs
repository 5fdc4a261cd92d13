//! What benchmarks print.

use serde::Serialize;

/// Of what something was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Subject {
    /// The benchmark.
    pub bench: &'static str,
    /// The file system.
    pub fs: &'static str,
    /// The drive's profile.
    pub drive: String,
    /// The machine.
    pub machine: String,
    /// Whether time was the model's.
    pub simulated: bool,
    /// Mount options.
    pub mount_opts: String,
    /// Whether files were opened with `O_DIRECT`; not said if not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub direct: bool,
    /// The seed.
    pub seed: u64,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BenchResult {
    /// Of what.
    #[serde(flatten)]
    pub subject: Subject,
    /// Threads.
    pub threads: u64,
    /// Operations done.
    pub ops: u64,
    /// Time they took, seconds.
    pub seconds: f64,
    /// Operations per second.
    pub ops_per_s: f64,
    /// Flush commands sent to the drive meanwhile.
    pub flushes: u64,
    /// Payload bytes per second.
    pub bytes_per_s: f64,
    /// Median latency of an operation, microseconds.
    pub latency_us_p50: f64,
    /// 99th percentile.
    pub latency_us_p99: f64,
    /// 99.9th percentile.
    pub latency_us_p999: f64,
    /// The longest.
    pub latency_us_max: f64,
}
