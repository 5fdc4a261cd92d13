//! From the bytes of a compressed cluster to its contents. Memory is bounded by the cluster: at
//! most 1 MiB, whatever the bytes say.

use std::io::Read;

use ruzstd::decoding::StreamingDecoder;

use super::lzo;
use crate::ondisk::compress::Algorithm;

/// What is wrong with compressed bytes.
#[derive(Debug)]
pub(super) struct Damage(pub(super) &'static str);

/// Decodes `input`, which has to fill `output`, a whole cluster.
pub(super) fn decode(algorithm: Algorithm, input: &[u8], output: &mut [u8]) -> Result<(), Damage> {
    let len = match algorithm {
        Algorithm::Lzo | Algorithm::LzoRle => lzo::decode(input, output)?,
        Algorithm::Lz4 => lz4_flex::block::decompress_into(input, output)
            .map_err(|_| Damage("not a block of LZ4"))?,
        Algorithm::Zstd => zstd(input, output)?,
    };
    if len == output.len() { Ok(()) } else { Err(Damage("less than a cluster")) }
}

/// The kernel gives a frame no more window than the cluster has bytes, and so do we.
fn zstd(input: &[u8], output: &mut [u8]) -> Result<usize, Damage> {
    let bad = |_| Damage("not a frame of Zstandard with a window within the cluster");
    let window = output.len() as u64;
    let mut decoder = StreamingDecoder::new_with_max_window_size(input, window).map_err(bad)?;
    decoder.read_exact(output).map_err(|_| Damage("not blocks of Zstandard"))?;
    Ok(output.len())
}
