//! The suffix file: 64 bytes of header, document bounds, suffix positions; all little endian.
//!
//! ```text
//! at  bytes  what
//!  0      8  magic "SPECRSUF"
//!  8      4  version (1)
//! 12      4  bytes per id in the token file (2 or 4)
//! 16      4  bytes per suffix position (4)
//! 20      4  zero
//! 24      8  vocabulary size: every id is below it
//! 32      8  number of tokens n
//! 40      8  number of documents d
//! 48      4  CRC-32 of the token file
//! 52      4  CRC-32 of the bounds
//! 56      4  CRC-32 of the positions
//! 60      4  CRC-32 of bytes 0 to 59
//! 64  8(d+1)  bounds: where each document starts, and n
//!  …     4n  positions of all suffixes, in order of their tokens
//! ```
//! The file's length follows from n and d exactly. Knows how to write and to check, not to search.

use std::io::Write;
use std::path::Path;

use crate::error::{Error, Result};

pub const MAGIC: &[u8; 8] = b"SPECRSUF";
pub const VERSION: u32 = 1;
pub const HEADER_BYTES: usize = 64;
pub const POSITION_BYTES: usize = POSITION_WIDTH as usize;
const POSITION_WIDTH: u32 = 4;
const CHECKED_BYTES: usize = 60;

/// Bytes per id in a token file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    Two,
    Four,
}

impl Width {
    pub fn of(bytes: u64) -> Result<Width> {
        match bytes {
            2 => Ok(Width::Two),
            4 => Ok(Width::Four),
            _ => Err(Error::Argument(format!("token width {bytes}, expected 2 or 4 bytes"))),
        }
    }

    fn number(self) -> u32 {
        match self {
            Width::Two => 2,
            Width::Four => 4,
        }
    }

    pub fn bytes(self) -> usize {
        self.number() as usize
    }
}

/// What the first 64 bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub width: Width,
    pub vocab_size: u64,
    pub tokens: u64,
    pub documents: u64,
    pub tokens_crc: u32,
    pub bounds_crc: u32,
    pub positions_crc: u32,
}

impl Header {
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&self.width.number().to_le_bytes());
        out[16..20].copy_from_slice(&POSITION_WIDTH.to_le_bytes());
        out[24..32].copy_from_slice(&self.vocab_size.to_le_bytes());
        out[32..40].copy_from_slice(&self.tokens.to_le_bytes());
        out[40..48].copy_from_slice(&self.documents.to_le_bytes());
        out[48..52].copy_from_slice(&self.tokens_crc.to_le_bytes());
        out[52..56].copy_from_slice(&self.bounds_crc.to_le_bytes());
        out[56..60].copy_from_slice(&self.positions_crc.to_le_bytes());
        let crc = crc32fast::hash(&out[..CHECKED_BYTES]);
        out[60..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub fn read(path: &Path, file: &[u8]) -> Result<Header> {
        let fault = |fault: String| Error::format(path, fault);
        if file.len() < HEADER_BYTES || !file.starts_with(MAGIC) {
            return Err(fault(format!(
                "not a suffix file ({} bytes), expected one that starts with SPECRSUF",
                file.len()
            )));
        }
        let (version, crc) = (u32_at(file, 8), u32_at(file, CHECKED_BYTES));
        if version != VERSION {
            return Err(fault(format!("version {version}, this specret reads {VERSION}")));
        }
        if crc != crc32fast::hash(&file[..CHECKED_BYTES]) {
            return Err(fault("the header's checksum is wrong".into()));
        }
        if u32_at(file, 16) != POSITION_WIDTH {
            return Err(fault(format!(
                "positions of {} bytes, expected {POSITION_WIDTH}",
                u32_at(file, 16)
            )));
        }
        Ok(Header {
            width: Width::of(u64::from(u32_at(file, 12)))?,
            vocab_size: u64_at(file, 24),
            tokens: u64_at(file, 32),
            documents: u64_at(file, 40),
            tokens_crc: u32_at(file, 48),
            bounds_crc: u32_at(file, 52),
            positions_crc: u32_at(file, 56),
        })
    }
}

