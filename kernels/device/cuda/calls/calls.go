//go:build cuda

// Package calls counts this process's calls of the CUDA driver by function and thread,
// those made by libraries included. It is for tests. It loads CUPTI when counting begins,
// so that nothing else depends on it.
package calls

/*
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

// The part of CUPTI's interface that is used: the driver's callback domain, and the first
// fields of a callback's data.
enum { DRIVER = 1, ENTER = 0, IDS = 4096 };
typedef struct {
	int site;
	const char *name;
} callback_data;

static _Atomic uint64_t counts[2][IDS]; // 0: other threads, 1: the watched one
static const char *_Atomic names[IDS];
static _Atomic long watched;
static __thread long self;

static void called(void *user, int domain, uint32_t id, const void *data) {
	const callback_data *d = data;
	if (domain != DRIVER || d->site != ENTER || id >= IDS) return;
	if (!self) self = syscall(SYS_gettid);
	names[id] = d->name;
	counts[self == watched][id]++;
}

static void *subscriber;
static int (*unsubscribe)(void *);

// calls_begin returns 0, -1 if there is no library of this name, or CUPTI's error.
static int calls_begin(const char *library) {
	void *lib = dlopen(library, RTLD_NOW);
	if (!lib) return -1;
	int (*subscribe)(void **, void (*)(void *, int, uint32_t, const void *), void *) = dlsym(lib, "cuptiSubscribe");
	int (*enable)(uint32_t, void *, int) = dlsym(lib, "cuptiEnableDomain");
	unsubscribe = dlsym(lib, "cuptiUnsubscribe");
	if (!subscribe || !enable || !unsubscribe) return -1;
	int r = subscribe(&subscriber, called, 0);
	return r ? r : enable(1, subscriber, DRIVER);
}

static int calls_end(void) { return unsubscribe(subscriber); }

static void calls_watch(long thread) {
	for (int i = 0; i < IDS; i++) counts[0][i] = counts[1][i] = 0;
	watched = thread;
}

static uint64_t calls_count(int thread, int id) { return counts[thread][id]; }
static const char *calls_name(int id) { return names[id]; }
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrNoCUPTI means that CUPTI's library was not found.
var ErrNoCUPTI = errors.New("calls: libcupti.so was not found: it comes with the CUDA toolkit, in " +
	"extras/CUPTI/lib64, and as the Python package nvidia-cuda-cupti; name it in REEL_CUPTI")

// Counts holds the number of calls by name of the driver's function.
type Counts map[string]uint64

// Begin makes CUPTI count calls until End. Errors: [ErrNoCUPTI], and CUPTI's own, for
// example if another profiler uses it.
func Begin() error {
	for _, name := range []string{os.Getenv("REEL_CUPTI"), "libcupti.so.13", "libcupti.so.12", "libcupti.so"} {
		if name == "" {
			continue
		}
		c := C.CString(name)
		r := C.calls_begin(c)
		C.free(unsafe.Pointer(c))
		if r == 0 {
			return nil
		}
		if r > 0 {
			return fmt.Errorf("calls: CUPTI refused with error %d: does another profiler run?", int(r))
		}
	}
	return ErrNoCUPTI
}

// End ends the counting.
func End() error {
	if r := C.calls_end(); r != 0 {
		return fmt.Errorf("calls: CUPTI gave error %d", int(r))
	}
	return nil
}

// Watch sets all counts to 0 and from now on counts the calling thread's calls
// separately. The caller is locked to its thread.
func Watch() { C.calls_watch(C.long(unix.Gettid())) }

// Read returns the counts since Watch, of the watched thread and of all others.
func Read() (watched, others Counts) {
	all := [2]Counts{{}, {}}
	for id := range C.int(C.IDS) {
		for thread := range all {
			if n := C.calls_count(C.int(thread), id); n > 0 {
				all[thread][C.GoString(C.calls_name(id))] = uint64(n)
			}
		}
	}
	return all[1], all[0]
}
