//! Where CubeCL's buffers lie on the device, and what its answers mean where there is no room for one.

use cubecl::client::Client;
use cubecl::server::{Handle, ServerError, ServerStorage};
use cubecl_cuda::CudaRuntime;
use cubecl_runtime::runtime::Runtime;
use cubecl_runtime::storage::{ComputeStorage, ManagedResource};

use crate::common::Bytes;
use crate::device::LESS_MEMORY;

/// What the user reads when a full device caused `error`; `None` for any other error.
pub fn out_of_memory(error: &str) -> Option<String> {
    // CubeCL's own words when its pools cannot grow, and the driver's answer passed on by it.
    let refused = ["out of device memory allocating ", "can't allocate buffer of size: "];
    let bytes = refused.into_iter().find_map(|words| {
        let (_, rest) = error.split_once(words)?;
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
    });
    // A buffer gets its place when it is allocated. Of one without a place CubeCL forgets why as soon as a kernel is to write
    // to it: then only a device that is lost would be another reason.
    let without_place =
        error.contains("Memory location was never initialized") && !error.contains("is poisoned");
    let what = match bytes {
        Some(bytes) => format!("an allocation of {bytes} bytes ({})", Bytes(bytes)),
        None if without_place => "an allocation".into(),
        None => return None,
    };
    Some(format!("out of device memory: {what} failed: {LESS_MEMORY}"))
}

pub(super) type Server = <CudaRuntime as Runtime>::Server;

/// A device address that stays valid as long as this value lives.
pub(super) struct Address<Guard> {
    pub pointer: u64,
    _guard: Guard,
}

/// Where `handle` lies.
///
/// # Errors
/// When the buffer could not be allocated or what should have filled it failed.
pub(super) fn address(client: &Client, handle: &Handle) -> Result<Address<impl Sized + use<>>, String> {
    located(client.get_resource::<Server>(handle.clone()))
}

/// CubeCL's answer for a buffer that does not move.
pub(super) type Located = ManagedResource<<<Server as ServerStorage>::Storage as ComputeStorage>::Resource>;

/// The address in CubeCL's answer, or why there is none.
pub(super) fn located(answer: Result<Located, ServerError>) -> Result<Address<Located>, String> {
    let resource = answer.map_err(|e| format!("a buffer of the device holds nothing: {e:?}"))?;
    Ok(Address { pointer: resource.resource().ptr, _guard: resource })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CubeCL reports every failure in the same place: only a refused allocation is a lack of memory.
    #[test]
    fn only_a_refused_allocation_is_out_of_memory() {
        let failure = |reason: String| {
            let error: Result<Located, _> =
                Err(ServerError::Generic { reason, backtrace: Default::default() });
            located(error).err().map(|e| format!("an error inside of the program: {e}")).expect("an error")
        };
        for words in
            ["out of device memory allocating 3221225472 bytes", "can't allocate buffer of size: 3221225472"]
        {
            let message = out_of_memory(&failure(words.into())).expect("a lack of memory");
            assert!(message.contains("3221225472 bytes (3.00 GiB)"), "{message}");
        }
        let unwritten = "The bytes were never written (failure #4597)\nCaused by:\n  couldn't find resource for that handle: \
                         Memory location was never initialized";
        let message = out_of_memory(&failure(unwritten.into())).expect("a lack of memory");
        assert!(message.starts_with("out of device memory: an allocation failed: lower"), "{message}");
        let lost = format!("The device is poisoned\n{unwritten}");
        let others =
            ["the product was refused: CUBLAS_STATUS_NOT_SUPPORTED", "CUDA_ERROR_ILLEGAL_ADDRESS", &lost];
        for other in others {
            let error = failure(other.into());
            assert_eq!(out_of_memory(&error), None);
            assert!(!error.contains("out of"), "{error}");
        }
    }
}