/// The checked parts of a suffix file.
pub struct Sections {
    pub header: Header,
    pub bounds: Vec<u64>,
    pub positions_at: usize,
}

/// Check everything that the file says of itself and of its token file.
pub fn validate(path: &Path, file: &[u8], tokens_path: &Path, tokens: &[u8]) -> Result<Sections> {
    let header = Header::read(path, file)?;
    let sizes = || {
        let n = usize::try_from(header.tokens).ok()?;
        let d = usize::try_from(header.documents).ok()?;
        let positions_at = d.checked_add(1)?.checked_mul(8)?.checked_add(HEADER_BYTES)?;
        let total = n.checked_mul(POSITION_BYTES)?.checked_add(positions_at)?;
        Some((positions_at, total, n.checked_mul(header.width.bytes())?))
    };
    let (positions_at, total, tokens_bytes) =
        sizes().ok_or_else(|| Error::format(path, "sizes in the header overflow"))?;
    if file.len() != total {
        let seen = file.len();
        return Err(Error::format(path, format!("{seen} bytes, expected {total}")));
    }
    if tokens.len() != tokens_bytes {
        let seen = tokens.len();
        return Err(Error::format(
            tokens_path,
            format!("{seen} bytes, its suffix file expects {tokens_bytes}"),
        ));
    }
    let bounds = &file[HEADER_BYTES..positions_at];
    for (name, crc, expected) in [
        ("bounds", crc32fast::hash(bounds), header.bounds_crc),
        ("positions", crc32fast::hash(&file[positions_at..]), header.positions_crc),
    ] {
        if crc != expected {
            return Err(Error::format(path, format!("the checksum of its {name} is wrong")));
        }
    }
    if crc32fast::hash(tokens) != header.tokens_crc {
        return Err(Error::format(
            tokens_path,
            "its content is not what the suffix file was built from (checksum)",
        ));
    }
    let bounds = read_bounds(bounds);
    check_bounds(&bounds, header.tokens).map_err(|fault| Error::format(path, fault))?;
    Ok(Sections { header, bounds, positions_at })
}

/// Document bounds must start at 0, never fall, and end at the number of tokens.
pub fn check_bounds(bounds: &[u64], tokens: u64) -> std::result::Result<(), String> {
    match (bounds.first(), bounds.last()) {
        (Some(0), Some(&last)) if last == tokens => {}
        (first, last) => {
            return Err(format!(
                "document bounds run from {first:?} to {last:?}, expected 0 to {tokens}"
            ));
        }
    }
    match bounds.windows(2).position(|pair| pair[0] > pair[1]) {
        Some(i) => Err(format!("document bounds fall after entry {i}")),
        None => Ok(()),
    }
}

/// What a suffix file is made of.
pub struct Parts<'a> {
    pub width: Width,
    pub vocab_size: u64,
    /// The token file's bytes.
    pub tokens: &'a [u8],
    pub bounds: &'a [u64],
    pub positions: &'a [u8],
}

/// Write header, bounds and positions.
pub fn write(out: &mut impl Write, parts: &Parts) -> std::io::Result<()> {
    let bounds: Vec<u8> = parts.bounds.iter().flat_map(|b| b.to_le_bytes()).collect();
    let header = Header {
        width: parts.width,
        vocab_size: parts.vocab_size,
        tokens: (parts.tokens.len() / parts.width.bytes()) as u64,
        documents: parts.bounds.len().saturating_sub(1) as u64,
        tokens_crc: crc32fast::hash(parts.tokens),
        bounds_crc: crc32fast::hash(&bounds),
        positions_crc: crc32fast::hash(parts.positions),
    };
    out.write_all(&header.to_bytes())?;
    out.write_all(&bounds)?;
    out.write_all(parts.positions)
}

fn read_bounds(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|b| u64_at(b, 0)).collect()
}

/// The four bytes at `at`; the caller has checked the length.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(four)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(eight)
}
