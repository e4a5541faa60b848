//! Records of the kernels and copies that ran, through CUPTI's activity buffers.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use cudarc::cupti::sys as cupti;
use cudarc::driver::sys::{self, CUcontext};

use super::scopes::Scopes;
use super::{Gpu, stream};
use crate::common::locked;
use crate::device::trace::{Activity, ActivityKind, HOST, Mark, follow, follow_host_work, take_host_work};

static RECORDED: Mutex<Vec<Record>> = Mutex::new(Vec::new());
/// Whether a recording runs; marks are noted only then.
static RECORDING: AtomicBool = AtomicBool::new(false);

/// Kinds of records that a recording asks CUPTI for. The record of a call to the driver or the runtime carries the id
/// of the scope in which the call was made.
const KINDS: [cupti::CUpti_ActivityKind; 6] = [
    cupti::CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
    cupti::CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_MEMCPY,
    cupti::CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_MEMSET,
    cupti::CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
    cupti::CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_DRIVER,
    cupti::CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_RUNTIME,
];
/// Bytes of a buffer that CUPTI fills: some thousand records.
const BUFFER: usize = 1 << 20;
/// Kernel names are cut to this: those of templates run to kilobytes.
const NAME: usize = 80;

/// What is read of CUPTI's records. A call to the driver and the work that it gave the device have the same number.
enum Record {
    Activity {
        call: u32,
        activity: Activity,
    },
    /// The call was made inside of the scope with this id.
    Scope {
        call: u32,
        id: u64,
    },
}

/// Has CUPTI record. Returns the time that records would have now.
fn enable() -> Result<u64, String> {
    for kind in KINDS {
        // SAFETY: switches one kind of record on.
        unsafe { cupti::cuptiActivityEnable(kind) }
            .result()
            .map_err(|e| format!("CUPTI does not record {kind:?} ({e:?})"))?;
    }
    let mut stamp = 0;
    // SAFETY: writes one number.
    unsafe { cupti::cuptiGetTimestamp(&mut stamp) }
        .result()
        .map_err(|e| format!("CUPTI has no clock ({e:?})"))?;
    Ok(stamp)
}

fn disable() {
    for kind in KINDS {
        // SAFETY: switches one kind of record off, whether it is on or not.
        unsafe { cupti::cuptiActivityDisable(kind) };
    }
}

/// Records what the device does until it is stopped. That takes a few percent of a step's time, so
/// the step that is traced is not one that is measured.
pub struct Recording {
    gpu: &'static Gpu,
    scopes: Arc<Scopes>,
    /// One moment by the host's clock and by that of the records, in nanoseconds.
    moment: (Instant, u64),
}

impl Recording {
    /// One recording at a time.
    ///
    /// # Errors
    /// Why CUPTI cannot be used: it is missing, or a profiler has it.
    pub fn start(gpu: &'static Gpu) -> Result<Self, String> {
        stream::subscribe()?;
        gpu.synchronize();
        // SAFETY: both callbacks have the signatures CUPTI calls and live as long as the process.
        unsafe { cupti::cuptiActivityRegisterCallbacks(Some(request), Some(complete)) }
            .result()
            .map_err(|e| format!("CUPTI does not record ({e:?})"))?;
        locked(&RECORDED).clear();
        let stamp = enable().inspect_err(|_| disable())?;
        let moment = (Instant::now(), stamp);
        // Only once nothing can fail: an error leaves no scope or mark that is followed.
        RECORDING.store(true, Relaxed);
        let scopes = Arc::new(Scopes::new(gpu));
        follow(Some(scopes.clone()));
        follow_host_work();
        Ok(Self { gpu, scopes, moment })
    }

    /// What ran since the start, ordered by the time at which it began.
    pub fn stop(self) -> Vec<Activity> {
        RECORDING.store(false, Relaxed);
        follow(None);
        self.gpu.synchronize();
        disable();
        // SAFETY: hands every buffer to `complete` before it returns.
        unsafe { cupti::cuptiActivityFlushAll(1) };
        let (mut activities, mut ids) = (Vec::new(), HashMap::new());
        for record in std::mem::take(&mut *locked(&RECORDED)) {
            match record {
                // CUPTI gives 0 where it has no time: of a copy under way when recording began.
                Record::Activity { activity, .. } if activity.start == 0 => {}
                Record::Activity { call, activity } => activities.push((call, activity)),
                Record::Scope { call, id } => _ = ids.insert(call, id),
            }
        }
        let operators = self.scopes.operators(ids);
        let named = |(call, activity)| Activity {
            operator: operators.get(&call).map(ToString::to_string),
            ..activity
        };
        let mut activities: Vec<Activity> = activities.into_iter().map(named).collect();
        let at = |time: Instant| self.moment.1 + time.duration_since(self.moment.0).as_nanos() as u64;
        activities.extend(take_host_work().into_iter().map(|(start, end)| {
            let times = [at(start), at(end)];
            Activity { stream: HOST, ..Activity::new(ActivityKind::HostUpdate, "update on the host", times) }
        }));
        activities.sort_by_key(|activity| activity.start);
        activities
    }
}

