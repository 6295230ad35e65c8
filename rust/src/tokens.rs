//! Token ids and document ends as a search sees them: mapped from disk, read with bounds checked.

use std::fs::File;
use std::path::Path;

use memmap2::Mmap;

use crate::error::{Error, Result};
use crate::format::Width;

/// Token ids as they lie in their file.
pub struct Tokens {
    pub bytes: Mmap,
    width: Width,
}

impl Tokens {
    pub fn open(path: &Path, width: Width) -> Result<Tokens> {
        Ok(Tokens { bytes: map(path)?, width })
    }

    pub fn len(&self) -> usize {
        self.bytes.len() / self.width.bytes()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub fn get(&self, at: usize) -> Option<u32> {
        match self.width {
            Width::Two => {
                let two = self.bytes.get(at.checked_mul(2)?..)?.first_chunk::<2>()?;
                Some(u32::from(u16::from_le_bytes(*two)))
            }
            Width::Four => {
                let four = self.bytes.get(at.checked_mul(4)?..)?.first_chunk::<4>()?;
                Some(u32::from_le_bytes(*four))
            }
        }
    }
}

/// Map a file that nobody changes any more.
pub fn map(path: &Path) -> Result<Mmap> {
    let file = File::open(path).map_err(Error::io(path))?;
    // SAFETY: the files of a datastore are immutable once their build is committed.
    unsafe { Mmap::map(&file) }.map_err(Error::io(path))
}

/// One bit per token: is it the last of its document?
pub struct Ends(Vec<u64>);

impl Ends {
    pub fn of(bounds: &[u64], tokens: usize) -> Ends {
        let mut bits = vec![0; tokens.div_ceil(64)];
        for &bound in bounds {
            if let Some(last) = usize::try_from(bound).ok().and_then(|b| b.checked_sub(1)) {
                bits[last / 64] |= 1 << (last % 64);
            }
        }
        Ends(bits)
    }

    #[inline]
    pub fn has(&self, at: usize) -> bool {
        self.0.get(at / 64).is_none_or(|bits| bits >> (at % 64) & 1 == 1)
    }
}
