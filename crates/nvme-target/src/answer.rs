//! PDUs that we send: responses, data, requests for data, and terminations.

use zerocopy::IntoBytes;

use crate::command::{Cqe, Status};
use crate::io::Data;
use crate::output::Output;
use crate::pdu::{
    Common, DIGEST, DataHeader, Digests, Fatal, HEADER_MAX, Initialize, MAX_H2C_DATA, Terminate,
    flag, kind,
};

const DATA_HEADER: usize = size_of::<DataHeader>();
const RESPONSE: usize = 24;

/// The way to the host, as both sides agreed on it.
pub(crate) struct Answers {
    pub(crate) output: Output,
    digests: Digests,
    /// The alignment that the host wants for data, in bytes.
    align: usize,
    /// If data was sent successfully, no response follows it.
    pub(crate) no_flow_control: bool,
}

impl Default for Answers {
    fn default() -> Self {
        let (output, digests) = (Output::default(), Digests::default());
        Self { output, digests, align: 4, no_flow_control: false }
    }
}

impl Answers {
    /// Answers ICReq: we support all digests and need no alignment.
    pub(crate) fn initialize(&mut self, digests: Digests, align: u8) {
        let (hlen, plen) = (HEADER_MAX as u8, (HEADER_MAX as u32).into());
        let response = Initialize {
            common: Common { kind: kind::IC_RESP, flags: 0, hlen, pdo: 0, plen },
            pfv: 0.into(),
            align: 0,
            digests: digests.bits(),
            most: MAX_H2C_DATA.into(),
            reserved: [0; 112],
        };
        self.output.bytes(response.as_bytes());
        self.digests = digests;
        self.align = (usize::from(align) + 1) * 4;
    }

    pub(crate) fn digests(&self) -> Digests {
        self.digests
    }

    /// A header and its digest.
    fn header(&mut self, bytes: &[u8]) {
        self.output.bytes(bytes);
        if self.digests.header {
            self.output.bytes(&crc32c::crc32c(bytes).to_le_bytes());
        }
    }

    fn header_flags(&self) -> u8 {
        if self.digests.header { flag::HEADER_DIGEST } else { 0 }
    }

    /// A command's completion.
    pub(crate) fn complete(&mut self, cqe: &Cqe) {
        let whole = RESPONSE + self.digests.header_len();
        let mut response = [0; RESPONSE];
        let common = Common {
            kind: kind::CAPSULE_RESP,
            flags: self.header_flags(),
            hlen: RESPONSE as u8,
            pdo: 0,
            plen: (whole as u32).into(),
        };
        response[..8].copy_from_slice(common.as_bytes());
        response[8..].copy_from_slice(cqe.as_bytes());
        self.header(&response);
    }

    /// A command's data, if it has any, and its completion.
    pub(crate) fn answer(&mut self, cqe: &Cqe, data: Data) {
        let length = data.len();
        if length == 0 {
            return self.complete(cqe);
        }
        let fine = cqe.status.get() == Status::SUCCESS.field() && cqe.result.get() == 0;
        let success = self.no_flow_control && fine;
        let plain = DATA_HEADER + self.digests.header_len();
        let start = plain.next_multiple_of(self.align);
        let whole = start + length + self.digests.data_len();
        let mut flags = self.header_flags() | flag::LAST;
        flags |= if self.digests.data { flag::DATA_DIGEST } else { 0 };
        flags |= if success { flag::SUCCESS } else { 0 };
        let (hlen, pdo) = (DATA_HEADER as u8, start as u8);
        let header = DataHeader {
            common: Common { kind: kind::C2H_DATA, flags, hlen, pdo, plen: (whole as u32).into() },
            cid: cqe.cid,
            tag: 0.into(),
            offset: 0.into(),
            length: (length as u32).into(),
            reserved: 0.into(),
        };
        self.header(header.as_bytes());
        if start > plain {
            self.output.bytes(&[0; HEADER_MAX][..start - plain]);
        }
        self.data(data);
        if !success {
            self.complete(cqe);
        }
    }

    fn data(&mut self, data: Data) {
        let mut digest = 0;
        match data {
            Data::None => return,
            Data::Bytes(bytes) => {
                if self.digests.data {
                    digest = crc32c::crc32c(&bytes);
                }
                self.output.bytes(&bytes);
            }
            Data::Blocks(blocks) => {
                for page in blocks {
                    if self.digests.data {
                        digest = crc32c::crc32c_append(digest, page.bytes());
                    }
                    self.output.page(page, drive::BLOCK_SIZE);
                }
            }
        }
        if self.digests.data {
            self.output.bytes(&digest.to_le_bytes());
        }
    }

    /// Asks for all the data of a command.
    pub(crate) fn ready_to_transfer(&mut self, cid: u16, tag: u16, length: u32) {
        let whole = DATA_HEADER + self.digests.header_len();
        let header = DataHeader {
            common: Common {
                kind: kind::R2T,
                flags: self.header_flags(),
                hlen: DATA_HEADER as u8,
                pdo: 0,
                plen: (whole as u32).into(),
            },
            cid: cid.into(),
            tag: tag.into(),
            offset: 0.into(),
            length: length.into(),
            reserved: 0.into(),
        };
        self.header(header.as_bytes());
    }

    /// Says why the connection ends, with the wrong header. Never has a digest.
    pub(crate) fn terminate(&mut self, fatal: Fatal, blamed: &[u8]) {
        let blamed = &blamed[..blamed.len().min(HEADER_MAX)];
        let (status, information) = fatal.codes();
        let hlen = size_of::<Terminate>();
        let plen = ((hlen + blamed.len()) as u32).into();
        let header = Terminate {
            common: Common { kind: kind::C2H_TERM_REQ, flags: 0, hlen: hlen as u8, pdo: 0, plen },
            status: status.into(),
            information: information.into(),
            reserved: [0; 10],
        };
        self.output.bytes(header.as_bytes());
        self.output.bytes(blamed);
    }
}

const _: () = assert!(DIGEST == 4 && RESPONSE == 8 + size_of::<Cqe>());
