//! What the operating system lets a worker do: little memory, few files, no core dump, and
//! of its calls those that computing, waiting and talking to the host need. Nothing that it
//! writes can be run as code.
//!
//! Memory is what can be written (`RLIMIT_DATA`), not addresses: the engine reserves
//! gigabytes of these for each linear memory and touches few.

use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};

/// Descriptors: three streams, and what an async runtime and code in memory take.
const FILES_MAX: u64 = 64;

/// What one worker may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemLimits {
    /// Bytes that it can write to.
    pub(crate) memory: u64,
    /// CPU time of all its threads together.
    pub(crate) cpu_time: Option<Duration>,
}

/// It could not be confined.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SandboxError {
    /// A limit was refused.
    #[error("the system refuses its limits: {0}")]
    Limit(#[from] rustix::io::Errno),
    /// No filter for its calls.
    #[error("the system refuses a filter for its calls: {0}")]
    Filter(String),
}

impl SystemLimits {
    /// Applies them to this process, for good.
    pub(crate) fn apply(self) -> Result<(), SandboxError> {
        let most = |value| Rlimit {
            current: Some(value),
            maximum: Some(value),
        };
        setrlimit(Resource::Core, most(0))?;
        setrlimit(Resource::Nofile, most(FILES_MAX))?;
        setrlimit(Resource::Data, most(self.memory))?;
        if let Some(cpu_time) = self.cpu_time {
            let seconds = cpu_time.as_secs() + u64::from(cpu_time.subsec_nanos() > 0);
            let limit = Rlimit {
                // The first one says what it was by its signal.
                current: Some(seconds),
                maximum: Some(seconds + 1),
            };
            setrlimit(Resource::Cpu, limit)?;
        }
        Ok(())
    }
}

/// Forbids every thread of this process all calls but a few, for good: others fail with
/// `EPERM`. Threads and files must be there already.
#[cfg(target_os = "linux")]
pub(crate) fn confine() -> Result<(), SandboxError> {
    use std::collections::BTreeMap;

    use seccompiler::{
        BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
        SeccompFilter, SeccompRule, apply_filter_all_threads,
    };

    let refused = |error: &dyn std::fmt::Display| SandboxError::Filter(error.to_string());
    let mut allowed: BTreeMap<i64, _> = ALLOWED
        .iter()
        .chain(ALLOWED_HERE)
        .map(|call| (*call, Vec::new()))
        .collect();
    // No memory becomes code.
    let is_no_code = || -> Result<SeccompRule, BackendError> {
        let exec = SeccompCmpOp::MaskedEq(u64::from(libc::PROT_EXEC.unsigned_abs()));
        let protection = SeccompCondition::new(2, SeccompCmpArgLen::Dword, exec, 0)?;
        SeccompRule::new(vec![protection])
    };
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        allowed.insert(call, vec![is_no_code().map_err(|error| refused(&error))?]);
    }
    let denied = rustix::io::Errno::PERM.raw_os_error().unsigned_abs();
    let architecture = std::env::consts::ARCH
        .try_into()
        .map_err(|error: BackendError| refused(&error))?;
    let filter = SeccompFilter::new(
        allowed,
        SeccompAction::Errno(denied),
        SeccompAction::Allow,
        architecture,
    )
    .map_err(|error| refused(&error))?;
    let program: BpfProgram = filter
        .try_into()
        .map_err(|error: BackendError| refused(&error))?;
    apply_filter_all_threads(&program).map_err(|error| refused(&error))
}

/// Other systems have the limits alone.
#[cfg(not(target_os = "linux"))]
pub(crate) fn confine() -> Result<(), SandboxError> {
    Ok(())
}

/// Memory, waiting, clocks, random numbers, descriptors that are open, an end.
#[cfg(target_os = "linux")]
const ALLOWED: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
    libc::SYS_close,
    libc::SYS_fcntl,
    libc::SYS_lseek,
    libc::SYS_futex,
    // Images of linear memories.
    libc::SYS_memfd_create,
    libc::SYS_ftruncate,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_membarrier,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_gettid,
    libc::SYS_getpid,
    // An abort.
    libc::SYS_tgkill,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
const ALLOWED_HERE: &[i64] = &[libc::SYS_epoll_wait, libc::SYS_poll];

#[cfg(all(target_os = "linux", not(target_arch = "x86_64")))]
const ALLOWED_HERE: &[i64] = &[];
