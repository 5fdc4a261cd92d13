//! From the bytes of a compressed cluster to its contents. Memory is bounded by the cluster: at
//! most 1 MiB, whatever the bytes say.

use std::io::Read;

use ruzstd::decoding::StreamingDecoder;

#[cfg(feature = "foreign")]
use super::lzo;
use crate::error::Result;
use crate::ondisk::compress::Algorithm;

/// What is wrong with compressed bytes.
#[derive(Debug)]
pub(super) struct Damage(pub(super) &'static str);

/// Decodes clusters of one algorithm.
pub(super) struct Decoder(fn(&[u8], &mut [u8]) -> Result<usize, Damage>);

impl Decoder {
    /// The codec of `algorithm`, if this build has it.
    pub(super) fn of(algorithm: Algorithm) -> Result<Self> {
        Ok(Self(match algorithm {
            #[cfg(feature = "foreign")]
            Algorithm::Lzo | Algorithm::LzoRle => lzo::decode,
            #[cfg(not(feature = "foreign"))]
            Algorithm::Lzo | Algorithm::LzoRle => {
                return Err(crate::error::foreign("a file in LZO"));
            }
            Algorithm::Lz4 => lz4,
            Algorithm::Zstd => zstd,
        }))
    }

    /// Decodes `input`, which must fill `output`, a whole cluster.
    pub(super) fn decode(&self, input: &[u8], output: &mut [u8]) -> Result<(), Damage> {
        let len = (self.0)(input, output)?;
        if len == output.len() { Ok(()) } else { Err(Damage("less than a cluster")) }
    }
}

fn lz4(input: &[u8], output: &mut [u8]) -> Result<usize, Damage> {
    lz4_flex::block::decompress_into(input, output).map_err(|_| Damage("not a block of LZ4"))
}

/// Like the kernel, allows a frame no larger window than the cluster has bytes.
fn zstd(input: &[u8], output: &mut [u8]) -> Result<usize, Damage> {
    let bad = |_| Damage("not a frame of Zstandard with a window within the cluster");
    let window = output.len() as u64;
    let mut decoder = StreamingDecoder::new_with_max_window_size(input, window).map_err(bad)?;
    decoder.read_exact(output).map_err(|_| Damage("not blocks of Zstandard"))?;
    Ok(output.len())
}

#[cfg(all(test, not(feature = "foreign")))]
mod tests {
    use super::*;

    #[test]
    fn lzo_is_refused_by_name() {
        for algorithm in [Algorithm::Lzo, Algorithm::LzoRle] {
            let error = Decoder::of(algorithm).err().expect("a refusal").to_string();
            assert!(error.contains("LZO") && error.contains("'foreign'"), "{error}");
        }
        assert!(Decoder::of(Algorithm::Lz4).is_ok() && Decoder::of(Algorithm::Zstd).is_ok());
    }
}
