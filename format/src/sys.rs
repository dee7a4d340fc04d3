//! What the program asks of Linux: messages on sockets, shared memory, processes and their limits.

use libc::{c_int, c_void, rlimit, RLIM_INFINITY};
use std::mem::{size_of, size_of_val, zeroed};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering};

type Result<T> = std::result::Result<T, String>;

/// Room for the descriptors of a message: two.
const CONTROL_BYTES: usize = 64;

fn failure(what: &str) -> String {
    format!("{what}: {}", std::io::Error::last_os_error())
}

/// Reports whether a descriptor is a socket of whole messages.
pub fn is_socket(descriptor: c_int) -> bool {
    let (mut kind, mut size): (c_int, _) = (0, size_of::<c_int>() as u32);
    // SAFETY: both pointers are of variables above.
    let r = unsafe { libc::getsockopt(descriptor, libc::SOL_SOCKET, libc::SO_TYPE, (&raw mut kind).cast(), &mut size) };
    r == 0 && kind == libc::SOCK_SEQPACKET
}

pub fn close(descriptor: c_int) {
    // SAFETY: it has no memory to keep safe.
    unsafe { libc::close(descriptor) };
}

pub fn exit() -> ! {
    // SAFETY: it ends the process without handlers of the process before the fork.
    unsafe { libc::_exit(0) }
}

/// Limits the whole process: address space, no core, no bytes of files. Where the machine's memory is short, the kernel
/// ends the process of a format before the generator.
pub fn confine(bytes: u64) -> Result<()> {
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000"); // without it only the kernel's choice is worse
    limit(libc::RLIMIT_AS, bytes)?;
    limit(libc::RLIMIT_CORE, 0)?;
    limit(libc::RLIMIT_FSIZE, 0)?;
    // SAFETY: neither call takes memory. Children that end leave no zombie.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    }
    Ok(())
}

fn limit(resource: libc::__rlimit_resource_t, most: u64) -> Result<()> {
    let mut now = rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: now outlives the calls.
    let r = unsafe {
        libc::getrlimit(resource, &mut now);
        let most = if now.rlim_max == RLIM_INFINITY { most } else { most.min(now.rlim_max) };
        libc::setrlimit(resource, &rlimit { rlim_cur: most, rlim_max: most })
    };
    if r != 0 {
        return Err(failure("setrlimit"));
    }
    Ok(())
}

/// Forks. It returns true in the new process.
pub fn fork() -> Result<bool> {
    // SAFETY: the process has one thread, so no lock is held.
    match unsafe { libc::fork() } {
        -1 => Err(failure("fork")),
        0 => Ok(true),
        _ => Ok(false),
    }
}

/// The socket of this process's format, for the handler of its timer.
static SOCKET: AtomicI32 = AtomicI32::new(-1);

/// Begins the process of a format: after some seconds it says that it is slow, and ends. It returns a descriptor of
/// the process. What it writes to stderr goes nowhere, as the generator waits for the end of its parent's.
pub fn begin(socket: c_int, seconds: i64) -> Result<c_int> {
    SOCKET.store(socket, Ordering::Relaxed);
    // SAFETY: it takes no memory. stdin is /dev/null.
    unsafe { libc::dup2(0, 2) };
    // SAFETY: the handler only sends and exits.
    unsafe { libc::signal(libc::SIGALRM, slow as *const () as libc::sighandler_t) };
    set_timer(seconds);
    // SAFETY: the calls take no memory.
    let own = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) };
    if own < 0 {
        return Err(failure("pidfd_open"));
    }
    Ok(own as c_int)
}

extern "C" fn slow(_: c_int) {
    let state = crate::sequence::SLOW;
    // SAFETY: send and _exit may be called in a handler, and state outlives the call.
    unsafe {
        libc::send(SOCKET.load(Ordering::Relaxed), (&raw const state).cast(), size_of_val(&state), libc::MSG_NOSIGNAL);
        libc::_exit(0)
    }
}

/// Sets the timer; 0 stops it.
pub fn set_timer(seconds: i64) {
    // SAFETY: all bytes of the struct may be 0, and it outlives the call.
    unsafe {
        let mut timer: libc::itimerval = zeroed();
        timer.it_value.tv_sec = seconds;
        libc::setitimer(libc::ITIMER_REAL, &timer, null_mut());
    }
}

/// Limits this process to some bytes more than it has now, and to the descriptors that it has.
pub fn seal(bytes: u64) -> Result<()> {
    let statm = std::fs::read_to_string("/proc/self/statm").map_err(|e| format!("/proc/self/statm: {e}"))?;
    let pages: u64 = statm.split(' ').next().and_then(|s| s.parse().ok()).ok_or("/proc/self/statm has no size")?;
    // SAFETY: it takes no memory.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    limit(libc::RLIMIT_AS, pages * page + bytes)?;
    limit(libc::RLIMIT_NOFILE, 0)
}

