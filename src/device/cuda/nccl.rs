//! [`Communicator`]: this process among those whose GPUs NCCL connects. The library is loaded when it is first asked for.

use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use burn::tensor::DType;
use cudarc::driver::sys::CUstream;
use cudarc::nccl::sys::{self, ncclComm_t, ncclDataType_t, ncclRedOp_t, ncclResult_t};

/// What all ranks do together, or two of them, each with a buffer of the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// Every buffer becomes the sum of all, rounded after each addition.
    AllReduce,
    /// The buffer of `root` becomes the sum; the others keep what they have.
    Reduce { root: usize },
    /// Every buffer becomes that of `root`, bytes of any type.
    Broadcast { root: usize },
    /// Buffers have a part for each of `ranks`. The part in this rank's `place` becomes the sum of all ranks' parts there, in
    /// fp32; the others are lost.
    ReduceScatter { place: usize, ranks: usize },
    /// Every part becomes that of the rank in its place, bytes of any type.
    AllGather { place: usize, ranks: usize },
    /// The buffer of rank `to` becomes this rank's, bytes of any type.
    Send { to: usize },
    /// The other end of it.
    Receive { from: usize },
}

impl Collective {
    /// The other one of two ranks.
    pub fn peer(self) -> Option<usize> {
        match self {
            Self::Send { to: peer } | Self::Receive { from: peer } => Some(peer),
            _ => None,
        }
    }

    /// Whether it adds numbers.
    pub fn sums(self) -> bool {
        matches!(self, Self::AllReduce | Self::Reduce { .. } | Self::ReduceScatter { .. })
    }
}

/// Whether the library is here.
pub fn present() -> bool {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: only tries to load the library; cudarc panics at the first call without it.
    *PRESENT.get_or_init(|| unsafe { sys::is_culib_present() })
}

/// The library's version, `2.27.3`; `None` where it is not here.
pub fn version() -> Option<String> {
    let mut version = 0;
    // SAFETY: the library is here; the call writes one integer.
    present().then(|| unsafe { sys::ncclGetVersion(&mut version) });
    (version > 0).then(|| format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100))
}

/// The id of a new communicator: one rank makes it, and all ranks join by it.
///
/// # Errors
/// When the library is not here or finds no network interface.
pub fn unique_id() -> Result<Vec<u8>, String> {
    if !present() {
        return Err(ABSENT.into());
    }
    let mut id = MaybeUninit::<sys::ncclUniqueId>::zeroed();
    // SAFETY: the library is here and fills the id, of which every byte is a valid one before it.
    let id = unsafe {
        checked("to make an id", sys::ncclGetUniqueId(id.as_mut_ptr()))?;
        id.assume_init()
    };
    Ok(id.internal.map(|byte| byte as u8).to_vec())
}

pub const ABSENT: &str = "the NCCL library (libnccl.so.2) was not found: run `pip install nvidia-nccl-cu12`, or -cu13 with \
                          a driver of CUDA 13, in the active Python environment, or install NCCL's package; \
                          parallel.engine = \"sockets\" works without it";

/// A rank of a communicator. One thread at a time makes its calls.
pub struct Communicator(ncclComm_t);

// SAFETY: NCCL takes the calls of a communicator from any thread, one after the other.
unsafe impl Send for Communicator {}

impl Communicator {
    /// Returns once every rank has come; the context of this rank's device is current.
    ///
    /// # Errors
    /// The library's, when the ranks cannot be connected.
    pub fn join(id: &[u8], rank: usize, ranks: usize) -> Result<Self, String> {
        if !present() {
            return Err(ABSENT.into());
        }
        let mut internal = [0; 128];
        if id.len() != internal.len() {
            return Err(format!("an id of {} bytes is none of NCCL's", id.len()));
        }
        internal.iter_mut().zip(id).for_each(|(to, from)| *to = *from as c_char);
        let mut raw = std::ptr::null_mut();
        let id = sys::ncclUniqueId { internal };
        // SAFETY: the library is here, `raw` is written before it is used, and the device's context is current.
        let result = unsafe { sys::ncclCommInitRank(&mut raw, ranks as c_int, id, rank as c_int) };
        checked("to connect the ranks", result).map(|()| Self(raw))
    }