impl Gpu {
    /// Notes a place in this thread's stream, while a recording runs, by setting one byte of scratch memory to the
    /// mark's code. Nothing reads that byte before it is written, and nobody else sets a single byte.
    pub fn mark(&self, mark: Mark) {
        if RECORDING.load(Relaxed) {
            let (scratch, code) = (self.lane().workspace, mark.code());
            self.stream().enqueue(None, move |_, stream| {
                // SAFETY: the scratch memory is this stream's and lives as long as the process.
                let set = unsafe { sys::cuMemsetD8Async(scratch, code, 1, stream) };
                set.result().map_err(|e| format!("a byte of memory could not be set: {e}"))
            });
        }
    }
}

fn layout() -> Layout {
    Layout::from_size_align(BUFFER, 8).expect("a power of two")
}

unsafe extern "C" fn request(buffer: *mut *mut u8, size: *mut usize, records: *mut usize) {
    // SAFETY: CUPTI passes three places to write to; `complete` frees the buffer.
    unsafe {
        *buffer = alloc(layout());
        *size = if (*buffer).is_null() { 0 } else { BUFFER };
        *records = 0;
    }
}

unsafe extern "C" fn complete(_: CUcontext, _: u32, buffer: *mut u8, _: usize, valid: usize) {
    if buffer.is_null() {
        return;
    }
    let mut record = std::ptr::null_mut();
    // SAFETY: the buffer came from `request` and CUPTI has written `valid` bytes of records to it.
    unsafe {
        while cupti::cuptiActivityGetNextRecord(buffer, valid, &mut record)
            == cupti::CUptiResult::CUPTI_SUCCESS
        {
            locked(&RECORDED).extend(read(record));
        }
        dealloc(buffer, layout());
    }
}

/// # Safety
/// `record` must point to a CUPTI activity record.
unsafe fn read(record: *const cupti::CUpti_Activity) -> Option<Record> {
    // SAFETY: the kind says which record it is. The fields read here lie at the same offsets in
    // every version of the record from CUDA 12 on.
    unsafe {
        match (*record).kind {
            cupti::CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL => {
                let kernel = record.cast::<cupti::CUpti_ActivityKernel9>();
                let name = CStr::from_ptr((*kernel).name).to_string_lossy();
                let (kind, short) = (ActivityKind::of_kernel(&name), name.chars().take(NAME));
                let activity =
                    Activity::new(kind, short.collect::<String>(), [(*kernel).start, (*kernel).end]);
                let activity = Activity { stream: (*kernel).streamId, ..activity };
                Some(Record::Activity { call: (*kernel).correlationId, activity })
            }
            cupti::CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_MEMCPY => {
                let copy = record.cast::<cupti::CUpti_ActivityMemcpy5>();
                let (kind, name) = match (*copy).copyKind {
                    1 => (ActivityKind::HostToDevice, "copy to the device"),
                    2 => (ActivityKind::DeviceToHost, "copy to the host"),
                    _ => (ActivityKind::DeviceToDevice, "copy on the device"),
                };
                let activity = Activity::new(kind, name, [(*copy).start, (*copy).end]);
                let activity = Activity { stream: (*copy).streamId, bytes: (*copy).bytes, ..activity };
                Some(Record::Activity { call: (*copy).correlationId, activity })
            }
            cupti::CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_MEMSET => {
                let set = record.cast::<cupti::CUpti_ActivityMemset4>();
                let mark = Mark::of_code((*set).value).filter(|_| (*set).bytes == 1)?;
                let activity = Activity::new(ActivityKind::Mark, mark.name(), [(*set).start, (*set).end]);
                let activity = Activity { stream: (*set).streamId, bytes: 1, ..activity };
                Some(Record::Activity { call: (*set).correlationId, activity })
            }
            cupti::CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION => {
                let scope = record.cast::<cupti::CUpti_ActivityExternalCorrelation>();
                Some(Record::Scope { call: (*scope).correlationId, id: (*scope).externalId })
            }
            _ => None,
        }
    }
}