/// Sends a message with descriptors, at most two.
pub fn send(socket: c_int, words: &[u32], descriptors: &[c_int]) -> Result<()> {
    let mut part = libc::iovec { iov_base: words.as_ptr() as *mut c_void, iov_len: size_of_val(words) };
    let mut control = [0u64; CONTROL_BYTES / 8];
    // SAFETY: header points at variables that outlive the call, and control has room for two descriptors.
    let sent = unsafe {
        let mut header: libc::msghdr = zeroed();
        (header.msg_iov, header.msg_iovlen) = (&mut part, 1);
        if !descriptors.is_empty() {
            let bytes = size_of_val(descriptors) as u32;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(bytes) as _;
            let first = libc::CMSG_FIRSTHDR(&header);
            ((*first).cmsg_level, (*first).cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
            (*first).cmsg_len = libc::CMSG_LEN(bytes) as _;
            std::ptr::copy_nonoverlapping(descriptors.as_ptr(), libc::CMSG_DATA(first).cast(), descriptors.len());
        }
        libc::sendmsg(socket, &header, libc::MSG_NOSIGNAL)
    };
    if sent < 0 {
        return Err(failure("sendmsg"));
    }
    Ok(())
}

/// The descriptors of a message. Those that nobody takes are closed.
pub struct Received(Vec<c_int>);

impl Received {
    /// Takes the two descriptors of a message that has two.
    pub fn descriptors(mut self) -> Option<(c_int, c_int)> {
        let pair = (self.0.len() == 2).then(|| (self.0[0], self.0[1]))?;
        self.0.clear();
        Some(pair)
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.0.iter().for_each(|&d| close(d));
    }
}

/// Receives a message and its number of words, or None after the other end was closed. A message that is longer, or is
/// not of words, is an error.
pub fn receive(socket: c_int, words: &mut [u32]) -> Result<Option<(Received, usize)>> {
    let mut part = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: size_of_val(words) };
    let mut control = [0u64; CONTROL_BYTES / 8];
    let mut received = Received(vec![]);
    // SAFETY: header points at variables that outlive the call, and the kernel bounds what it writes.
    let n = unsafe {
        let mut header: libc::msghdr = zeroed();
        (header.msg_iov, header.msg_iovlen) = (&mut part, 1);
        (header.msg_control, header.msg_controllen) = (control.as_mut_ptr().cast(), CONTROL_BYTES as _);
        let n = libc::recvmsg(socket, &mut header, libc::MSG_CMSG_CLOEXEC | libc::MSG_TRUNC);
        let first = if n > 0 { libc::CMSG_FIRSTHDR(&header) } else { null_mut() };
        if !first.is_null() && (*first).cmsg_type == libc::SCM_RIGHTS {
            let count = ((*first).cmsg_len as usize - libc::CMSG_LEN(0) as usize) / size_of::<c_int>();
            let data: *const c_int = libc::CMSG_DATA(first).cast();
            received.0.extend((0..count).map(|i| data.add(i).read_unaligned()));
        }
        n
    };
    match n {
        0 => Ok(None),
        n if n < 0 => Err(failure("recvmsg")),
        n if n as usize <= size_of_val(words) && n % 4 == 0 => Ok(Some((received, n as usize / 4))),
        n => Err(format!("a message has {n} bytes, {} at most", size_of_val(words))),
    }
}

/// Shared memory.
pub struct Mapping {
    address: *mut c_void,
    bytes: usize,
}

impl Mapping {
    /// Maps all memory of a descriptor, which the generator has sealed against changes of its size.
    pub fn whole(descriptor: c_int) -> Result<Self> {
        // SAFETY: all bytes of stat may be 0. The kernel chooses an address that is free.
        unsafe {
            let mut stat: libc::stat = zeroed();
            if libc::fstat(descriptor, &mut stat) != 0 || stat.st_size <= 0 {
                return Err(failure("the shared memory"));
            }
            let bytes = stat.st_size as usize;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let address = libc::mmap(null_mut(), bytes, access, libc::MAP_SHARED, descriptor, 0);
            if address == libc::MAP_FAILED {
                return Err(failure("mmap"));
            }
            Ok(Self { address, bytes })
        }
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has that many bytes while self lives; the generator writes it before, not now.
        unsafe { std::slice::from_raw_parts(self.address.cast(), self.bytes) }
    }

    /// The first words, and the bytes after them; both empty if there are not so many.
    pub fn split(&mut self, words: usize) -> (&mut [u32], &[u8]) {
        // SAFETY: as in bytes. A page is aligned for words.
        let all = unsafe { std::slice::from_raw_parts_mut(self.address.cast::<u8>(), self.bytes) };
        let Some((first, rest)) = all.split_at_mut_checked(words * size_of::<u32>()) else {
            return (&mut [], &[]);
        };
        // SAFETY: first has room for the words, and is aligned.
        (unsafe { std::slice::from_raw_parts_mut(first.as_mut_ptr().cast(), words) }, rest)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing borrows from self any more.
        unsafe { libc::munmap(self.address, self.bytes) };
    }
}