    /// Puts a collective on each of these buffers into the stream, all as one operation. It may wait for the other ranks the
    /// first time that a way between them is used.
    ///
    /// # Safety
    /// Each of `buffers` is an address, and so many bytes of numbers of this type lie there on this rank's device, whose
    /// context is current; `stream` is alive and of the same device. Until the stream has passed the collective nothing
    /// else uses the buffers, and all ranks that take part do the same in the same order.
    ///
    /// # Errors
    /// The library's.
    pub unsafe fn enqueue(
        &self,
        collective: Collective,
        buffers: &[(u64, usize)],
        dtype: DType,
        stream: CUstream,
    ) -> Result<(), String> {
        if let [(buffer, bytes)] = *buffers {
            // SAFETY: the caller's.
            return unsafe { self.enqueue_one(collective, buffer, (bytes, dtype), stream) };
        }
        // SAFETY: the library is here, as there is a communicator.
        checked("a group", unsafe { sys::ncclGroupStart() })?;
        let each = buffers.iter().try_for_each(|&(buffer, bytes)| {
            // SAFETY: the caller's.
            unsafe { self.enqueue_one(collective, buffer, (bytes, dtype), stream) }
        });
        // SAFETY: a group has begun on this thread.
        each.and(checked("a group", unsafe { sys::ncclGroupEnd() }))
    }

    /// # Safety
    /// As [`enqueue`](Self::enqueue).
    unsafe fn enqueue_one(
        &self,
        collective: Collective,
        buffer: u64,
        (bytes, dtype): (usize, DType),
        stream: CUstream,
    ) -> Result<(), String> {
        let (values, stream) = (buffer as *mut std::ffi::c_void, stream.cast());
        let (sum, count) = (ncclRedOp_t::ncclSum, bytes / dtype.size());
        let byte = ncclDataType_t::ncclUint8;
        let number = match dtype {
            DType::F32 => ncclDataType_t::ncclFloat32,
            DType::BF16 => ncclDataType_t::ncclBfloat16,
            DType::F16 => ncclDataType_t::ncclFloat16,
            other if collective.sums() => return Err(format!("no kernel here makes a sum of {other:?}")),
            _ => byte,
        };
        let own =
            |place: usize, ranks: usize| (buffer + (place * (bytes / ranks)) as u64) as *mut std::ffi::c_void;
        // SAFETY: the caller's; in place, as NCCL allows for all of them.
        let result = unsafe {
            match collective {
                Collective::AllReduce => {
                    sys::ncclAllReduce(values, values, count, number, sum, self.0, stream)
                }
                Collective::Reduce { root } => {
                    sys::ncclReduce(values, values, count, number, sum, root as c_int, self.0, stream)
                }
                Collective::Broadcast { root } => {
                    sys::ncclBroadcast(values, values, bytes, byte, root as c_int, self.0, stream)
                }
                Collective::ReduceScatter { place, ranks } => {
                    let part = own(place, ranks);
                    sys::ncclReduceScatter(values, part, count / ranks, number, sum, self.0, stream)
                }
                Collective::AllGather { place, ranks } => {
                    let part = own(place, ranks);
                    sys::ncclAllGather(part, values, bytes / ranks, byte, self.0, stream)
                }
                Collective::Send { to } => sys::ncclSend(values, bytes, byte, to as c_int, self.0, stream),
                Collective::Receive { from } => {
                    sys::ncclRecv(values, bytes, byte, from as c_int, self.0, stream)
                }
            }
        };
        checked("a collective", result)
    }

    /// Asks the library for failures in the background.
    ///
    /// # Errors
    /// What has failed, in this rank or another, as far as the library knows.
    pub fn check(&self) -> Result<(), String> {
        let mut error = ncclResult_t::ncclSuccess;
        // SAFETY: the communicator is whole; the call writes one number.
        let asked = unsafe { sys::ncclCommGetAsyncError(self.0, &mut error) };
        checked("to say how it is", asked)?;
        checked("what was under way", error)
    }
}

impl Drop for Communicator {
    /// What is still under way ends without a result: no stream waits for a rank that does not come.
    fn drop(&mut self) {
        // SAFETY: not used again. A refusal leaves it to the end of the process.
        let _ = unsafe { sys::ncclCommAbort(self.0) };
    }
}

/// # Errors
/// What the library says of this result, and of what led to it.
fn checked(what: &str, result: ncclResult_t) -> Result<(), String> {
    if matches!(result, ncclResult_t::ncclSuccess | ncclResult_t::ncclInProgress) {
        return Ok(());
    }
    // SAFETY: the library is here: it gave the result. It takes no communicator for the last error.
    let texts = unsafe { [sys::ncclGetErrorString(result), sys::ncclGetLastError(std::ptr::null_mut())] };
    let [error, last] = texts.map(|text| {
        // SAFETY: null, or a text of the library's own that ends with a zero.
        let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
        text.map_or(String::new(), |text| text.to_string_lossy().trim().to_string())
    });
    let last = if last.is_empty() { String::new() } else { format!(": {last}") };
    Err(format!("NCCL refuses {what} ({error}{last}): run with NCCL_DEBUG=INFO for more"))
}
